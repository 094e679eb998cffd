// A server that speaks as the admin API does for the live page, with the figures of a scene.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { explainedBy, fleetEvent, switched } from "./fleet.js";
import { HOSTILE_NAMES, explanations, fresh, history, proxyEvent, quotaEvent } from "./scenes.js";

const ASSETS = new URL("../../../crates/plimsoll-admin/src/page/", import.meta.url);
const TYPES = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

/** The policy that the admin server sends. */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export class MockServer {
  /** Streams that are open now. */
  streams = new Set();
  /** Commands that arrived: method and path. */
  commands = [];
  /** Streams that were opened, with their queries. */
  opened = [];
  /** Longest history of a stream; a restarted server has none. */
  remembers = 600;
  isSilent = false;
  /** Of the scene of several proxies: whether one does not answer. */
  isLost = true;
  /** The splits of routes. */
  splits = [];
  now = () => Date.now() / 1_000;

  #scene;
  #into = () => 591;
  #state = fresh();
  #process = {};
  #server = null;
  #timer = null;
  #port = 0;

  constructor(scene = "fine") {
    this.#scene = scene;
  }

  async start() {
    this.#server = createServer((request, response) =>
      this.#answer(request, response).catch((problem) => response.writeHead(500).end(String(problem))),
    );
    await new Promise((resolve) => this.#server.listen(this.#port, "127.0.0.1", resolve));
    this.#port = this.#server.address().port;
    this.#timer = setInterval(() => this.tick(), 1_000);
    return this;
  }

  get url() {
    return `http://127.0.0.1:${this.#port}/`;
  }

  async stop() {
    clearInterval(this.#timer);
    for (const { response } of this.streams) response.destroy();
    this.streams.clear();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /**
   * Ends all connections, and begins anew at the same address, as a process that knows nothing of
   * before.
   */
  async restart(pauseMs = 0) {
    await this.stop();
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    const began = this.now();
    this.remembers = 3;
    this.#process = {
      get uptime_s() {
        return Date.now() / 1_000 - began;
      },
    };
    await this.start();
  }

  /** Another scene from now on, for all streams. */
  play(scene, into = () => 591) {
    this.#scene = scene;
    this.#into = into;
  }

  event(at = this.now(), { cluster, ago = 0 } = {}) {
    const process = "uptime_s" in this.#process ? { uptime_s: this.#process.uptime_s } : {};
    if (this.#scene === "quota") return quotaEvent({ at, process, into: this.#into(at) - ago });
    if (cluster === "search")
      return {
        ...proxyEvent({ scene: "fine", at, name: "search", process, into: 591 - ago }),
        verdict: this.event(at).verdict,
        clusters: this.event(at).clusters,
      };
    const options = { at, process, state: this.#state, into: this.#into(at) - ago, isSample: ago > 0 };
    if (this.#scene === "fleet") return fleetEvent({ ...options, lost: this.isLost });
    return proxyEvent({ ...options, scene: this.#scene });
  }

  /** Sends one live event to every stream. */
  tick() {
    if (this.isSilent) return;
    for (const { response, cluster } of this.streams) send(response, "live", this.event(this.now(), { cluster }));
  }

  async #answer(request, response) {
    const url = new URL(request.url, this.url);
    const { pathname: path, searchParams } = url;
    response.setHeader("content-security-policy", POLICY);
    response.setHeader("cache-control", "no-store");
    if (request.method === "POST") return this.#command(path, request, response);
    if (path === "/api/v1/live/stream") return this.#stream(searchParams, response);
    if (path === "/api/v1/splits") {
      response.setHeader("content-type", "application/json");
      return response.end(JSON.stringify({ splits: this.splits, mirrors: [] }));
    }
    if (path === "/api/v1/live") {
      const cluster = searchParams.get("cluster") ?? undefined;
      return this.#knows(cluster)
        ? json(response, 200, this.event(this.now(), { cluster }))
        : noCluster(response, cluster);
    }
    if (path.startsWith("/api/v1/explain")) {
      const filters = Object.fromEntries(searchParams);
      const id = path.split("/")[4];
      const names = this.#scene === "hostile" ? HOSTILE_NAMES : undefined;
      const answer = this.#explained({ at: this.now(), filters: id ? { ...filters, id, last: 1 } : filters, names });
      return json(response, 200, this.#scene === "fine" && !id ? { ...answer, requests: [] } : answer);
    }
    return this.#asset(path, response);
  }

  #explained(query) {
    const answer = explanations(query);
    return this.#scene === "fleet" ? explainedBy(answer) : answer;
  }

  #knows(cluster) {
    return cluster === undefined || this.event().clusters?.some(({ name }) => name === cluster);
  }

  #stream(query, response) {
    const cluster = query.get("cluster") ?? undefined;
    this.opened.push(query.toString());
    if (!this.#knows(cluster)) return noCluster(response, cluster);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("retry: 1000\n\n");
    const at = this.now();
    const eventAt = (then) => this.event(then, { cluster, ago: Math.floor(at) - then });
    send(response, "history", history({ eventAt, at, seconds: this.remembers }));
    if (!this.isSilent) send(response, "live", this.event(at, { cluster }));
    const stream = { response, cluster };
    this.streams.add(stream);
    response.on("close", () => this.streams.delete(stream));
  }

  #command(path, request, response) {
    this.commands.push({ path, site: request.headers["sec-fetch-site"] });
    const found = /^\/api\/v1\/clusters\/([^/]+)\/backends\/([^/]+)\/(drain|undrain)$/.exec(path);
    if (!found) return json(response, 404, { error: "there is no page", help: "GET / lists all pages" });
    const [cluster, address, verb] = found.slice(1).map(decodeURIComponent);
    if (verb === "drain") this.#state.drained.add(address);
    else this.#state.drained.delete(address);
    this.#state.changes.unshift({
      at: this.now(),
      kind: "backend",
      cluster,
      subject: address,
      text: verb === "drain" ? "lame-duck: drained" : "healthy: undrained",
    });
    if (this.#scene === "fleet") return json(response, 200, switched(address, verb, this.isLost));
    return json(response, 200, { address, state: verb === "drain" ? "lame-duck" : "connecting", reason: `${verb}ed` });
  }

  async #asset(path, response) {
    const name = path === "/" ? "index.html" : path.slice(1);
    const type = TYPES[name.split(".").at(-1)];
    if (!type || name.includes(".."))
      return json(response, 404, { error: `there is no page "${path}"`, help: "GET / lists all pages" });
    const body = await readFile(fileURLToPath(new URL(name, ASSETS)));
    response.writeHead(200, { "content-type": type }).end(body);
  }
}

function json(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}

function noCluster(response, name) {
  json(response, 404, { error: `there is no cluster "${name}"`, help: "use one of: web, search" });
}

function send(response, event, value) {
  response.write(`event: ${event}\ndata: ${JSON.stringify(value)}\n\n`);
}
