// Changes with their times, newest first: states of backends, verdicts, reloads, overrides, cuts of
// customers, tasks, the process.

import { attribute, list, make, text } from "./dom.js";
import { clock, span } from "./format.js";
import { names } from "./proxies.js";

const GLYPHS = {
  backend: "◉",
  verdict: "◆",
  reload: "↻",
  override: "✎",
  cut: "◒",
  tasks: "◉",
  process: "▣",
  connection: "⇄",
};

function build({ at, kind, cluster, service, subject, text: words, proxies }) {
  const [time, ago] = [make("time", {}, clock(at)), make("small", { class: "ago" })];
  const subjects = [...new Set([cluster, service, subject].filter(Boolean))];
  const element = make(
    "li",
    { "data-kind": kind },
    time,
    make("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[kind] ?? "·"),
    make(
      "span",
      {},
      make("span", { class: "hidden" }, `${kind}: `),
      make("bdi", { class: "subject" }, subjects.join(" ")),
      " ",
      make("span", {}, words ?? ""),
      ...(proxies?.length > 0 ? [" ", make("small", { title: proxies.join(", ") }, `at ${names(proxies)}`)] : []),
    ),
    ago,
  );
  attribute(time, "datetime", new Date(at * 1_000).toISOString());
  return { element, update: ({ now }) => text(ago, `${span(Math.max(0, now - at))} ago`) };
}

/** `own`: changes that this page saw itself, such as a restart of the server. */
export function update(place, event, own) {
  const all = [...(event.changes ?? []), ...own].sort((one, other) => other.at - one.at).slice(0, 20);
  const items = all.length > 0 ? all : [];
  list(
    place,
    items.map((change) => ({ ...change, now: event.at })),
    (change) => `${change.at}/${change.kind}/${change.cluster ?? change.service}/${change.subject}/${change.text}/${change.proxies ?? ""}`,
    build,
  );
  place.classList.toggle("is-empty", all.length === 0);
}
