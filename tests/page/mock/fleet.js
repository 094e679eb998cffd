// The answer of a page over several proxies: the sum of two, a third one that does not answer, and one
// without the cluster.

import { proxyEvent } from "./scenes.js";

export const ADDRESSES = ["edge-1.example:9900", "edge-2.example:9900", "edge-3.example:9900", "mail-1.example:9900"];
/** Since when the second one does not answer. */
export const LOST_S = 95;
const UNREACHABLE = "tcp connect error: Connection refused (os error 111)";

const add = (one, other) => (one === null || other === null ? (one ?? other) : one + other);

function sums({ demand, gate, backends }) {
  const total = (field) => demand.reduce((sum, row) => add(sum, row[field]), 0);
  return {
    verdict: gate.verdict,
    ...Object.fromEntries(
      ["offered_qps", "admitted_qps", "shed_qps", "offered_cpus", "admitted_cpus", "shed_cpus"].map((field) => [
        field,
        total(field),
      ]),
    ),
    used_cpus: gate.used_cpus,
    capacity_cpus: gate.capacity_cpus,
    healthy: backends.by_state.healthy,
    backends: backends.total,
  };
}

const row = (place, name, load, further = {}) => ({
  address: ADDRESSES[place],
  name,
  answers: true,
  for_s: 5_400,
  problem: null,
  version: "0.1.0",
  state: "ready",
  load,
  ...further,
});

function shed(one, other) {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  const none = { qps: 0, cpus: 0 };
  return Object.fromEntries(
    [...names].map((name) => {
      const [a, b] = [one[name] ?? none, other[name] ?? none];
      return [name, { qps: a.qps + b.qps, cpus: a.cpus + b.cpus }];
    }),
  );
}

/** `lost`: whether the second proxy does not answer. */
export function fleetEvent({ lost = true, process, ...options }) {
  const [calm, event] = ["fine", "overload"].map((scene) => proxyEvent({ ...options, scene }));
  const [one, other] = [sums(calm.cluster), sums(event.cluster)];
  const { cluster } = event;
  cluster.demand = cluster.demand.map((of, place) => {
    const with_ = calm.cluster.demand[place];
    const fields = Object.keys(of).filter((field) => typeof of[field] === "number");
    return {
      ...of,
      ...Object.fromEntries(fields.map((field) => [field, of[field] + with_[field]])),
      shed: shed(of.shed, with_.shed),
    };
  });
  const gate = cluster.gate;
  Object.assign(gate, {
    proxy: "edge-3",
    capacity_cpus: gate.capacity_cpus + calm.cluster.gate.capacity_cpus,
    used_cpus: gate.used_cpus + calm.cluster.gate.used_cpus,
    enough_cpus: gate.enough_cpus === null ? null : gate.enough_cpus + calm.cluster.gate.capacity_cpus,
  });
  for (const backend of cluster.backends.rows)
    backend.seen = { proxies: 2, in_state: backend.state === "ejected" ? 1 : 2 };
  for (const field of Object.keys(event.sample)) {
    const isSum = /^(offered|admitted)_|^(capacity|used)_cpus$|_qps$/.test(field);
    if (isSum) event.sample[field] += calm.sample[field];
  }
  const changes = event.changes.map((change, place) => ({
    ...change,
    proxies: change.kind === "backend" ? ["edge-1", "edge-3"] : [place % 2 === 0 ? "edge-3" : "edge-1"],
  }));
  const break_ = {
    at: options.at - LOST_S,
    kind: "connection",
    cluster: null,
    subject: ADDRESSES[1],
    text: `does not answer: ${UNREACHABLE}`,
  };
  return {
    ...event,
    process: {
      kind: "fleet",
      name: `${lost ? 3 : 4} of 4 proxies`,
      version: "0.1.0",
      state: "ready",
      uptime_s: 5_400,
      ...process,
    },
    verdict: event.verdict && { ...event.verdict, proxy: "edge-3" },
    changes: [...(lost ? [break_] : []), ...changes].sort((a, b) => b.at - a.at).slice(0, 20),
    proxies: [
      row(0, "edge-1", one),
      lost
        ? row(1, "edge-2", null, { answers: false, for_s: LOST_S, problem: UNREACHABLE, version: null, state: null })
        : row(1, "edge-2", one, { version: "0.2.0", state: "draining" }),
      row(2, "edge-3", other),
      row(3, "mail-1", null, { problem: "it has no cluster web" }),
    ],
  };
}

/** The answer to a command: of each proxy. */
export function switched(address, verb, lost = true) {
  const name = (place) => ["edge-1", "edge-2", "edge-3", "mail-1"][place];
  return {
    address,
    proxies: ADDRESSES.map((proxy, place) => {
      const base = { address: proxy, name: name(place) };
      if (place === 1 && lost) return { ...base, is_ok: false, error: UNREACHABLE };
      if (place === 3)
        return { ...base, is_ok: false, error: 'there is no cluster "web"', help: "use one of: mail" };
      return { ...base, is_ok: true, state: verb === "drain" ? "lame-duck" : "connecting" };
    }),
  };
}

/** Requests with their proxies, and the proxy that has not answered. */
export function explainedBy(answer) {
  const requests = answer.requests.map((request, place) => ({ ...request, proxy: place % 2 === 0 ? "edge-3" : "edge-1" }));
  const proxies = ADDRESSES.map((address, place) => ({
    address,
    name: ["edge-1", "edge-2", "edge-3", "mail-1"][place],
    is_ok: place !== 1,
    ...(place === 1 ? { error: UNREACHABLE } : {}),
  }));
  return { ...answer, requests, proxies };
}
