// The same page for the quota server: customers over the fleet, and the cut as a bar.

import { Chart } from "./chart.js";
import { meter } from "./customers.js";
import { attribute, find, list, make, style, text } from "./dom.js";
import { count, counted, number, percent, unitName } from "./format.js";
import { CRITICALITIES } from "./words.js";

const [demandSection, section] = [find("#quota-demand"), find("#quota-customers")];
const chart = new Chart(find(".chart", demandSection));

/** Four fields, one for each criticality: filled as far as it is admitted. */
function cutBar() {
  const fields = CRITICALITIES.map((name) => make("i", { class: name }));
  const element = make("span", { class: "cut", "aria-hidden": "true" }, ...fields);
  const update = ({ cut, cut_admitted: admitted }) => {
    const at = cut ? CRITICALITIES.indexOf(cut) : CRITICALITIES.length;
    fields.forEach((field, place) =>
      style(field, "--share", `${place < at ? 100 : place === at ? (100 * (admitted ?? 0)).toFixed(1) : 0}%`),
    );
  };
  return { element, update };
}

function buildRow({ customer: { name, kind } }) {
  const [bar, cut] = [meter(), cutBar()];
  const cells = ["demand", "used", "limit"].map(() => make("td", { class: "number" }));
  const words = make("small");
  const head = make("th", { scope: "row" }, make("bdi", { class: "name", title: name }, name), make("small", {}, kind));
  const element = make(
    "tr",
    {},
    head,
    make("td", { class: "meter-column" }, bar.element),
    ...cells,
    make("td", { class: "cut-cell" }, cut.element, words),
  );
  const update = ({ customer, full }) => {
    const { demand, used, limit, soft_limit: soft } = customer;
    bar.update({ used, shed: Math.max(0, demand - used), soft, hard: limit, full });
    [demand, used, limit].forEach((value, place) => text(cells[place], number(value)));
    cut.update(customer);
    const part = customer.cut ? `${percent(customer.cut_admitted)} of ${customer.cut}` : "no cut";
    text(words, customer.cut && customer.is_dry_run ? `dry run: ${part}` : part);
    element.classList.toggle("is-shed", Boolean(customer.cut));
    attribute(element, "data-tasks", String(customer.tasks));
  };
  return { element, update };
}

function buildSum() {
  const cells = ["demand", "used", "limit"].map(() => make("td", { class: "number" }));
  const element = make("tr", {}, make("th", { scope: "row" }, "now"), ...cells);
  return { element, update: (values) => values.forEach((value, place) => text(cells[place], number(value))) };
}

export function update({ service, history }) {
  const unit = unitName(service.unit === "cpus" ? "cpus" : "qps");
  text(find("h2", demandSection), `Limited customers over the fleet, ${unit}`);
  text(
    find(".note", demandSection),
    `${counted(service.tasks, "task")}${service.is_unsure ? ", not sure of all of them" : ""}`,
  );
  const [demand, used, limit] = ["demand", "used", "limit"].map((name) => history.of(name));
  const refused = demand.map((value, place) => (value === null ? null : Math.max(0, value - (used[place] ?? 0))));
  chart.draw({
    times: history.times,
    layers: [
      { name: "used", colour: "critical", hatched: false, values: used },
      { name: "refused", colour: "critical", hatched: true, values: refused },
    ],
    edge: 1,
    line: { name: "limit", values: limit },
    unit,
    names: ["demand", "used", "refused"],
  });
  list(find("tbody", demandSection), [[demand.at(-1), used.at(-1), limit.at(-1)]], () => "now", buildSum);

  const { customers, customers_left_off: left } = service;
  text(
    find(".note", section),
    customers.length === 0
      ? "No customer has a limit or demand."
      : `${count(customers.length)} with most demand over their limit first, ${unit}${left > 0 ? `; ${count(left)} more` : ""}`,
  );
  const full =
    Math.max(0.001, ...customers.map((customer) => Math.max(customer.demand ?? 0, customer.limit ?? 0))) * 1.02;
  list(
    find("tbody", section),
    customers.map((customer) => ({ customer, full })),
    ({ customer }) => `${service.name}/${customer.kind}/${customer.name}`,
    buildRow,
  );
}
