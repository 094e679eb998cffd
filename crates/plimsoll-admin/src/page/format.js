// Numbers and times for people: two or three significant digits, with a unit.

/** In place of a number that is not known. */
export const UNKNOWN = "–";

/** A number: `0.42`, `8.00`, `11.4`, `812`, `1.24k`. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.005) return "<0.01";
  if (size < 9.995) return value.toFixed(2);
  if (size < 99.95) return value.toFixed(1);
  if (size < 999.5) return value.toFixed(0);
  if (size < 999_500) return `${number(value / 1e3)}k`;
  return `${number(value / 1e6)}M`;
}

/** A count, in full: `10,000`. */
export const count = (value) => (Number.isFinite(value) ? Math.round(value).toLocaleString("en-US") : UNKNOWN);

/** A number of things: `1 backend`, `40 backends`, `3 proxies`. */
export const counted = (value, noun) => `${count(value)} ${value === 1 ? noun : `${noun}s`.replace(/ys$/, "ies")}`;

/** A share of 1 as percent: `0.4%`, `13%`. Only all is 100%, and only nothing is 0%. */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return UNKNOWN;
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1%";
  if (value > 0 && value < 9.95) return `${value.toFixed(1)}%`;
  if (share < 1 && value >= 99.5) return ">99%";
  return `${value.toFixed(0)}%`;
}

/** A span of time in its largest one or two units: `12 s`, `2 min`, `2 h 10 min`, `3 d`. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  const [minute, hour, day] = [60, 3_600, 86_400];
  if (seconds < 1.5 * minute) return `${Math.round(seconds)} s`;
  if (seconds < 1.5 * hour) return `${Math.round(seconds / minute)} min`;
  if (seconds < 1.5 * day) {
    const minutes = Math.round((seconds % hour) / minute);
    const hours = Math.floor(seconds / hour);
    return minutes === 0 || minutes === 60 ? `${hours + minutes / 60} h` : `${hours} h ${minutes} min`;
  }
  return `${Math.round(seconds / day)} d`;
}

/** Milliseconds: `0.42 ms`, `12.0 ms`, `1.20 s`. */
export function milliseconds(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  return value >= 999.5 ? `${number(value / 1_000)} s` : `${number(value)} ms`;
}

/** The local time of day of a Unix time: `14:03:11`. */
export function clock(at) {
  const time = new Date(at * 1_000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** The unit of a switch of the page. */
export const unitName = (unit) => (unit === "cpus" ? "CPUs" : "requests/s");
