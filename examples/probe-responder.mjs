#!/usr/bin/env node
// A service that answers Plimsoll's probes, as a model: an HTTP server, and a responder at the UDP
// port of the same number. Plain Node.js without packages. docs/probes.md has the rules.
//
//     probe-responder.mjs ADDRESS:PORT [KEY_FILE]
//
// ADDRESS is one IP address of this machine: an answer has to come from the address that was asked,
// and Node.js cannot choose it. SIGHUP reads the keys anew. SIGTERM makes the service a lame duck.

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { BlockList, isIP } from 'node:net';
import { performance } from 'node:perf_hooks';
import { pathToFileURL } from 'node:url';

const STARTING = 1, HEALTHY = 2, LAME_DUCK = 3, NO_SUCH_PORT = 4, OTHER_VERSION = 255;
const QUERY = 1, ANSWER = 2, NOTICE = 3;
const ACKNOWLEDGES = 1, HAS_LOAD = 2;
const MAX_LEASE_S = 120, MAX_LEASES = 65_536;
const MAX_QUERIES_PER_SOURCE = 200, MAX_QUERIES = 50_000; // in a second
const NOTICES_PER_MS = 160, MAX_RESENDS = 8;
const MIN_WAIT_MS = 10, MAX_ROUND_TRIP_MS = 250;
const ANNOUNCE_MS = 1000, DRAIN_MS = 30_000;

// ---- Datagrams ----

const macOf = (key, content) =>
  key ? createHmac('sha256', key).update(content).digest().subarray(0, 16) : Buffer.alloc(16);

/** The 80 bytes of a datagram, signed if there is a key. Absent fields are 0. */
export function encode({ kind, acknowledges, keyId, state, nonce, instance, port, ...rest }, key) {
  const { leaseS = 0, number = 0, cookie = 0n, load, minDelayMs = 0 } = rest;
  const bytes = Buffer.alloc(80);
  bytes.writeUInt32BE(0x0f504c01, 0);
  bytes.set([kind, acknowledges ? ACKNOWLEDGES : load ? HAS_LOAD : 0, keyId, state ?? 0], 4);
  bytes.writeBigUInt64BE(nonce, 8);
  bytes.writeBigUInt64BE(instance, 16);
  bytes.writeUInt16BE(port, 24);
  bytes.writeUInt16BE(leaseS, 26);
  bytes.writeUInt32BE(number, 28);
  bytes.writeBigUInt64BE(cookie, 32);
  if (load) {
    bytes.writeUInt32BE(load.inFlight ?? 0xffffffff, 40);
    bytes.writeUInt32BE(load.latencyUs ?? 0xffffffff, 44);
    bytes.writeFloatBE(load.utilization ?? NaN, 48);
    bytes.writeFloatBE(load.requestsPerS ?? NaN, 52);
    bytes.writeFloatBE(load.errorsPerS ?? NaN, 56);
  }
  bytes.writeUInt32BE(minDelayMs, 60);
  macOf(key, bytes.subarray(0, 64)).copy(bytes, 64);
  return bytes;
}

/** The fields of a query, or undefined: the datagram gets no answer. `keys` maps ids to keys. */
export function decodeQuery(bytes, keys) {
  if (bytes.length < 80 || bytes.length > 1200) return undefined;
  if (bytes.readUIntBE(0, 3) !== 0x0f504c || bytes[4] !== QUERY) return undefined;
  const keyId = bytes[6];
  if (keys.size === 0 ? keyId !== 0 : !keys.has(keyId)) return undefined;
  const content = bytes.subarray(0, -16);
  if (!timingSafeEqual(macOf(keys.get(keyId), content), bytes.subarray(-16))) return undefined;

  const query = { version: bytes[3], keyId, port: bytes.readUInt16BE(24) };
  query.nonce = bytes.readBigUInt64BE(8);
  query.instance = bytes.readBigUInt64BE(16);
  if (query.instance === 0n || query.port === 0) return undefined;
  if (query.version !== 1) return query; // The other fields may have another meaning.

  query.acknowledges = bytes[5] === ACKNOWLEDGES;
  query.leaseS = bytes.readUInt16BE(26);
  query.number = bytes.readUInt32BE(28); // The round trip in µs, if it acknowledges nothing.
  query.cookie = bytes.readBigUInt64BE(32);
  const isBlank = bytes[7] === 0 && bytes.subarray(40, 64).every((byte) => byte === 0);
  if (!isBlank || bytes[5] > ACKNOWLEDGES) return undefined;
  if (query.acknowledges && (query.number === 0 || query.leaseS !== 0)) return undefined;
  return query;
}

/** An IP address as 16 bytes; IPv4 as ::ffff:a.b.c.d. */
function addressBytes(address) {
  const text = (address.includes(':') ? address.split('%')[0] : `::ffff:${address}`).replace(
    /(\d+)\.(\d+)\.(\d+)\.(\d+)$/,
    (_, a, b, c, d) => `${(a * 256 + +b).toString(16)}:${(c * 256 + +d).toString(16)}`,
  );
  const [head, tail = []] = text.split('::').map((part) => (part ? part.split(':') : []));
  const zeros = Array(8 - head.length - tail.length).fill('0');
  return Buffer.from([...head, ...zeros, ...tail].map((group) => group.padStart(4, '0')).join(''), 'hex');
}

/** Proves that a client receives datagrams at its address. The responder keeps nothing for it. */
export function cookieOf(secret, { address, port }, instance, hour) {
  const rest = Buffer.alloc(18);
  rest.writeUInt16BE(port, 0);
  rest.writeBigUInt64BE(instance, 2);
  rest.writeBigUInt64BE(BigInt(hour), 10);
  const mac = createHmac('sha256', secret).update(addressBytes(address)).update(rest).digest();
  return mac.readBigUInt64BE(0) || 1n;
}

/** Keys by id, from the text of a file of keys. */
export function readKeys(text) {
  const keys = new Map();
  for (const [index, line] of text.split('\n').entries()) {
    const words = line.split('#')[0].trim().split(/\s+/);
    if (words[0] === '') continue;
    const [id, fault] = [Number(words[0]), (problem) => new Error(`line ${index + 1}: ${problem}`)];
    const isKey = words.length === 2 && /^\d+$/.test(words[0]) && /^([0-9a-f]{2}){16,64}$/i.test(words[1]);
    if (!isKey || id < 1 || id > 255) throw fault('expected an id of 1 to 255 and 16 to 64 bytes in hexadecimal');
    if (keys.has(id)) throw fault(`two keys have the id ${id}; help: give each key its own id`);
    if (keys.size === 2) throw fault('more than two keys; help: remove the oldest');
    keys.set(id, Buffer.from(words[1], 'hex'));
  }
  if (keys.size === 0) throw new Error('no key; help: write a line of 1 and the output of `openssl rand -hex 32`');
  return keys;
}

// ---- Responder ----

/** Answers for one TCP port. `send(bytes, to)` sends a datagram, `load()` gives the present load. */
class Responder {
  #state = STARTING;
  #number = 1; // of changes of the state
  #limited = 0; // queries without an answer because of a limit
  #instance = randomBytes(8).readBigUInt64BE() || 1n;
  #secret = randomBytes(32);
  #leases = new Map(); // by address and UDP port of the client
  #due = new Set(); // leases that get a notice in the next turns
  #turn;
  #queries = 0; // in this second
  #queriesOf = new Map(); // in this second, by source

  constructor({ port, keys, send, load }) {
    Object.assign(this, { port, keys, send, load });
    setInterval(() => this.#endSecond(), 1000);
  }

  get state() { return this.#state; }
  get counts() { return { leases: this.#leases.size, limited: this.#limited }; }

  receive(bytes, from) {
    const query = decodeQuery(bytes, this.keys);
    if (!query || from.port === 0) return; // Nothing can be sent to port 0.
    const hour = Math.floor(Date.now() / 3_600_000);
    const cookie = cookieOf(this.#secret, from, query.instance, hour);
    const isProved = query.cookie === cookie || query.cookie === cookieOf(this.#secret, from, query.instance, hour - 1);
    const name = `${from.address} ${from.port}`;

    // In front of the limits: the number of leases bounds acknowledgements.
    if (query.acknowledges && isProved && this.#acknowledge(name, query.number)) return;
    if (!this.#isWithinLimits(from.address) || query.acknowledges) return;

    const answer = { kind: ANSWER, keyId: query.keyId, nonce: query.nonce, port: query.port };
    if (this.#queries > MAX_QUERIES / 2) answer.minDelayMs = 1000;
    if (query.version !== 1) this.#send({ ...answer, state: OTHER_VERSION }, from);
    else if (query.port !== this.port) this.#send({ ...answer, state: NO_SUCH_PORT }, from);
    else {
      const leaseS = isProved ? this.#lease(name, query, from) : 0;
      this.#send({ ...answer, state: this.#state, leaseS, cookie, load: this.load() }, from);
    }
  }

  /** Grants, renews or ends a lease. Returns the granted seconds. */
  #lease(name, { leaseS, number: roundTripUs, nonce, keyId }, to) {
    const lease = this.#leases.get(name) ?? { to, awaited: 0, sent: 0 };
    if (leaseS === 0) this.#end(name, lease);
    if (leaseS === 0 || (!this.#leases.has(name) && this.#leases.size >= MAX_LEASES)) return 0;
    const granted = Math.min(leaseS, MAX_LEASE_S);
    const waitMs = Math.max(MIN_WAIT_MS, 2 * Math.min(roundTripUs / 1000, MAX_ROUND_TRIP_MS));
    this.#leases.set(name, Object.assign(lease, { nonce, keyId, waitMs, until: performance.now() + granted * 1000 }));
    return granted;
  }

  /** Changes the state, and sends a notice to each client with a lease. */
  change(state) {
    if (state === this.#state) return;
    this.#state = state;
    this.#number += 1;
    for (const lease of this.#leases.values()) {
      this.#settle(lease);
      Object.assign(lease, { awaited: this.#number, sent: 0 });
      this.#notify(lease);
    }
  }

  #notify(lease) {
    this.#due.add(lease);
    this.#turn ??= setTimeout(() => this.#sendDue(), 1);
  }

  /** Sends a millisecond's notices. A burst of all would overflow buffers on the way. */
  #sendDue() {
    let left = NOTICES_PER_MS;
    for (const lease of this.#due) {
      if (left-- === 0) break;
      this.#due.delete(lease);
      if (lease.until <= performance.now()) continue;
      // After a rotation the key of the last query may be unknown here.
      const keyId = this.keys.has(lease.keyId) ? lease.keyId : (this.keys.keys().next().value ?? 0);
      this.#send({ kind: NOTICE, keyId, state: this.#state, nonce: lease.nonce, port: this.port }, lease.to);
      if (lease.sent < MAX_RESENDS) lease.timer = setTimeout(() => this.#notify(lease), lease.waitMs * 2 ** lease.sent);
      lease.sent += 1;
    }
    this.#turn = this.#due.size > 0 ? setTimeout(() => this.#sendDue(), 1) : undefined;
  }

  /** Whether a notice of this number waits for the acknowledgement. */
  #acknowledge(name, number) {
    const lease = this.#leases.get(name);
    if (lease?.awaited !== number) return false;
    this.#settle(lease);
    return true;
  }

  #settle(lease) {
    lease.awaited = 0;
    clearTimeout(lease.timer);
    this.#due.delete(lease);
  }

  #end(name, lease) {
    this.#settle(lease);
    this.#leases.delete(name);
  }

  #isWithinLimits(address) {
    // An IPv6 source is a /64. The first 8 bytes are 0 for all IPv4 addresses.
    const bytes = addressBytes(address);
    const source = bytes.readBigUInt64BE(0) || bytes.readBigUInt64BE(8);
    const queries = this.#queriesOf.get(source) ?? 0;
    if (queries >= MAX_QUERIES_PER_SOURCE || this.#queries >= MAX_QUERIES) {
      this.#limited += 1;
      return false;
    }
    this.#queriesOf.set(source, queries + 1);
    this.#queries += 1;
    return true;
  }

  #endSecond() {
    this.#queries = 0;
    this.#queriesOf.clear();
    for (const [name, lease] of this.#leases) if (lease.until <= performance.now()) this.#end(name, lease);
  }

  #send(fields, to) {
    const datagram = { ...fields, instance: this.#instance, number: this.#number };
    this.send(encode(datagram, this.keys.get(fields.keyId)), to);
  }
}

// ---- Service ----

function fail(problem) {
  console.error(`probe-responder.mjs: ${problem}`);
  process.exit(2);
}

/** The load of an HTTP server, for answers. */
function measure(server) {
  const load = { inFlight: 0 };
  let [requests, errors, loop] = [0, 0, performance.eventLoopUtilization()];
  server.prependListener('request', (_, response) => {
    load.inFlight += 1;
    response.once('close', () => {
      load.inFlight -= 1;
      requests += 1;
      if (response.statusCode >= 500) errors += 1;
    });
  });
  setInterval(() => {
    // Its event loop limits a service in Node.js, even where other CPUs are idle.
    load.utilization = performance.eventLoopUtilization(loop).utilization;
    [load.requestsPerS, load.errorsPerS] = [requests, errors];
    [requests, errors, loop] = [0, 0, performance.eventLoopUtilization()];
  }, 1000);
  return () => load;
}

function main(listen, keyFile) {
  const [, ipv6, ipv4, digits] = /^(?:\[([^\]]+)\]|([\d.]+)):(\d+)$/.exec(listen) ?? [];
  const [address, port] = [ipv6 ?? ipv4 ?? '', Number(digits)];
  if (!isIP(address) || port < 1 || port > 65_535) fail('usage: probe-responder.mjs ADDRESS:PORT [KEY_FILE]');
  const loopback = new BlockList();
  loopback.addSubnet('127.0.0.0', 8);
  loopback.addAddress('::1', 'ipv6');
  if (!keyFile && !loopback.check(address, `ipv${isIP(address)}`)) {
    fail(`probes without a key at ${address}; help: name a file of keys, or an address of loopback`);
  }
  const read = (onProblem) => {
    try { return keyFile ? readKeys(readFileSync(keyFile, 'utf8')) : new Map(); }
    catch (error) { return onProblem(`${keyFile}: ${error.message}`); }
  };

  const server = createServer((request, response) => {
    const isHealthy = responder.state === HEALTHY;
    if (request.url === '/healthz') response.writeHead(isHealthy ? 200 : 503).end(isHealthy ? 'ready\n' : 'not ready\n');
    else if (request.url === '/probes') response.end(`${JSON.stringify(responder.counts)}\n`);
    else response.end('hello\n');
  });
  const socket = createSocket(`udp${isIP(address)}`);
  // A datagram that cannot be sent is lost, as any other may be.
  const send = (bytes, to) => socket.send(bytes, to.port, to.address, () => {});
  const responder = new Responder({ port, keys: read(fail), send, load: measure(server) });
  socket.on('message', (bytes, from) => responder.receive(bytes, from));
  for (const each of [server, socket]) each.on('error', (error) => fail(error.message));

  // UDP before TCP: a client probes as soon as it has connected.
  socket.bind(port, address, () => {
    if (['0.0.0.0', '::'].includes(socket.address().address)) fail('answers need a sender; help: name one address');
    server.listen(port, address, () => responder.change(HEALTHY));
  });

  process.on('SIGHUP', () => { responder.keys = read((problem) => (console.error(problem), responder.keys)); });
  const stop = () => {
    if (responder.state === LAME_DUCK) process.exit(1); // The second signal.
    responder.change(LAME_DUCK);
    // Clients hear of it first, then the port refuses, then the last requests end.
    setTimeout(() => server.close(() => process.exit(0)), ANNOUNCE_MS);
    setTimeout(() => process.exit(0), DRAIN_MS);
  };
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, stop);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) main(...process.argv.slice(2));
