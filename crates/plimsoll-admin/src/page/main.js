// The page: takes events of the stream and has each panel draw. It changes nothing but drains of
// backends.

import * as backends from "./backends.js";
import * as canary from "./canary.js";
import * as changes from "./changes.js";
import * as customers from "./customers.js";
import * as demand from "./demand.js";
import { attribute, find, hide, list, make, text } from "./dom.js";
import * as explain from "./explain.js";
import { clock, span } from "./format.js";
import { History } from "./history.js";
import * as proxies from "./proxies.js";
import * as quota from "./quota.js";
import { Stream } from "./stream.js";
import * as traffic from "./traffic.js";
import * as verdict from "./verdict.js";
import { verdictOf } from "./words.js";

const [choice, units, pause, connection] = ["#choice", "#units", "#pause", "#connection"].map((selector) =>
  find(selector),
);
const grids = document.querySelectorAll(".grid");
const address = new URL(location.href);

let history = new History();
let latest = null;
let isPaused = false;
let wish = address.searchParams.get("unit") === "qps" ? "qps" : "cpus";
let state = { name: "connecting", problem: "" };
let shownCluster = null;
/** Changes that this page saw itself. */
let own = [];

find(`input[value="${wish}"]`, units).checked = true;

// -- events ------------------------------------------------------------------------------------

const stream = new Stream({
  history(event) {
    history.begin(event);
  },
  live(event) {
    notice(latest, event);
    latest = event;
    history.add(event.sample);
    if (!isPaused) draw();
  },
  state(name, problem = "") {
    if (state.name === "reconnecting" && name === "reconnecting" && problem === "") return;
    state = { name, problem };
    indicate();
  },
});

/** A process that began later than the one before is another one: the server was restarted. */
function notice(before, event) {
  if (!before) return;
  const began = ({ at, process }) => at - process.uptime_s;
  if (began(event) - began(before) > 3) {
    own = [
      {
        at: began(event),
        kind: "process",
        subject: event.process.kind === "fleet" ? "this page" : event.process.name,
        text: "restarted; counts begin anew",
      },
      ...own,
    ].slice(0, 5);
  }
}

// -- drawing -----------------------------------------------------------------------------------

function draw() {
  performance.mark("draw-begin");
  const event = latest;
  const { process } = event;
  text(find("#process-name"), process.name);
  const condition = process.state === "ready" ? "" : ` · ${process.state}`;
  text(find("#process-facts"), `${process.version} · up ${span(process.uptime_s)}${condition}`);
  const kind = process.kind === "quota" ? "quota" : "proxy";
  offer(kind === "quota" ? (event.services ?? []) : (event.clusters ?? []), kind);
  if (kind === "quota") drawQuota(event);
  else drawProxy(event);
  for (const grid of grids) hide(grid, grid.dataset.kind !== kind || !(event.cluster ?? event.service));
  performance.measure("draw", "draw-begin");
}

function drawProxy(event) {
  const { cluster } = event;
  const unit = cluster?.gate ? wish : "qps";
  const model = { event, cluster, history, unit };
  hide(units, !cluster?.gate);
  find(`input[value="${unit}"]`, units).checked = true;
  verdict.update(model);
  proxies.update(model);
  if (!cluster) return;
  if (cluster.name !== shownCluster) backends.clear();
  shownCluster = cluster.name;
  // Panels measure themselves, so they have to be there.
  hide(find('.grid[data-kind="proxy"]'), false);
  for (const panel of [demand, backends, customers, traffic, canary, explain]) panel.update(model);
  changes.update(find('.grid[data-kind="proxy"] .changes ol'), event, own);
}

function drawQuota(event) {
  const { service } = event;
  hide(units, true);
  verdict.updateQuota({ event, service });
  if (!service) return;
  hide(find('.grid[data-kind="quota"]'), false);
  quota.update({ service, history });
  changes.update(find('.grid[data-kind="quota"] .changes ol'), event, own);
}

// -- controls ----------------------------------------------------------------------------------

/** The clusters or services to choose from, worst first. */
function offer(names, kind) {
  text(find("#choice-label"), kind === "quota" ? "service" : "cluster");
  const current = (kind === "quota" ? latest.service : latest.cluster)?.name ?? "";
  // An open list of a select stays as it is.
  if (document.activeElement !== choice) {
    if (choice.known === undefined) choice.replaceChildren();
    list(choice, names, ({ name }) => name, buildOption);
    choice.value = current;
  }
  choice.disabled = names.length === 0;
}

function buildOption({ name }) {
  const element = make("option", { value: name });
  const update = ({ verdict: sign, customers_cut: cut }) => {
    const glyph = sign ? `${verdictOf(sign).glyph} ` : cut > 0 ? "◒ " : "";
    text(element, `${glyph}${name}`);
  };
  return { element, update };
}

function open() {
  const query = new URLSearchParams();
  for (const name of ["cluster", "service"])
    if (address.searchParams.has(name)) query.set(name, address.searchParams.get(name));
  const words = query.toString();
  stream.open(words === "" ? "" : `?${words}`);
}

choice.addEventListener("change", () => {
  address.searchParams.delete("cluster");
  address.searchParams.set(latest.process.kind === "quota" ? "service" : "cluster", choice.value);
  window.history.replaceState(null, "", address);
  history = new History();
  open();
});

units.addEventListener("change", (change) => {
  wish = change.target.value;
  address.searchParams.set("unit", wish);
  window.history.replaceState(null, "", address);
  if (latest) draw();
});

pause.addEventListener("click", () => {
  isPaused = !isPaused;
  attribute(pause, "aria-pressed", String(isPaused));
  text(pause, isPaused ? "resume" : "pause");
  if (!isPaused && latest) draw();
  indicate();
});

/** The state of the connection, by word and glyph. Old figures look old. */
function indicate() {
  const age = stream.age();
  const { name, problem } = state;
  const isOld = name !== "live" && name !== "hidden" && latest !== null && age > 3;
  const shown = isPaused && name === "live" ? "paused" : name;
  attribute(connection, "data-state", shown);
  attribute(document.body, "data-figures", isOld ? "old" : "fresh");
  const words = {
    connecting: "connecting",
    live: "live",
    paused: "paused",
    reconnecting: "reconnecting",
    stale: "no new figures",
    hidden: "paused while hidden",
  }[shown];
  const last = isOld || (shown === "reconnecting" && latest) ? `; figures of ${clock(latest.at)}` : "";
  text(find("span", connection), `${words}${last}${problem === "" ? "" : `: ${problem}`}`);
  if (isOld) verdict.stale(latest.at);
  if (!latest && problem !== "") {
    // Such as a cluster in the address of the page that is there no longer.
    find("#meaning").replaceChildren(`${problem}. `, make("a", { href: "?" }, "Show the first one"));
  }
}

setInterval(indicate, 1_000);
open();
