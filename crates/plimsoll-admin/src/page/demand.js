// Offered and admitted load by criticality, with the load line: admitted is filled, shed is hatched
// above it.

import { Chart } from "./chart.js";
import { attribute, explainLink, find, list, make, style, text } from "./dom.js";
import { number, percent, unitName } from "./format.js";
import { CRITICALITIES, LOSS, explainQuery, reasonOf } from "./words.js";

const section = find("#demand");
const chart = new Chart(find(".chart", section));
const [note, body, title] = [".note", "tbody", "h2"].map((selector) => find(selector, section));

function layers(history, unit) {
  const offered = CRITICALITIES.map((name) => history.of(`offered_${unit}.${name}`));
  const admitted = CRITICALITIES.map((name) => history.of(`admitted_${unit}.${name}`));
  const shed = offered.map((values, row) =>
    values.map((value, place) => (value === null ? null : Math.max(0, value - (admitted[row][place] ?? 0)))),
  );
  return [
    ...CRITICALITIES.map((name, row) => ({ name, colour: name, hatched: false, values: admitted[row] })),
    ...CRITICALITIES.map((name, row) => ({ name, colour: name, hatched: true, values: shed[row] })),
  ];
}

function buildRow({ criticality }) {
  const cells = ["offered", "admitted", "shed"].map((name) => make("td", { class: `number ${name}` }));
  const [value, share] = [make("b"), make("small")];
  cells[2].append(share, " ", value);
  const reasons = make("td", { class: "reasons" });
  const swatch = make("i", { class: `swatch ${criticality}`, "aria-hidden": "true" });
  const head = make("th", { scope: "row" }, swatch, criticality, make("small", {}, LOSS[criticality] ?? ""));
  const element = make("tr", {}, head, ...cells, reasons);
  const update = ({ row, unit, cluster }) => {
    const [offered, admitted, shed] = ["offered", "admitted", "shed"].map((name) => row[`${name}_${unit}`]);
    text(cells[0], number(offered));
    text(cells[1], number(admitted));
    text(value, number(shed));
    text(share, shed > 0 ? percent(shed / offered) : "");
    element.classList.toggle("is-shed", shed > 0);
    style(cells[2], "--share", `${offered > 0 ? Math.min(100, (100 * shed) / offered).toFixed(1) : 0}%`);
    const found = Object.entries(row.shed ?? {}).filter(([, each]) => each.qps > 0 || each.cpus > 0);
    found.sort(([, one], [, other]) => other[unit] - one[unit]);
    const items = found.map(([reason, each]) => ({ reason, amount: each[unit], cluster, criticality }));
    list(reasons, items, ({ reason }) => reason, buildReason);
  };
  return { element, update };
}

function buildReason({ reason, cluster, criticality }) {
  const amount = make("span", { class: "figure" });
  const link = explainLink("", make("code", {}, reason), " ", amount);
  const element = make("p", {}, link, make("small", {}, reasonOf(reason)));
  const update = (item) => {
    text(amount, number(item.amount));
    attribute(link, "href", explainQuery({ reason, criticality, cluster: cluster ?? item.cluster }));
  };
  return { element, update };
}

export function update({ cluster, history, unit }) {
  const { gate, demand } = cluster;
  text(title, `Asked for and admitted, ${unitName(unit)}`);
  const signal = gate?.binding_signal
    ? `, ${gate.binding_signal} at ${percent(gate.signals?.[gate.binding_signal])}`
    : "";
  text(
    note,
    gate ? `${number(gate.used_cpus)} of ${number(gate.capacity_cpus)} CPUs used${signal}` : "no gate: requests only",
  );
  const line = history.has("load_line_cpus") ? "load_line_cpus" : "capacity_cpus";
  chart.draw({
    times: history.times,
    layers: layers(history, unit),
    edge: CRITICALITIES.length,
    line: gate && unit === "cpus" ? { name: "load line", values: history.of(line) } : null,
    unit: unitName(unit),
    names: ["offered", "admitted", "shed"],
  });
  const rows = demand.map((row) => ({ criticality: row.criticality, row, unit, cluster: cluster.name }));
  list(body, rows, ({ criticality, cluster: name }) => `${name}/${criticality}`, buildRow);
}
