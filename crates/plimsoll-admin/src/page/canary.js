// Canaries: the verdict on each, and the difference of each metric with its interval. The panel is
// there only if a route splits its requests.

import { find, hide, list, make, text } from "./dom.js";
import { UNKNOWN, count, percent } from "./format.js";

const [panel, verdicts, note] = ["#canary", "#canary-verdicts", "#canary .note"].map((selector) => find(selector));
const REFRESH_MS = 5_000;
/** Without a split: a reload may bring one. */
const IDLE_MS = 60_000;

const NAMES = {
  cpu: "CPU per request",
  errors: "errors",
  "latency-median": "median latency",
  "latency-p99": "p99 latency",
};
const SIGNS = { worse: "✕ worse", better: "✓ better", "no-difference": "✓ no difference", undecided: "… undecided" };

let askedAt = -Infinity;
let isIdle = false;

/** A difference with its sign: `+10.2%`, of shares in points. */
function signed(value, metric) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const unit = metric === "errors" ? " points" : "%";
  return `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)}${unit}`;
}

function buildVerdict({ route }) {
  const title = make("h3");
  const facts = make("p", { class: "muted" });
  const body = make("tbody");
  const heads = ["metric", "finding", "difference", "interval"].map((head) => make("th", { scope: "col" }, head));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
  const update = ({ comparison, sides, by }) => {
    const { main, canary, verdict } = comparison;
    text(title, `${SIGNS[verdict] ?? verdict}: ${canary} beside ${main}, route ${route}`);
    const side = sides.find(({ cluster }) => cluster === canary);
    const needs = comparison.needed_requests === null ? "" : `, needs about ${count(comparison.needed_requests)} more`;
    const fallbacks = side.fallbacks > 0 ? `; ${count(side.fallbacks)} fell back for want of a backend` : "";
    const drained = sides
      .filter((side) => side.drained && [main, canary].includes(side.cluster))
      .map((side) => `; ${side.cluster} is drained, and the comparison waits`);
    const users = by === null ? "" : ` by ${by}`;
    text(
      facts,
      `${percent(side.share)} of requests${users}: ${count(comparison.canary_requests)} of the canary${needs}${fallbacks}${drained.join("")}`,
    );
    list(body, comparison.metrics, ({ metric }) => metric, buildMetric);
  };
  return { element: make("li", {}, title, facts, table), update };
}

function buildMetric({ metric }) {
  const cells = [make("td"), make("td", { class: "number" }), make("td", { class: "number" })];
  const update = ({ finding, difference, low, high }) => {
    text(cells[0], finding.replace("-", " "));
    text(cells[1], signed(difference, metric));
    text(cells[2], difference === null ? UNKNOWN : `${signed(low, metric)} to ${signed(high, metric)}`);
  };
  return { element: make("tr", {}, make("th", { scope: "row" }, NAMES[metric] ?? metric), ...cells), update };
}

async function ask() {
  try {
    const response = await fetch("/api/v1/splits", {
      headers: { accept: "application/json" },
      signal: AbortSignal.timeout(10_000),
    });
    if (!response.ok) return;
    const { splits } = await response.json();
    const all = splits.flatMap(({ route, by, sides, comparisons }) =>
      comparisons.map((comparison) => ({ route, by, sides, comparison })),
    );
    isIdle = all.length === 0;
    hide(panel, isIdle);
    list(verdicts, all, ({ route, comparison }) => `${route}/${comparison.canary}`, buildVerdict);
    text(note, "Intervals hold at all times together in 95% of rollouts.");
  } catch {
    // The stream says that the proxy does not answer.
  }
}

/** A page over several proxies has no splits: each proxy compares its own requests. */
export function update({ event: { process } }) {
  if (process.kind === "fleet") return;
  if (performance.now() - askedAt < (isIdle ? IDLE_MS : REFRESH_MS)) return;
  askedAt = performance.now();
  ask();
}
