// Requests, throttling, retries, hedges and batch work: a line over ten minutes, the figure of now,
// its parts.

import { attribute, explainLink, find, list, make, text } from "./dom.js";
import { count, milliseconds, number, percent } from "./format.js";
import { CRITICALITIES, explainQuery, reasonOf } from "./words.js";

const body = find("#traffic tbody");
const [WIDTH, HEIGHT] = [120, 24];
/** Samples of a line: ten minutes, or the life of a young process. */
const [MIN_SAMPLES, MAX_SAMPLES] = [60, 600];

/** The path of a line, the newest at the right: the largest of each few samples. */
function line(values) {
  const samples = Math.min(MAX_SAMPLES, Math.max(MIN_SAMPLES, values.length));
  const step = Math.max(1, samples / WIDTH);
  const points = [];
  for (let begin = values.length - samples; begin < values.length; begin += step) {
    const known = values.slice(Math.max(0, begin), Math.max(0, begin + step)).filter((value) => value !== null);
    points.push(known.length === 0 ? null : Math.max(...known));
  }
  const most = Math.max(...points.filter((value) => value !== null), 0) || 1;
  let path = "";
  points.forEach((value, place) => {
    if (value === null) return;
    const [x, y] = [(place * WIDTH) / Math.max(1, points.length - 1), HEIGHT - 1 - (value / most) * (HEIGHT - 6)];
    path += `${path === "" || points[place - 1] === null ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return path;
}

const sum = (parts) => Object.values(parts ?? {}).reduce((total, value) => total + (value ?? 0), 0);
const above = (parts) => Object.entries(parts ?? {}).filter(([, value]) => value > 0);
/** A share of throttled requests below this says nothing: it is what is left of an earlier one. */
const LEAST_HELD = 0.01;

function measures({ traffic, batch, cluster, history }) {
  const reasons = (parts) =>
    above(parts).map(([reason, qps]) => ({ reason, words: `${number(qps)}/s ${reasonOf(reason)}` }));
  const held = CRITICALITIES.filter((criticality) => traffic.held?.[criticality] > LEAST_HELD)
    .map((criticality) => `${criticality} ${percent(traffic.held[criticality])}`);
  const queued = sum(batch.map((each) => each.queued));
  const active = sum(batch.map((each) => each.active));
  const rows = [
    {
      name: "requests",
      series: "requests_qps",
      now: `${number(traffic.requests_qps)}/s`,
      words: `${count(traffic.in_flight)} in flight, ${count(traffic.waiting)} waiting`,
    },
    {
      name: "failures",
      series: "failures_qps",
      now: `${number(traffic.failures_qps)}/s`,
      outcome: "failed",
      words: percent(traffic.failures_qps / traffic.requests_qps),
      isBad: traffic.failures_qps > 0.01 * traffic.requests_qps,
    },
    {
      name: "unserved",
      now: `${number(sum(traffic.unserved))}/s`,
      reasons: reasons(traffic.unserved),
      isBad: sum(traffic.unserved) > 0,
    },
    {
      name: "throttled",
      series: "throttled_qps",
      now: `${number(sum(traffic.throttled))}/s`,
      reason: "throttled",
      words: held.length > 0 ? `not sent now: ${held.join(", ")}` : "",
      isBad: sum(traffic.throttled) > 0,
    },
    {
      name: "retries",
      series: "retries_qps",
      now: `${number(traffic.retries_qps)}/s`,
      outcome: "retried",
      words: retries(traffic),
    },
    {
      name: "hedges",
      series: "hedges_qps",
      now: `${number(traffic.hedges_qps)}/s`,
      words: traffic.hedges_qps > 0 ? `${percent(traffic.hedges_won_qps / traffic.hedges_qps)} answered first` : "",
    },
    {
      name: "latency p99",
      series: "p99_ms",
      now: milliseconds(traffic.p99_ms),
      words: `median ${milliseconds(traffic.p50_ms)}`,
    },
    ...(batch.length > 0
      ? [
          {
            name: "batch queue",
            series: "batch_queued",
            now: count(queued),
            words: `${count(active)} at backends, credit ${number(sum(batch.map((each) => each.credit)))}`,
          },
        ]
      : []),
  ];
  return rows.map((row) => ({ ...row, cluster, values: row.series ? history.of(row.series) : null }));
}

function retries({ retries_denied: denied, retry_budget_used: used }) {
  const words = above(denied).map(([reason, qps]) => `${number(qps)}/s denied: ${reason}`);
  return [(used ?? null) === null ? "" : `${percent(used)} of the budget used`, ...words].filter(Boolean).join(", ");
}

function buildRow({ name, outcome, reason, cluster }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(path);
  const query = outcome || reason ? explainQuery({ outcome, reason, cluster }) : null;
  const now = query ? explainLink(query) : make("span");
  const details = make("span");
  const parts = make("span", { class: "reasons" });
  const element = make(
    "tr",
    {},
    make("th", { scope: "row" }, name),
    make("td", { class: "spark" }, svg),
    make("td", { class: "number" }, now),
    make("td", { class: "details" }, details, parts),
  );
  const update = (row) => {
    if (row.values) attribute(path, "d", line(row.values));
    text(now, row.now);
    // Nothing to explain is no link.
    if (query && row.now !== "0/s") attribute(now, "href", query);
    else now.removeAttribute("href");
    text(details, row.words ?? "");
    list(
      parts,
      row.reasons ?? [],
      ({ reason: each }) => each,
      ({ reason: each }) => buildPart(each, cluster),
    );
    element.classList.toggle("is-bad", Boolean(row.isBad));
  };
  return { element, update };
}

function buildPart(reason, cluster) {
  const link = explainLink(explainQuery({ reason, cluster }));
  return { element: link, update: ({ words }) => text(link, words) };
}

export function update({ event, cluster, history }) {
  const rows = measures({ traffic: cluster.traffic, batch: event.batch ?? [], cluster: cluster.name, history });
  list(body, rows, ({ name }) => `${cluster.name}/${name}`, buildRow);
}
