// Single requests: the result of an explain query, in place. Each number that counts refusals leads
// here.

import { find, list, make, text } from "./dom.js";
import { clock, count, milliseconds, number, percent } from "./format.js";
import { nameOf, names } from "./proxies.js";
import { REASONS, explainQuery, reasonOf } from "./words.js";

const [section, form, note, results, title] = [
  "#explain",
  "#query",
  "#explain-note",
  "#explained",
  "#explain-title",
].map((selector) => find(selector));
const REFRESH_MS = 10_000;

let cluster = null;
/** The query of an operator; while there is none, the latest refusals show by themselves. */
let asked = null;
let shownAt = 0;
let running = 0;
let now = 0;

form.reason.append(
  make("option", { value: "" }, "any"),
  ...Object.keys(REASONS).map((reason) => make("option", { value: reason }, reason)),
);

/** A summary line of a request, and all that was decided about it. */
function build(request) {
  const { at, method, path, criticality, customer, reason, cause, outcome, status } = request;
  const why = reason ? `${reason}${cause ? ` (${cause})` : ""}` : outcome;
  const summary = make(
    "summary",
    {},
    make("time", {}, clock(at)),
    make("code", {}, why),
    make("span", { class: "level" }, criticality?.level ?? ""),
    make("bdi", { class: "name" }, customer ?? ""),
    make("bdi", { class: "path" }, `${method} ${path}`),
  );
  const body = make("dl");
  const line = (term, words) => words && body.append(make("dt", {}, term), make("dd", {}, words));
  line(
    "outcome",
    `${outcome}${status ? ` with ${status}` : ""}${reason ? `: ${reasonOf(reason)}` : ""}, after ${milliseconds(request.took_ms)}`,
  );
  line("id", `${request.id}${request.id_is_own ? " (from the proxy)" : ""}`);
  line("proxy", request.proxy);
  line("client", `${request.client}, at listener ${request.listener}`);
  line("route", [request.route, request.cluster && `cluster ${request.cluster}`].filter(Boolean).join(" → "));
  line("split", request.split && `${request.split.side}, the canary now: ${request.split.verdict}`);
  line("criticality", criticality && `${criticality.level}: ${criticality.why}`);
  line("gate", request.gate && gateWords(request.gate));
  for (const attempt of request.failed_attempts ?? []) {
    line(
      "attempt",
      `${attempt.backend ?? "no backend"} after ${milliseconds(attempt.after_ms)}: ${attempt.reason}, ${attempt.error}; ${attempt.next}`,
    );
  }
  line("backend", request.backend && `${request.backend}${request.locality ? ` in ${request.locality}` : ""}`);
  return { element: make("li", {}, make("details", {}, summary, body)) };
}

function gateWords(gate) {
  const words = [
    `${gate.decision}${gate.dry_run ? " (dry run)" : ""}`,
    `expected cost ${milliseconds(gate.expected_cost_ms)} of CPU`,
    `pressure ${gate.pressure}`,
  ];
  if (Number.isFinite(gate.hard_limit_cpus))
    words.push(`customer used ${number(gate.customer_used_cpus)} of ${number(gate.hard_limit_cpus)} CPUs`);
  if (Number.isFinite(gate.fleet_limit_cpus)) {
    words.push(
      `fleet: ${number(gate.fleet_used_cpus)} of ${number(gate.fleet_limit_cpus)} CPUs used, asks for ${number(gate.fleet_demand_cpus)}`,
    );
    words.push(
      gate.fleet_cut
        ? `${percent(gate.fleet_cut_admitted)} of ${gate.fleet_cut} admitted`
        : `this task's ${number(gate.fleet_rate_cpus)} CPUs are used up`,
    );
  }
  return words.join(", ");
}

async function show(path, words) {
  const run = ++running;
  shownAt = performance.now();
  try {
    const response = await fetch(path, {
      headers: { accept: "application/json" },
      signal: AbortSignal.timeout(10_000),
    });
    const answer = await response.json();
    if (run !== running) return;
    if (!response.ok) throw new Error([answer.error, answer.help].filter(Boolean).join("; "));
    const requests = answer.requests ?? (answer.id === undefined ? [] : [answer]);
    list(results, requests, (request) => `${request.id}/${request.at}`, build);
    const found = requests.length === 0 ? "no request remembered" : `${count(requests.length)} latest`;
    const silent = (answer.proxies ?? []).filter((proxy) => !proxy.is_ok).map(nameOf);
    const without = silent.length > 0 && requests.length > 0 ? `; without ${names(silent)}` : "";
    text(note, `${words}: ${found}, as of ${clock(now)}${without}`);
  } catch (problem) {
    if (run !== running) return;
    list(results, [], () => null, build);
    text(note, `${words}: ${problem.name === "Error" ? problem.message : "no answer from the proxy"}`);
  }
}

const refused = () => explainQuery({ outcome: "refused", cluster }).replace("last=20", "last=8");

function describe(path) {
  const query = new URL(path, location.href).searchParams;
  return (
    [...query]
      .filter(([name]) => name !== "last")
      .map(([name, value]) => `${name} ${value}`)
      .join(", ") || "all"
  );
}

/** Shows the requests behind a link, and brings them into view. */
function follow(path) {
  asked = path;
  const query = new URL(path, location.href).searchParams;
  form.id.value = "";
  form.reason.value = query.get("reason") ?? "";
  form.customer.value = query.get("customer") ?? "";
  show(path, describe(path));
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  section.scrollIntoView({ block: "nearest", behavior: isCalm ? "auto" : "smooth" });
  title.focus({ preventScroll: true });
}

document.addEventListener("click", (click) => {
  const link = click.target.closest?.("a.explains");
  if (!link || click.ctrlKey || click.metaKey || click.shiftKey || click.button !== 0) return;
  click.preventDefault();
  follow(link.getAttribute("href"));
});

form.addEventListener("submit", (submit) => {
  submit.preventDefault();
  const [id, reason, customer] = ["id", "reason", "customer"].map((name) => form[name].value.trim());
  if (id !== "") {
    asked = `/api/v1/explain/${encodeURIComponent(id)}`;
    show(asked, `request ${id}`);
  } else if (reason === "" && customer === "") {
    asked = null;
    show(refused(), "latest refused");
  } else {
    asked = explainQuery({ reason, customer, cluster });
    show(asked, describe(asked));
  }
});

/** Keeps the latest refusals fresh while there are some, and no query of an operator stands. */
export function update({ event: { at }, cluster: { name, demand, traffic } }) {
  now = at;
  const isNew = name !== cluster;
  if (isNew) [cluster, asked] = [name, null];
  const isShedding =
    demand.some((row) => row.shed_qps > 0) || Object.values(traffic.unserved ?? {}).some((qps) => qps > 0);
  const isDue = isShedding && performance.now() - shownAt > REFRESH_MS;
  const isRead = results.querySelector("[open]") !== null || results.matches(":hover, :focus-within");
  if (isNew || (asked === null && isDue && !isRead)) show(refused(), "latest refused");
}
