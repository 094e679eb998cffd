// Checks the codec of examples/probe-responder.mjs against tests/probe-vectors.json.
//
//     node --test tests/probe-vectors.mjs
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { cookieOf, decodeQuery, encode } from '../examples/probe-responder.mjs';

const vectors = JSON.parse(readFileSync(new URL('./probe-vectors.json', import.meta.url)));
const KINDS = { query: 1, answer: 2, notice: 3 };
const STATES = { starting: 1, healthy: 2, 'lame-duck': 3, 'no-such-port': 4, 'other-version': 255 };
const hex = (text) => Buffer.from(text, 'hex');
const big = (text) => BigInt(`0x${text}`);

/** The bytes that sign; undefined without a key. */
function keyOf({ id, secret, derived }, client) {
  if (id === 0) return undefined;
  return derived ? createHmac('sha256', hex(secret)).update(hex(client)).digest() : hex(secret);
}

function keysOf({ key, client }) {
  return new Map(key.id === 0 ? [] : [[key.id, keyOf(key, client)]]);
}

function fieldsOf(vector) {
  const { load } = vector;
  return {
    kind: KINDS[vector.kind],
    acknowledges: Number.isInteger(vector.acknowledges),
    keyId: vector.key.id,
    state: STATES[vector.state] ?? 0,
    nonce: big(vector.nonce),
    instance: big(vector.instance),
    port: vector.port,
    leaseS: vector.lease_s ?? 0,
    number: vector.seq ?? vector.acknowledges ?? vector.round_trip_us,
    cookie: big(vector.cookie ?? '0'),
    minDelayMs: vector.min_delay_ms,
    load: load && {
      inFlight: load.in_flight,
      latencyUs: load.latency_us,
      utilization: load.utilization,
      requestsPerS: load.qps,
      errorsPerS: load.eps,
    },
  };
}

test('valid vectors are written byte for byte', () => {
  assert.ok(vectors.valid.length >= 17);
  for (const vector of vectors.valid) {
    const [written, expected] = [encode(fieldsOf(vector), keyOf(vector.key, vector.client)), hex(vector.bytes)];
    // The MAC of a longer one covers fields of later versions.
    const compared = expected.length === 80 ? 80 : 64;
    assert.deepEqual(written.subarray(0, compared), expected.subarray(0, compared), vector.name);
  }
});

test('valid queries are read, and nothing else is', () => {
  const queries = vectors.valid.filter((vector) => vector.kind === 'query');
  assert.ok(queries.length >= 8);
  for (const vector of vectors.valid) {
    const read = decodeQuery(hex(vector.bytes), keysOf(vector));
    const { kind, state, minDelayMs, load, ...expected } = fieldsOf(vector);
    assert.deepEqual(read, queries.includes(vector) ? { version: 1, ...expected } : undefined, vector.name);
  }
});

test('invalid vectors are dropped', () => {
  assert.ok(vectors.invalid.length >= 40);
  for (const vector of vectors.invalid) {
    const isQuery = vector.name === 'query to a client'; // Only a client drops it.
    assert.equal(decodeQuery(hex(vector.bytes), keysOf(vector)) !== undefined, isQuery, vector.name);
  }
});

test('query of another version gives the fields of its answer', () => {
  const vector = vectors.other_version;
  const read = decodeQuery(hex(vector.bytes), keysOf(vector));
  const [nonce, instance] = [big(vector.nonce), big(vector.instance)];
  assert.deepEqual(read, { version: 2, keyId: 7, port: vector.port, nonce, instance });
});

test('cookies are those of the vectors', () => {
  assert.ok(vectors.cookies.length >= 3);
  for (const { secret, address, port, instance, hour, cookie } of vectors.cookies) {
    assert.equal(cookieOf(hex(secret), { address, port }, big(instance), hour), big(cookie), address);
  }
  const [{ secret, port, instance, hour, cookie }] = vectors.cookies;
  const mapped = { address: '::ffff:192.0.2.7', port };
  assert.equal(cookieOf(hex(secret), mapped, big(instance), hour), big(cookie), 'a socket for both families');
});
