// Ten minutes of every series, filled by the server's history and then by one sample a second.

export class History {
  times = [];
  #series = new Map();
  #step = 1;
  #most = 600;

  /**
   * Takes the history of a new stream. Older samples of this page stay, with a gap: a restarted
   * server
   * knows nothing of them.
   */
  begin({ step_s: step, begin, samples, series }) {
    const old = this.times.filter((at) => at < begin - step / 2).length;
    const gap = old > 0 && begin - this.times[old - 1] > 2.5 * step ? [this.times[old - 1] + step] : [];
    const times = Array.from({ length: samples }, (_, place) => begin + place * step);
    const merged = new Map();
    for (const name of new Set([...Object.keys(series), ...(old > 0 ? this.#series.keys() : [])])) {
      const past = old > 0 ? (this.#series.get(name)?.slice(0, old) ?? new Array(old).fill(null)) : [];
      merged.set(name, [...past, ...gap.map(() => null), ...(series[name] ?? new Array(samples).fill(null))]);
    }
    this.times = [...this.times.slice(0, old), ...gap, ...times];
    this.#series = merged;
    this.#step = step;
    this.#most = Math.max(600, samples);
    this.#trim();
  }

  /** Appends the sample of one second. One that is there already has no effect. */
  add(sample) {
    const last = this.times.at(-1);
    if (!sample || sample.at <= last + this.#step / 2) return;
    if (sample.at - last > 2.5 * this.#step) this.#push(last + this.#step, {});
    this.#push(sample.at, sample);
    this.#trim();
  }

  /** Values of a series beside `times`; `null` where not known. */
  of(name) {
    return this.#series.get(name) ?? new Array(this.times.length).fill(null);
  }

  has(name) {
    return this.#series.has(name);
  }

  #push(at, values) {
    for (const name of Object.keys(values)) {
      if (name !== "at" && !this.#series.has(name)) this.#series.set(name, new Array(this.times.length).fill(null));
    }
    this.times.push(at);
    for (const [name, series] of this.#series) series.push(values[name] ?? null);
  }

  #trim() {
    const oldest = this.times.at(-1) - this.#most * this.#step;
    let excess = 0;
    while (excess < this.times.length && this.times[excess] <= oldest) excess += 1;
    if (excess === 0) return;
    this.times.splice(0, excess);
    for (const series of this.#series.values()) series.splice(0, excess);
  }
}
