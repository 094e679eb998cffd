// The names of the API in plain words. A name that is not here is shown as it is.

export const CRITICALITIES = ["critical-plus", "critical", "sheddable-plus", "sheddable"];

/** The effect of losing such a request. */
export const LOSS = {
  "critical-plus": "users wait; costly to lose",
  critical: "users wait",
  "sheddable-plus": "can wait for minutes",
  sheddable: "can wait for hours",
};

/** Mildest first. Glyph and word carry the verdict besides the colour. */
export const VERDICTS = {
  fine: { rank: 0, glyph: "✓", word: "Fine" },
  "as-intended": { rank: 1, glyph: "◒", word: "Shedding as intended" },
  "capacity-short": { rank: 2, glyph: "▲", word: "Capacity short" },
  "users-affected": { rank: 3, glyph: "✕", word: "Users affected" },
  // Pages without a verdict of a gate.
  none: { rank: -1, glyph: "–", word: "No gate" },
  unknown: { rank: -1, glyph: "…", word: "No verdict" },
};

/** Reasons for not serving a request. */
export const REASONS = {
  overloaded: "the process has no headroom",
  "overloaded-no-retry": "no headroom here or elsewhere",
  quota: "the customer is at its limit",
  throttled: "not sent: backends shed most such requests",
  deadline: "the answer would come too late",
  saturated: "every backend is at its limit of active requests",
  "no-backend": "no backend is usable",
  "lame-duck": "the backend is draining",
  closed: "the backend closed the connection",
  "bad-response": "the response breaks the rules of HTTP",
};

/** States of a backend. */
export const STATES = {
  healthy: { glyph: "●", word: "healthy" },
  connecting: { glyph: "○", word: "connecting" },
  "lame-duck": { glyph: "◑", word: "lame duck" },
  refusing: { glyph: "⊘", word: "refusing" },
  ejected: { glyph: "✕", word: "ejected" },
};

export const verdictOf = (name) => VERDICTS[name] ?? VERDICTS.unknown;
export const reasonOf = (name) => REASONS[name] ?? name.replaceAll("-", " ");
export const stateOf = (name) => STATES[name] ?? { glyph: "?", word: name };

/** The query of the requests behind a number. */
export function explainQuery(filters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) if (value) query.set(name, value);
  query.set("last", "20");
  return `/api/v1/explain?${query}`;
}
