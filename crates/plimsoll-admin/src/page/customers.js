// Customers that ask for most: used and shed, against their limits.

import { attribute, explainLink, find, hide, list, make, style, text } from "./dom.js";
import { number, percent, unitName } from "./format.js";
import { explainQuery, reasonOf } from "./words.js";

const section = find("#customers");
const [note, table, title] = [".note", "table", "h2"].map((selector) => find(selector, section));

/** A bar with a used and a shed part, and ticks for limits; all against `full`. */
export function meter() {
  const parts = ["used", "shed", "soft", "hard"].map((name) => make("i", { class: name }));
  const element = make("div", { class: "meter", "aria-hidden": "true" }, ...parts);
  const update = ({ used, shed, soft, hard, full }) => {
    const share = (value) => `${Math.min(100, (100 * (value ?? 0)) / full).toFixed(2)}%`;
    style(element, "--used", share(used));
    style(element, "--shed", share(shed));
    const isOut = (limit) => limit === null || limit === undefined || limit > full;
    hide(parts[2], isOut(soft));
    hide(parts[3], isOut(hard));
    style(element, "--soft", share(soft));
    style(element, "--hard", share(hard));
  };
  return { element, update };
}

/** Two rows for each customer: figures, and the bar with the reasons and limits. */
function build({ customer: { name }, cluster }) {
  const bar = meter();
  const cells = ["asked", "used", "shed"].map((field) => make("td", { class: `number ${field}` }));
  const [reasons, limits] = [make("span", { class: "reasons" }), make("small")];
  const head = make("th", { scope: "row" }, make("bdi", { class: "name", title: name }, name));
  const element = make(
    "tbody",
    {},
    make("tr", {}, head, ...cells),
    make("tr", {}, make("td", { colspan: "4" }, bar.element, reasons, limits)),
  );
  const update = ({ customer, unit, full }) => {
    const [offered, shed] = [customer[`offered_${unit}`], customer[`shed_${unit}`]];
    const isCpu = unit === "cpus";
    const used = isCpu ? customer.used_cpus : Math.max(0, offered - shed);
    [offered, used, shed].forEach((value, place) => text(cells[place], number(value)));
    element.classList.toggle("is-shed", shed > 0);
    bar.update({
      used,
      shed,
      full,
      soft: isCpu ? customer.soft_limit_cpus : null,
      hard: isCpu ? customer.hard_limit_cpus : null,
    });
    const found = Object.entries(customer.shed ?? {})
      .filter(([, qps]) => qps > 0)
      .sort(([, one], [, other]) => other - one);
    list(
      reasons,
      found.map(([reason]) => ({ reason })),
      ({ reason }) => reason,
      ({ reason }) => buildReason(reason, name, cluster),
    );
    text(limits, limitWords(customer));
  };
  return { element, update };
}

function buildReason(reason, customer, cluster) {
  const link = explainLink("", make("code", {}, reason));
  attribute(link, "href", explainQuery({ reason, customer, cluster }));
  attribute(link, "title", reasonOf(reason));
  return { element: link };
}

/** The limits, that over all tasks, and the cut while it refuses. */
function limitWords(customer) {
  const is = (value) => value !== null && value !== undefined;
  const words = [];
  if (is(customer.soft_limit_cpus)) words.push(`soft ${number(customer.soft_limit_cpus)}`);
  if (is(customer.hard_limit_cpus)) words.push(`hard ${number(customer.hard_limit_cpus)}`);
  if (is(customer.fleet_limit_cpus)) {
    const demand = is(customer.fleet_demand_cpus) ? `, asks for ${number(customer.fleet_demand_cpus)}` : "";
    words.push(`fleet ${number(customer.fleet_used_cpus)} of ${number(customer.fleet_limit_cpus)}${demand}`);
  }
  if (customer.fleet_cut) words.push(`${percent(customer.fleet_cut_admitted)} of ${customer.fleet_cut} admitted`);
  return words.join(" · ");
}

export function update({ cluster, unit }) {
  const { customers } = cluster;
  hide(section, !cluster.gate);
  text(title, `Customers, ${unitName(unit)}`);
  text(note, customers.length === 0 ? "no customer asks for anything" : "those that ask for most");
  const asked = Math.max(0.001, ...customers.map((customer) => customer[`offered_${unit}`] ?? 0));
  // A limit far above the demand would make all bars short: it has no tick then.
  const limits =
    unit === "cpus" ? customers.flatMap((customer) => [customer.soft_limit_cpus, customer.hard_limit_cpus]) : [];
  const full = Math.max(asked, ...limits.filter((limit) => limit < 2 * asked).map((limit) => limit ?? 0)) * 1.02;
  const items = customers.map((customer) => ({ customer, unit, full, cluster: cluster.name }));
  list(table, items, ({ customer, cluster: name }) => `${name}/${customer.name}`, build);
}
