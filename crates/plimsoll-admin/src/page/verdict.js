// The verdict, first on the page and in the title of its tab: which traffic is shed, why, and the
// capacity that would have been enough.

import { attribute, explainLink, find, hide, list, make, text } from "./dom.js";
import { clock, count, counted, number, percent, span, unitName } from "./format.js";
import { names, nameOf } from "./proxies.js";
import { CRITICALITIES, explainQuery, reasonOf, verdictOf } from "./words.js";

const section = find("#verdict");
const [glyph, word, meaning] = [".glyph", ".word", "#meaning"].map((selector) => find(selector, section));
const [since, facts, elsewhere] = ["#since", "#facts", "#elsewhere"].map((selector) => find(selector));

/**
 * The sentence of the API without the word of the verdict, and without the figures that stand
 * beside it.
 */
function sentence(gate) {
  let words = gate.meaning ?? "";
  words = words.replace(/^if this were no dry run: /, "").replace(/^(users are affected|working as intended): /, "");
  if (gate.verdict !== "fine") words = words.split("; ")[0];
  return words === "" ? "" : `${words[0].toUpperCase()}${words.slice(1)}.`;
}

/** One fact: a term and lines, each `{ key, lead, rest, href }`. */
function fact(term) {
  const [title, body] = [make("dt"), make("dd")];
  const element = make("div", { "data-term": term }, title, body);
  text(title, term);
  const update = ({ lines }) => {
    list(body, lines, (line) => line.key, buildLine);
  };
  return { element, update };
}

function buildLine({ href, swatch }) {
  const [lead, rest] = [make("b"), make("span")];
  const parts = [
    ...(swatch ? [make("i", { class: `swatch ${swatch} is-shed`, "aria-hidden": "true" })] : []),
    lead,
    " ",
    rest,
  ];
  const element = href ? make("p", {}, explainLink(href, ...parts)) : make("p", {}, ...parts);
  const update = (line) => {
    text(lead, line.lead);
    text(rest, line.rest ?? "");
    if (line.href) attribute(element.firstChild, "href", line.href);
  };
  return { element, update };
}

function which({ cluster, unit }) {
  return cluster.demand
    .filter((row) => row[`shed_${unit}`] > 0)
    .map((row) => ({
      key: row.criticality,
      swatch: row.criticality,
      lead: `${percent(row[`shed_${unit}`] / row[`offered_${unit}`])} of ${row.criticality}`,
      rest: `${number(row[`shed_${unit}`])} ${unitName(unit)}`,
      href: explainQuery({ criticality: row.criticality, cluster: cluster.name, outcome: "refused" }),
    }));
}

function why({ cluster, unit }) {
  const sums = new Map();
  for (const row of cluster.demand) {
    for (const [reason, shed] of Object.entries(row.shed ?? {}))
      sums.set(reason, (sums.get(reason) ?? 0) + (shed[unit] ?? 0));
  }
  // Requests that no gate shed, but no backend served either.
  for (const [reason, qps] of Object.entries(cluster.traffic?.unserved ?? {})) {
    if (qps > 0 && !sums.has(reason)) sums.set(reason, unit === "qps" ? qps : 0.001);
  }
  const reasons = [...sums].filter(([, amount]) => amount > 0).sort((one, other) => other[1] - one[1]);
  const signal = cluster.gate?.binding_signal;
  const load = signal ? `: ${signal} at ${percent(cluster.gate.signals?.[signal])}` : "";
  return reasons.slice(0, 3).map(([reason]) => ({
    key: reason,
    lead: reason,
    rest: reasonOf(reason) + (reason.startsWith("overloaded") ? load : ""),
    href: explainQuery({ reason, cluster: cluster.name }),
  }));
}

function from({ cluster, unit }) {
  const shed = (customer) => customer[`shed_${unit}`] ?? 0;
  const customers = cluster.customers
    .filter((customer) => shed(customer) > 0)
    .sort((one, other) => shed(other) - shed(one));
  return customers.slice(0, 3).map((customer) => ({
    key: customer.name,
    lead: customer.name,
    rest: `${number(shed(customer))} of ${number(customer[`offered_${unit}`])} ${unitName(unit)}`,
    href: explainQuery({ customer: customer.name, cluster: cluster.name }),
  }));
}

/**
 * The report has no figure in the first ten minutes of shedding, and none where CPU cannot be the
 * cause.
 */
function enough({ enough_cpus: figure, capacity_cpus: capacity, throttled_for_s: shedding }) {
  const isKnown = figure !== null && figure !== undefined;
  const early = { key: "enough", lead: "not known yet", rest: "(it needs ten minutes of shedding)" };
  const none = { key: "enough", lead: "no figure", rest: "by CPU the load would have fitted: look for other causes" };
  const known = { key: "enough", lead: `${number(figure)} CPUs`, rest: "would have been enough" };
  return [
    isKnown ? known : shedding > 600 ? none : early,
    { key: "there", lead: `${number(capacity)} CPUs`, rest: "are there" },
  ];
}

/**
 * The headline of a cluster without a gate: requests that no backend served are its only losses.
 */
function ungated({ backends, traffic }) {
  const lost = Object.values(traffic.unserved ?? {}).reduce((sum, qps) => sum + qps, 0);
  if (lost > 0)
    return { name: "users-affected", word: "Requests unserved", meaning: `${number(lost)} requests/s got no backend.` };
  const meaning = `Nothing is shed by criticality here: the cluster has no gate. ${count(backends.by_state.healthy)} of ${count(backends.total)} backends are healthy.`;
  return { name: "none", word: "No gate", meaning };
}

/** The proxies with the verdict that is shown, of several. */
function places(proxies, gate) {
  if (!proxies || !gate || gate.verdict === "fine" || proxies.length === 1) return "";
  const alike = proxies.filter(({ load }) => load?.verdict === gate.verdict).map(nameOf);
  // The proxy that the sentence is of comes first.
  const all = [...new Set([gate.proxy, ...alike].filter(Boolean))];
  return all.length === proxies.length ? " At every proxy." : ` At ${names(all)}.`;
}

function show({ name, word: words, meaning: sense, for_s: seconds }) {
  const verdict = verdictOf(name);
  attribute(section, "data-verdict", name);
  text(glyph, verdict.glyph);
  text(word, words ?? verdict.word);
  text(meaning, sense);
  text(since, seconds > 0 ? `for ${span(seconds)}` : "");
  return verdict;
}

/** The title of the tab, and its icon: the worst of all clusters. */
function label(name, words, place) {
  const verdict = verdictOf(name);
  document.title = `${verdict.glyph} ${words ?? verdict.word}${place ? ` · ${place}` : ""} · Plimsoll`;
}

export function update(model) {
  const { event, cluster } = model;
  if (!cluster) {
    const isLost = event.proxies?.every(({ answers }) => !answers) ?? false;
    const meaning = isLost ? "No proxy answers." : event.proxies ? "No proxy has a cluster." : "This proxy has no cluster.";
    show({ name: isLost ? "unknown" : "none", word: isLost ? "No figures" : "No cluster", meaning });
    label("none", isLost ? "No figures" : "No cluster", event.process.name);
    list(facts, [], (one) => one, fact);
    return;
  }
  const { gate } = cluster;
  const bare = gate ? null : ungated(cluster);
  const words =
    gate?.dry_run && gate.verdict !== "fine" ? `Dry run: ${verdictOf(gate.verdict).word.toLowerCase()}` : undefined;
  show(bare ?? { name: gate.verdict, word: words, meaning: `${sentence(gate)}${places(event.proxies, gate)}`, for_s: gate.verdict_for_s });

  const shed = [
    { term: gate?.dry_run ? "would be shed" : "shed now", lines: which(model) },
    { term: "why", lines: why(model) },
    { term: "from", lines: gate ? from(model) : [] },
  ].filter(({ lines }) => lines.length > 0);
  if (gate && gate.verdict !== "fine") {
    if (shed.length === 0)
      shed.push({ term: "shed now", lines: [{ key: "nothing", lead: "nothing", rest: "in the last ten seconds" }] });
    if (gate.verdict !== "as-intended" || gate.enough_cpus > gate.capacity_cpus)
      shed.push({ term: "enough", lines: enough(gate) });
  }
  list(
    facts,
    shed,
    ({ term }) => term,
    ({ term }) => fact(term),
  );

  const worst = event.verdict;
  const isElsewhere =
    worst && worst.cluster !== cluster.name && verdictOf(worst.verdict).rank > verdictOf(gate?.verdict ?? "none").rank;
  hide(elsewhere, !isElsewhere);
  if (isElsewhere) {
    const { glyph: sign, word: state } = verdictOf(worst.verdict);
    const link = make("a", { href: `?cluster=${encodeURIComponent(worst.cluster)}` }, worst.cluster);
    list(
      elsewhere,
      [worst],
      () => `${worst.verdict}/${worst.cluster}`,
      () => ({ element: make("span", {}, `${sign} ${state} in cluster `, link) }),
    );
  }
  if (isElsewhere || !bare)
    label(worst?.verdict ?? gate.verdict, isElsewhere ? undefined : words, worst?.cluster ?? cluster.name);
  else label(bare.name, bare.word, cluster.name);
}

export function updateQuota({ event, service }) {
  if (!service) {
    show({ name: "none", word: "No service", meaning: "No task has reported yet." });
    label("none", "No service", event.process.name);
    return;
  }
  const cut = service.customers.filter((customer) => customer.cut);
  const total = service.customers_cut ?? cut.length;
  const name = total > 0 ? "as-intended" : "fine";
  const many = total === 1 ? "1 customer is" : `${count(total)} customers are`;
  const state = service.is_dry_run ? `Dry run: ${many} over the limit` : `${many} cut`;
  const words = total === 0 ? "Within limits" : state;
  const doubt = service.is_unsure ? " Tasks may hold rates that this server does not know yet." : "";
  show({
    name,
    word: words,
    meaning: `${counted(service.tasks, "task")} of ${service.name} share the limits.${doubt}`,
  });
  label(name, words, service.name);
  const unit = unitName(service.unit === "cpus" ? "cpus" : "qps");
  const lines = cut.slice(0, 3).map((customer) => ({
    key: customer.name,
    lead: customer.name,
    rest: `asks for ${number(customer.demand)}, its limit is ${number(customer.limit)} ${unit}${customer.is_dry_run ? " (dry run)" : ""}`,
  }));
  const refused = cut.filter((customer) => !customer.is_dry_run);
  const parts = refused.slice(0, 3).map((customer) => ({
    key: customer.name,
    lead: `${percent(customer.cut_admitted)} of ${customer.cut}`,
    rest: `of ${customer.name}, ${after(customer.cut)}`,
  }));
  list(
    facts,
    [
      { term: "over the limit", lines },
      { term: "admitted", lines: parts },
    ].filter((each) => each.lines.length > 0),
    ({ term }) => term,
    ({ term }) => fact(term),
  );
}

function after(cut) {
  const below = CRITICALITIES.slice(CRITICALITIES.indexOf(cut) + 1);
  return below.length === 0 ? "and all more critical requests" : `none of ${below.join(", ")}`;
}

/** While figures are old, the title says so too. */
export function stale(at) {
  if (!document.title.startsWith("(")) document.title = `(${clock(at)}) ${document.title}`;
}
