// A page over several proxies: a row for each, with a link to its own page. Those without an answer
// come first and have no part in the figures of the other panels.

import { attribute, find, hide, list, make, text } from "./dom.js";
import { clock, count, counted, number, span, unitName } from "./format.js";
import { verdictOf } from "./words.js";

const section = find("#proxies");
const [title, note, body, head] = ["h2", ".note", "tbody", ".of-unit"].map((selector) => find(selector, section));
const missing = find("#missing");

/** The name that people know a proxy by. */
export const nameOf = ({ name, address }) => name || address;

/** Those whose figures are in the sums. */
const isSummed = ({ load }) => load !== null && load !== undefined;

/**
 * No answer first, then the worst verdict, then those without the cluster; of equal ones the order of
 * the command line.
 */
function rank({ answers, load }) {
  if (!answers) return 9;
  return load ? verdictOf(load.verdict ?? "none").rank : -2;
}

/** `edge-1`, `edge-1 and edge-2`, `edge-1 and 4 more`. */
export function names(all) {
  if (all.length === 2) return all.join(" and ");
  return all.length > 2 ? `${all[0]} and ${all.length - 1} more` : (all[0] ?? "");
}

function build({ proxy: { address } }) {
  const [glyph, link] = [make("span", { class: "glyph", "aria-hidden": "true" }), make("a")];
  const [state, words] = [make("small"), make("span")];
  const cells = ["used", "offered", "shed", "backends"].map((name) => make("td", { class: `number ${name}` }));
  attribute(link, "href", `http://${address}/live/`);
  const element = make("tr", {}, make("th", { scope: "row" }, glyph, link, " ", state), make("td", {}, words), ...cells);
  const update = ({ proxy, unit, cluster, isMixed }) => {
    const { answers, load, problem, version, for_s: seconds } = proxy;
    text(link, nameOf(proxy));
    attribute(link, "href", `http://${address}/live/${cluster ? `?cluster=${encodeURIComponent(cluster)}` : ""}`);
    attribute(element, "data-state", !answers ? "lost" : load ? "answers" : "apart");
    text(glyph, answers ? (load ? "●" : "○") : "✕");
    const condition = answers && proxy.state !== "ready" ? proxy.state : "";
    text(state, [nameOf(proxy) === address ? "" : address, condition, isMixed && version ? `version ${version}` : ""].filter(Boolean).join(" · "));
    const verdict = verdictOf(load?.verdict ?? "none");
    text(words, load ? `${verdict.glyph} ${verdict.word}` : `${problem ?? "no answer"}${answers ? "" : `, for ${span(seconds)}`}`);
    const figures = load
      ? [
          load.used_cpus === null ? "–" : `${number(load.used_cpus)} of ${number(load.capacity_cpus)}`,
          number(load[`offered_${unit}`]),
          number(load[`shed_${unit}`]),
          `${count(load.healthy)} of ${count(load.backends)}`,
        ]
      : ["", "", "", ""];
    figures.forEach((figure, place) => text(cells[place], figure));
    element.classList.toggle("is-shed", load?.[`shed_${unit}`] > 0);
  };
  return { element, update };
}

export function update({ event, unit }) {
  const all = event.proxies ?? [];
  hide(section, all.length === 0);
  if (all.length === 0) {
    hide(missing, true);
    return;
  }
  const [summed, lost] = [all.filter(isSummed), all.filter((proxy) => !proxy.answers)];
  const cluster = event.cluster?.name;
  text(title, counted(all.length, "proxy"));
  const isMixed = new Set(all.map(({ version }) => version).filter(Boolean)).size > 1;
  const apart = all.length - summed.length - lost.length;
  const facts = [
    `${count(all.length - lost.length)} of ${count(all.length)} answer`,
    ...(apart > 0 ? [`${count(apart)} without cluster ${cluster}`] : []),
    "figures are their sum; each name leads to the page of the proxy",
  ];
  text(note, facts.join(" · "));
  text(head, `offered, ${unitName(unit)}`);
  const rows = all.map((proxy, place) => ({ proxy, place, unit, cluster, isMixed }));
  rows.sort((one, other) => rank(other.proxy) - rank(one.proxy) || one.place - other.place);
  list(body, rows, ({ proxy }) => proxy.address, build);

  hide(missing, lost.length === 0);
  const since = event.at - Math.max(0, ...lost.map((proxy) => proxy.for_s));
  text(
    missing,
    lost.length === 0
      ? ""
      : `✕ ${names(lost.map(nameOf))} ${lost.length === 1 ? "does" : "do"} not answer since ${clock(since)}: the figures are those of ${summed.length} of ${counted(all.length, "proxy")}`,
  );
}
