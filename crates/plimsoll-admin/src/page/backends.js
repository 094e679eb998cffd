// Load of the backends, most loaded first, with the headroom above; drain and undrain after a
// confirmation.

import { ask } from "./confirm.js";
import { attribute, find, hide, list, make, style, text } from "./dom.js";
import { count, counted, milliseconds, number, percent } from "./format.js";
import { nameOf } from "./proxies.js";
import { stateOf } from "./words.js";

/** Up to this number each backend has a bar of its own; above it, a histogram. */
const MAX_BARS = 60;
const MOST_LOADED = 4;
const MOST_LOADED_OF_MANY = 20;
/** Rows that one update may build: a fleet that is all unhealthy does not freeze the page. */
const MAX_ROWS = 200;

const NO_LOAD = "no healthy backend with a known load";

const section = find("#backends");
const [title, note, bars, body] = ["h2", ".note", ".bars", "tbody"].map((selector) => find(selector, section));
const [caption, button, leftOff, result] = ["#bars-text", "#all-backends", "#left-off", "#command"].map((selector) =>
  find(selector),
);
const mean = make("i", { class: "mean" });
bars.append(make("div"), mean);

let showsAll = false;
let latest = null;
button.addEventListener("click", () => {
  showsAll = !showsAll;
  update(latest);
});

const isHealthy = (row) => row.state === "healthy";
/** By hand: one that is a lame duck by its own report comes back by itself. */
const isDrained = (row) => row.reason === "drained";
const byLoad = (one, other) => (other.load ?? -1) - (one.load ?? -1);
const loadText = (measure, load) => (measure === "utilization" ? percent(load) : count(load));

/** While a row is pointed at or has the focus of the keyboard, no row moves away from under it. */
const isHeld = () => body.matches(":hover") || body.querySelector(":focus-visible") !== null;

function choose({ rows, total }) {
  const sorted = [...rows].sort(byLoad);
  const healthy = sorted.filter(isHealthy);
  const most = showsAll ? healthy.length : total > MAX_BARS ? MOST_LOADED_OF_MANY : MOST_LOADED;
  const chosen = [...healthy.slice(0, most), ...sorted.filter((row) => !isHealthy(row))].slice(0, MAX_ROWS);
  if (!isHeld() || !body.known) return chosen;
  const byAddress = new Map(rows.map((row) => [row.address, row]));
  return [...[...body.known.keys()].map((address) => byAddress.get(address)).filter(Boolean), ...chosen];
}

function buildBar() {
  const element = make("i");
  const update = ({ height, state }) => {
    style(element, "--height", `${height.toFixed(1)}%`);
    attribute(element, "data-state", state);
  };
  return { element, update };
}

function drawBars({ rows, total, measure, histogram, bin, max, mean: average }) {
  const isKnown = Number.isFinite(average);
  hide(mean, !isKnown);
  const isHistogram = total > MAX_BARS || rows.length < total;
  bars.classList.toggle("is-histogram", isHistogram);
  if (isHistogram) {
    const most = Math.max(1, ...histogram);
    const items = histogram.map((backends, place) => ({
      key: place,
      height: (100 * backends) / most,
      state: place * bin >= 0.9 && measure === "utilization" ? "hot" : "healthy",
    }));
    list(bars.firstChild, items, ({ key }) => key, buildBar);
    const range = (value) => (measure === "utilization" ? percent(value) : number(value));
    style(mean, "--at", `${Math.min(100, (100 * average) / (bin * histogram.length)).toFixed(1)}%`);
    const busiest = histogram.indexOf(Math.max(...histogram));
    text(
      caption,
      !isKnown
        ? NO_LOAD
        : `healthy backends by load, 0 to ${range(bin * histogram.length)}; most are at ${range(busiest * bin)} to ${range((busiest + 1) * bin)}, dashed: mean ${range(average)}`,
    );
    return;
  }
  const full = measure === "utilization" ? Math.max(1, max ?? 0) : Math.max(1, max ?? 0) * 1.1;
  const items = [...rows.filter(isHealthy).sort(byLoad), ...rows.filter((row) => !isHealthy(row))];
  list(
    bars.firstChild,
    items.map((row, key) => ({ key, height: Math.min(100, (100 * (row.load ?? 0)) / full), state: row.state })),
    ({ key }) => key,
    buildBar,
  );
  style(mean, "--at", `${((100 * average) / full).toFixed(1)}%`);
  const top = measure === "utilization" ? percent(full) : number(full);
  text(
    caption,
    !isKnown
      ? NO_LOAD
      : `full height is ${top}${measure === "utilization" ? ", the pale part is headroom" : ""}; dashed: mean ${measure === "utilization" ? percent(average) : number(average)}`,
  );
}

/** Of several proxies, those that see it in this state. */
function seenBy({ seen }) {
  return seen && seen.proxies > 1 ? ` at ${seen.in_state} of ${seen.proxies}` : "";
}

function buildRow({ row: { address }, cluster }) {
  const [glyph, place, state] = [
    make("span", { class: "glyph", "aria-hidden": "true" }),
    make("span", { class: "address" }),
    make("small", {}, make("span"), make("span")),
  ];
  const head = make("th", { scope: "row" }, glyph, place, " ", state);
  const [load, inFlight, latency, failures] = ["load", "wide", "wide latency", "wide failures"].map((name) =>
    make("td", { class: `number ${name}` }),
  );
  const command = make("button", { type: "button" });
  const element = make("tr", {}, head, load, inFlight, latency, failures, make("td", { class: "action" }, command));
  text(place, address);
  let current = null;
  command.addEventListener("click", () => run(cluster, current, command));
  const update = ({ row, measure }) => {
    current = row;
    const { glyph: sign, word } = stateOf(row.state);
    attribute(element, "data-state", row.state);
    text(glyph, sign);
    const since = row.state === "healthy" ? "" : `, ${row.reason?.replaceAll("-", " ") ?? "reason not known"}${seenBy(row)}`;
    // The place of a healthy backend says more than the word; the word stays for screen readers.
    const isPlaced = row.locality && row.state === "healthy";
    state.firstChild.classList.toggle("hidden", Boolean(isPlaced));
    text(state.firstChild, `${word}${since}${row.locality && !isPlaced ? " · " : " "}`);
    text(state.lastChild, row.locality ?? "");
    text(load, loadText(measure, row.load));
    style(load, "--share", `${measure === "utilization" ? Math.min(100, 100 * (row.load ?? 0)).toFixed(1) : 0}%`);
    text(inFlight, count(row.in_flight));
    text(latency, milliseconds(row.latency_ms));
    text(failures, percent(row.error_share));
    const verb = isDrained(row) ? "undrain" : "drain";
    text(command, verb);
    attribute(command, "aria-label", `${verb} ${row.address}`);
  };
  return { element, update };
}

/** The answer of a proxy in words. */
function answer(verb, address, { ok, status }, { error, help }) {
  return ok ? `✓ ${verb} of ${address} accepted` : `✕ ${address}: ${error ?? status}${help ? `; ${help}` : ""}`;
}

/** The answer of each proxy: those that did it, and then each other one with its problem. */
function answers(verb, address, proxies) {
  const done = proxies.filter((proxy) => proxy.is_ok).map(nameOf);
  const failed = proxies.filter((proxy) => !proxy.is_ok);
  return [
    ...(done.length > 0 ? [`✓ ${verb} of ${address} accepted at ${done.join(", ")}`] : []),
    ...failed.map((proxy) => `✕ ${nameOf(proxy)}: ${proxy.error}`),
  ].join("\n");
}

/** One of the two commands that this page sends. */
async function run(cluster, row, origin) {
  const verb = isDrained(row) ? "undrain" : "drain";
  const healthy = latest.cluster.backends.by_state.healthy ?? 0;
  const left = isHealthy(row) ? healthy - 1 : healthy;
  const effect = isDrained(row)
    ? "Requests are sent to it again after a check."
    : `It gets no new requests${latest.event.proxies ? ` from ${counted(latest.event.proxies.length, "proxy")}` : ""}, and the ${counted(row.in_flight ?? 0, "request")} in flight may finish. ${counted(left, "healthy backend")} of ${count(latest.cluster.backends.total)} remain.`;
  const isSure = await ask({ title: `${verb} ${row.address}?`, words: effect, verb });
  (origin.isConnected ? origin : title).focus();
  if (!isSure) return;
  const path = `/api/v1/clusters/${encodeURIComponent(cluster)}/backends/${encodeURIComponent(row.address)}/${verb}`;
  try {
    const response = await fetch(path, { method: "POST", signal: AbortSignal.timeout(10_000) });
    const body = await response.json().catch(() => ({}));
    text(result, body.proxies ? answers(verb, row.address, body.proxies) : answer(verb, row.address, response, body));
  } catch {
    text(result, `✕ ${row.address}: no answer to ${verb}; the proxy may be unreachable`);
  }
}

export function update(model) {
  latest = model;
  const { cluster } = model;
  const backends = { max: null, mean: null, ...cluster.backends };
  const { total, by_state: states, measure, rows } = backends;
  text(
    title,
    measure === "utilization"
      ? `CPU of ${counted(total, "backend")}`
      : `Requests in flight at ${counted(total, "backend")}`,
  );
  const unhealthy = Object.entries(states).filter(([state, backendsOf]) => state !== "healthy" && backendsOf > 0);
  const facts = [
    `${count(states.healthy)} healthy`,
    ...unhealthy.map(([state, backendsOf]) => `${stateOf(state).glyph} ${count(backendsOf)} ${stateOf(state).word}`),
    `max/mean ${number(backends.max_over_mean)}`,
    `waste ${number(backends.waste)} ${measure === "utilization" ? "backends" : "requests"}`,
  ];
  text(note, facts.join(" · "));
  drawBars(backends);
  const shown = choose(backends);
  list(
    body,
    shown.map((row) => ({ row, measure, cluster: cluster.name })),
    ({ row }) => row.address,
    buildRow,
  );
  const canExpand = backends.is_complete && total > MOST_LOADED;
  hide(button, !canExpand);
  text(button, showsAll ? "show fewer" : `show all ${total}`);
  attribute(button, "aria-expanded", String(showsAll));
  text(leftOff, backends.left_off > 0 ? `${count(backends.left_off)} more unhealthy` : "");
}

/** Another cluster: rows of the last one have commands of the last one. */
export function clear() {
  list(body, [], () => null, buildRow);
  text(result, "");
  showsAll = false;
}
