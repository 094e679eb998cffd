// Figures of made-up services, one scene each: for the tests, and for the pictures of the docs. A
// scene is a pure function of time, so that every run draws the same.

export const CRITICALITIES = ["critical-plus", "critical", "sheddable-plus", "sheddable"];
const REQUESTS_A_CPU = 100;

/** A number in [0, 1) that looks like chance, from two integers (SplitMix32). */
export function chance(seed, place = 0) {
  let mixed = (seed * 0x9e3779b9 + place * 0x85ebca6b) | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
  return ((mixed ^ (mixed >>> 15)) >>> 0) / 4_294_967_296;
}

const ripple = (second, place) => 1 + 0.05 * Math.sin(second / 37 + place) + 0.06 * (chance(second, place) - 0.5);
const rise = (age, since, over) => Math.min(1, Math.max(0, (age - since) / over));
const zip = (names, values) => Object.fromEntries(names.map((name, place) => [name, values[place]]));

/** Admits the most critical first, up to the capacity: `[admitted, shed]` by criticality. */
function admit(offered, capacity) {
  let left = capacity;
  const admitted = offered.map((cpus) => {
    const part = Math.max(0, Math.min(cpus, left));
    left -= part;
    return part;
  });
  return [admitted, offered.map((cpus, row) => cpus - admitted[row])];
}

/**
 * Offered CPUs by criticality at a second, and the rest of the settings of each scene of a proxy.
 */
const SCENES = {
  fine: {
    verdict: "fine",
    meaning: "no requests are shed",
    offered: (second) => [0.9, 2.4, 0.8, 0.6].map((cpus, row) => cpus * ripple(second, row)),
  },
  "as-intended": {
    verdict: "as-intended",
    meaning: "working as intended: only requests that can wait are shed, or a customer is at its limit",
    since: 1_500,
    offered: (second, into) =>
      [1, 3.6, 1.4, 1.2 + 2.6 * rise(into, 60, 90)].map((cpus, row) => cpus * ripple(second, row)),
  },
  overload: {
    verdict: "users-affected",
    meaning: "users are affected: critical requests are lost; 11.40 CPUs would have been enough, there are 8.00",
    since: 131,
    enough: 11.4,
    offered: (second, into) => {
      const peak = rise(into, 460, 12);
      return [0.9 + 0.3 * peak, 2.4 + 5.6 * peak, 0.8 + 0.9 * peak, 0.9 + 2 * rise(into, 440, 30)].map(
        (cpus, row) => cpus * ripple(second, row),
      );
    },
  },
  "capacity-short": {
    verdict: "capacity-short",
    meaning: "capacity has been short for 14.2 h; 9.62 CPUs would have been enough, there are 8.00",
    since: 51_120,
    enough: 9.62,
    offered: (second) => [1.1, 4.6, 1.9, 2.1].map((cpus, row) => cpus * ripple(second, row)),
  },
};

const CAPACITY = 8;

function customersOf(demand, second, isLimited) {
  const offered = demand.reduce((sum, row) => sum + row.offered_cpus, 0);
  const shed = demand.reduce((sum, row) => sum + row.shed_cpus, 0);
  const shares = [
    ["acme", 0.46],
    ["initech", 0.2],
    ["umbrella", 0.14],
    ["globex", 0.11],
    ["hooli", 0.06],
    ["stark", 0.03],
  ];
  return shares.map(([name, share], place) => {
    const asks = offered * share * ripple(second, place + 40);
    const loss = place === 0 ? shed * 0.78 : shed * share * 0.4;
    const used = Math.max(0, asks - loss);
    const lost = Math.max(0, asks - used);
    const reasons =
      lost < 0.01
        ? {}
        : place === 0 && isLimited
          ? { quota: 0.35 * lost * REQUESTS_A_CPU, overloaded: 0.65 * lost * REQUESTS_A_CPU }
          : { overloaded: lost * REQUESTS_A_CPU };
    return {
      name,
      offered_qps: asks * REQUESTS_A_CPU,
      offered_cpus: asks,
      used_cpus: used,
      shed_qps: lost * REQUESTS_A_CPU,
      shed_cpus: lost,
      shed: reasons,
      soft_limit_cpus: [2, 2, 1, null, null, null][place],
      hard_limit_cpus: place === 0 && isLimited ? 4 : null,
      fleet_limit_cpus: place === 0 && isLimited ? 20 : null,
      fleet_rate_cpus: place === 0 && isLimited ? 3.2 : null,
      fleet_used_cpus: place === 0 && isLimited ? 19.8 : null,
      fleet_demand_cpus: place === 0 && isLimited ? 40.4 : null,
      fleet_cut: place === 0 && isLimited ? "sheddable" : null,
      fleet_cut_admitted: place === 0 && isLimited ? 0.4 : null,
    };
  });
}

/** Demand of one second as the rows of the API. */
function demandAt(scene, second, into) {
  const offered = scene.offered(second, into);
  const [admitted, shed] = admit(offered, CAPACITY * (0.985 + 0.02 * chance(second, 9)));
  return CRITICALITIES.map((criticality, row) => {
    const lost = shed[row] < 0.005 ? 0 : shed[row];
    const quota = scene.since && row === 3 ? 0.3 * lost : 0;
    const reasons = [
      ["overloaded", lost - quota],
      ["quota", quota],
    ].filter(([, cpus]) => cpus > 0);
    return {
      criticality,
      offered_qps: offered[row] * REQUESTS_A_CPU,
      offered_cpus: offered[row],
      admitted_qps: (offered[row] - lost) * REQUESTS_A_CPU,
      admitted_cpus: offered[row] - lost,
      shed_qps: lost * REQUESTS_A_CPU,
      shed_cpus: lost,
      shed: Object.fromEntries(reasons.map(([reason, cpus]) => [reason, { qps: cpus * REQUESTS_A_CPU, cpus }])),
    };
  });
}

function backendsOf({ total, unhealthy, second, base, measure = "utilization", drained }) {
  const all = Array.from({ length: total }, (_, place) => {
    const [state, reason] = unhealthy[place] ?? ["healthy", "check-passed"];
    const isDrained = drained.has(addressOf(place));
    const isHealthy = state === "healthy" && !isDrained;
    const skew = 0.72 + 0.56 * chance(7, place) ** 2 + (place % 13 === 0 ? 0.18 : 0);
    const load = Math.min(0.99, base * skew * (0.97 + 0.06 * chance(second, place)));
    return {
      address: addressOf(place),
      locality: total > 60 ? `zone-${"abc"[place % 3]}` : null,
      state: isDrained ? "lame-duck" : state,
      reason: isDrained ? "drained" : reason,
      since_s: 3_600,
      load: isHealthy ? (measure === "utilization" ? load : Math.round(load * 14)) : null,
      utilization: isHealthy && measure === "utilization" ? load : null,
      in_flight: isHealthy ? Math.round(load * 14) : 0,
      qps: isHealthy ? load * 90 : 0,
      latency_ms: isHealthy ? 1.6 + 5 * load ** 3 : null,
      error_share: isHealthy ? 0.002 * load : null,
    };
  });
  const healthy = all.filter(({ state }) => state === "healthy").sort((one, other) => other.load - one.load);
  const bin = measure === "utilization" ? 0.05 : 1;
  const histogram = new Array(20).fill(0);
  for (const { load } of healthy) histogram[Math.min(19, Math.floor(load / bin))] += 1;
  const max = healthy[0]?.load ?? null;
  const mean = healthy.length > 0 ? healthy.reduce((sum, { load }) => sum + load, 0) / healthy.length : null;
  const isComplete = total <= 60;
  const sick = all.filter(({ state }) => state !== "healthy");
  const states = { connecting: 0, healthy: 0, "lame-duck": 0, refusing: 0, ejected: 0 };
  for (const { state } of all) states[state] += 1;
  return {
    total,
    known: total,
    by_state: states,
    measure,
    max,
    mean,
    max_over_mean: mean ? max / mean : null,
    waste: mean ? healthy.length * (1 - mean / max) : null,
    histogram,
    bin,
    is_complete: isComplete,
    left_off: isComplete ? 0 : Math.max(0, sick.length - 20),
    rows: isComplete ? all : [...healthy.slice(0, 20), ...sick.slice(0, 20)],
  };
}

const addressOf = (place) => `10.0.${Math.floor(place / 250)}.${(place % 250) + 2}:8080`;

function trafficOf(second, requests, isTroubled, isGateless) {
  const throttled = isTroubled ? 14 * ripple(second, 60) : 0;
  return {
    requests_qps: requests,
    failures_qps: isTroubled ? 9.2 * ripple(second, 61) : 0.6 * ripple(second, 61),
    throttled: isTroubled ? { sheddable: throttled, "sheddable-plus": 2.1 } : {},
    held: isTroubled ? { sheddable: 0.42 } : {},
    retries_qps: isTroubled ? 38 * ripple(second, 62) : 2.8 * ripple(second, 62),
    retries_denied: isTroubled ? { budget: 21.5 } : {},
    retry_budget_used: isTroubled ? 0.97 : 0.08,
    hedges_qps: 4.1 * ripple(second, 63),
    hedges_won_qps: 1.7,
    unserved: isGateless ? { saturated: 3.2, "no-backend": 0 } : { saturated: 0, "no-backend": 0 },
    waiting: isTroubled ? 17 : 0,
    in_flight: Math.round(requests * 0.12),
    p50_ms: isTroubled ? 6.4 : 2.1,
    p99_ms: (isTroubled ? 71 : 12) * ripple(second, 64),
  };
}

/** The sample of one second, under the names of the history. */
function sampleOf(at, { cluster, batch }, verdict) {
  const { demand, gate, backends, traffic } = cluster;
  const sample = { at };
  for (const row of demand) {
    for (const name of ["offered", "admitted"]) {
      if (gate) sample[`${name}_cpus.${row.criticality}`] = row[`${name}_cpus`];
      sample[`${name}_qps.${row.criticality}`] = row[`${name}_qps`];
    }
  }
  const sum = (parts) => Object.values(parts).reduce((total, value) => total + value, 0);
  return {
    ...sample,
    ...(gate ? { capacity_cpus: gate.capacity_cpus, used_cpus: gate.used_cpus, verdict } : {}),
    load_max: backends.max,
    load_mean: backends.mean,
    throttled_qps: sum(traffic.throttled),
    retries_qps: traffic.retries_qps,
    hedges_qps: traffic.hedges_qps,
    batch_queued: batch[0].queued,
    batch_active: batch[0].active,
    requests_qps: traffic.requests_qps,
    failures_qps: traffic.failures_qps,
    backends_healthy: backends.by_state.healthy,
    backends_total: backends.total,
    in_flight: traffic.in_flight,
    waiting: traffic.waiting,
    p50_ms: traffic.p50_ms,
    p99_ms: traffic.p99_ms,
  };
}

const RANKS = ["fine", "as-intended", "capacity-short", "users-affected"];

const HOSTILE_NAMES = [
  '<img src=x onerror="window.wasHit=1">',
  "\u202egnitset \u2067right to left\u2069 مرحبا بالعالم",
  `long-${"x".repeat(400)}`,
  "</td></tr></table><script>window.wasHit=1</script>",
  "javascript:window.wasHit=1//&reason=quota#",
  "line\nbreak\u0000\ttab",
];

/** State that commands and tests change. */
export const fresh = () => ({ drained: new Set(), changes: [] });

/**
 * The live event of a proxy at a Unix time; `into` is seconds into the drama of the scene, 591 at
 * its steady end.
 */
export function proxyEvent({
  scene: name,
  at,
  into = 591,
  name: clusterName,
  process,
  state = fresh(),
  isSample = false,
}) {
  const isGateless = name === "no-gate";
  const isHuge = name === "huge";
  const scene = SCENES[name] ?? { ...SCENES[isHuge ? "capacity-short" : name === "hostile" ? "overload" : "fine"] };
  const second = Math.floor(at);
  const isSettled = into > 470 || !scene.since || scene.since > 600;
  const verdict = isSettled ? scene.verdict : "fine";
  const demand = demandAt(scene, second, into);
  const total = demand.reduce((sum, row) => sum + row.offered_qps, 0);
  const isShedding = demand.some((row) => row.shed_qps > 0);
  const isTroubled = verdict === "users-affected" && isShedding;
  const used = demand.reduce((sum, row) => sum + row.admitted_cpus, 0);
  const isLimited = name !== "fine";
  const customers = isGateless ? [] : customersOf(demand, second, isLimited);
  if (name === "hostile") customers.forEach((customer, place) => (customer.name = HOSTILE_NAMES[place]));
  const gate = isGateless
    ? null
    : {
        verdict,
        meaning: verdict === "fine" ? "no requests are shed" : scene.meaning,
        verdict_for_s: verdict === "fine" ? 86_000 : scene.since - 591 + into,
        throttled_for_s: verdict === "fine" ? null : scene.since,
        dry_run: false,
        capacity_cpus: CAPACITY,
        used_cpus: used,
        enough_cpus: verdict === "fine" ? null : (scene.enough ?? null),
        binding_signal: isShedding ? "cpu" : null,
        signals: { cpu: isShedding ? 1.31 : used / CAPACITY, memory: 0.41 },
      };
  const unhealthy = isHuge
    ? Object.fromEntries(Array.from({ length: 57 }, (_, place) => [place * 171, ["ejected", "success-rate"]]))
    : name === "fine"
      ? {}
      : { 17: ["ejected", "consecutive-failures"], 31: ["lame-duck", "reported"] };
  const backends = backendsOf({
    // A sample has only their sums.
    total: isHuge && !isSample ? 10_000 : isGateless ? 12 : 40,
    unhealthy: isGateless ? { 7: ["refusing", "connect-failed"] } : unhealthy,
    second,
    base: isHuge ? 0.62 : name === "fine" || (!isSettled && !isShedding) ? 0.46 : 0.84,
    measure: isGateless ? "in-flight" : "utilization",
    drained: state.drained,
  });
  const rows = isGateless
    ? demand.map((row) => ({
        ...row,
        offered_cpus: null,
        admitted_cpus: null,
        shed_cpus: null,
        admitted_qps: row.offered_qps,
        shed_qps: 0,
        shed: {},
      }))
    : demand;
  const cluster = {
    name: clusterName ?? (isGateless ? "static" : "web"),
    policy: "weighted",
    gate,
    demand: rows,
    backends,
    customers,
    traffic: trafficOf(second, total, isTroubled, isGateless),
  };
  const batch = [
    {
      listener: "batch",
      queued: isShedding ? 4_210 + (second % 40) : 120,
      active: isShedding ? 1 : 8,
      credit: isShedding ? 1.2 : 8.5,
      max_active: 64,
      utilization: backends.mean,
    },
  ];
  const story =
    isSettled && scene.since
      ? changesOf(at, scene, name)
      : [
          {
            at: at - 7_260,
            kind: "reload",
            subject: "plimsoll.toml",
            text: "accepted: 1 cluster changed",
            cluster: null,
          },
        ];
  const others = [
    { name: "search", verdict: isGateless ? null : "fine", healthy: 12, backends: 12, requests_qps: 240 },
  ];
  const event = {
    at,
    process: { kind: "proxy", name: "edge-3", version: "0.1.0", state: "ready", uptime_s: 259_200, ...process },
    verdict: gate ? { cluster: cluster.name, verdict, meaning: gate.meaning, for_s: gate.verdict_for_s } : null,
    clusters: [
      {
        name: cluster.name,
        verdict: gate ? verdict : null,
        healthy: backends.by_state.healthy,
        backends: backends.total,
        requests_qps: total,
      },
      ...others,
    ],
    clusters_left_off: 0,
    cluster,
    batch,
    changes: [...state.changes, ...story].slice(0, 20),
  };
  event.sample = sampleOf(at, event, RANKS.indexOf(verdict));
  return event;
}

function changesOf(at, scene, name) {
  const began = Math.floor(at) - Math.min(scene.since, 600);
  const list = [
    { at: began, kind: "verdict", cluster: "web", subject: "web", text: `${scene.verdict}, was fine` },
    { at: began - 24, kind: "backend", cluster: "web", subject: addressOf(17), text: "ejected: consecutive-failures" },
    { at: began - 260, kind: "backend", cluster: "web", subject: addressOf(31), text: "lame-duck: reported" },
    { at: began - 410, kind: "override", cluster: "web", subject: addressOf(4), text: "weight 2, for 1 h" },
    {
      at: began - 4_005,
      kind: "reload",
      cluster: null,
      subject: "plimsoll.toml",
      text: "accepted: clusters.web.policy changed",
    },
    {
      at: began - 7_260,
      kind: "process",
      cluster: null,
      subject: "edge-3",
      text: "took over the listeners of process 4711",
    },
  ];
  return name === "hostile"
    ? [{ at, kind: "backend", cluster: HOSTILE_NAMES[0], subject: HOSTILE_NAMES[3], text: HOSTILE_NAMES[2] }, ...list]
    : list;
}

/** The live event of the quota server. */
export function quotaEvent({ at, process, into = 591, unit = "cpus" }) {
  const second = Math.floor(at);
  const wave = (place) => ripple(second, place);
  const grown = rise(into, 200, 40);
  const named = [
    ["acme", "customer", 20, 5, 12 + 28 * grown, "sheddable", 10],
    ["free", "group", 10, null, 9 + 17 * grown, "sheddable-plus", 12],
    ["initech", "customer", 12, 6, 9.1, null, 12],
    ["umbrella", "customer", 4, null, 2.2, null, 7],
    ["globex", "customer", 8, 2, 1.4, null, 3],
  ];
  const customers = named.map(([name, kind, limit, soft, asks, cut, tasks], place) => {
    const demand = asks * wave(place);
    const used = Math.min(demand, limit * (0.985 + 0.02 * chance(second, place)));
    const isCut = cut !== null && demand > limit;
    return {
      name,
      kind,
      limit,
      soft_limit: soft,
      demand,
      used,
      granted: Math.min(limit, demand * 1.05),
      cut: isCut ? cut : null,
      cut_admitted: isCut ? 0.4 : null,
      tasks,
      is_dry_run: false,
    };
  });
  const hasCut = ({ cut }) => cut !== null;
  const sum = (field) => customers.reduce((total, customer) => total + customer[field], 0);
  const began = Math.floor(at) - into;
  return {
    at,
    process: { kind: "quota", name: "quota-1", version: "0.1.0", state: "ready", uptime_s: 86_400 * 9, ...process },
    services: [
      { name: "search", unit, tasks: 12, customers_cut: customers.filter(hasCut).length },
      { name: "mail", unit: "requests", tasks: 40, customers_cut: 0 },
    ],
    service: {
      name: "search",
      unit,
      tasks: 12,
      tasks_overloaded: 0,
      is_unsure: false,
      is_dry_run: false,
      customers_limited: customers.length,
      customers_cut: customers.filter(hasCut).length,
      customers,
      customers_left_off: 0,
    },
    changes: [
      { at: began + 215, kind: "cut", service: "search", subject: "acme", text: "cut: demand 22.1, limit 20 CPUs" },
      { at: began + 40, kind: "override", service: "search", subject: "umbrella", text: "limit 4 CPUs for 1h" },
      { at: began - 3_600, kind: "reload", service: "search", subject: "limits of the file", text: "in force" },
    ],
    sample: {
      at,
      demand: sum("demand"),
      used: sum("used"),
      limit: sum("limit"),
      customers_cut: customers.filter(hasCut).length,
    },
  };
}

/** Ten minutes before a moment, as the first event of a stream. `seconds` fewer after a restart. */
export function history({ eventAt, at, seconds = 600 }) {
  const newest = Math.floor(at);
  const samples = Array.from({ length: seconds }, (_, place) => eventAt(newest - seconds + 1 + place).sample);
  const names = [...new Set(samples.flatMap(Object.keys))].filter((name) => name !== "at");
  return {
    cluster: "web",
    step_s: 1,
    begin: newest - seconds + 1,
    samples: seconds,
    series: zip(
      names,
      names.map((name) => samples.map((sample) => sample[name] ?? null)),
    ),
  };
}

/** Answers of `/api/v1/explain`. */
export function explanations({ at, filters, names = ["acme", "initech", "acme", "globex"] }) {
  const most = Math.min(Number(filters.last ?? 50), 12);
  const requests = Array.from({ length: most }, (_, place) => {
    const reason = filters.reason ?? (place % 3 === 2 ? "quota" : "overloaded");
    const level = filters.criticality ?? CRITICALITIES[3 - (place % 3)];
    return {
      id: filters.id ?? (0x1f3a9c4e77b2d015n + BigInt(place) * 7919n).toString(16),
      id_is_own: true,
      at: at - place * 0.31,
      ago_s: place * 0.31,
      took_ms: 0.08,
      listener: "public",
      client: `10.0.0.${9 + place}:4711`,
      method: place % 4 === 1 ? "POST" : "GET",
      path: ["/search", "/api/orders/checkout", "/thumbnails/2231/large", "/search"][place % 4],
      route: "/",
      cluster: filters.cluster ?? "web",
      criticality: { level, why: "claimed in x-criticality", malformed_values: 0 },
      customer: filters.customer ?? names[place % names.length],
      gate: {
        decision: reason,
        dry_run: false,
        expected_cost_ms: 2.5,
        pressure: "severe",
        ...(reason === "quota" ? { hard_limit_cpus: 4, customer_used_cpus: 4.02, customer_debt_cpu_s: 0.1 } : {}),
      },
      failed_attempts: [],
      outcome: filters.outcome ?? "refused",
      status: reason === "quota" ? 429 : 503,
      reason,
      cause: null,
      backend: null,
      locality: null,
    };
  });
  return { requests, remembered: [{ outcome: "refused", requests: 1_000, reaches_back_s: 2.1 }] };
}

export { HOSTILE_NAMES };
