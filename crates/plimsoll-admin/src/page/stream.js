// The connection to the server. It is closed while nobody sees the page, since a browser opens six
// to an origin; it reconnects after errors, and it is stale when figures stop.

const RETRY_MS = 1_000;
/** Without a figure for this time the page says so. */
const STALE_MS = 4_000;
/** A connection without a figure for this time is replaced. */
const DEAD_MS = 12_000;

export class Stream {
  #source = null;
  #timer = null;
  #lastAt = 0;
  #openedAt = 0;
  #path = "";
  #on;

  /** `on` has `history(event)`, `live(event)` and `state(name, problem)`. */
  constructor(on) {
    this.#on = on;
    document.addEventListener("visibilitychange", () => this.#follow());
    setInterval(() => this.#watch(), 500);
  }

  /** Reads from this query on, such as `?cluster=web`. */
  open(query) {
    this.#path = `/api/v1/live/stream${query}`;
    this.#follow();
  }

  /** Seconds since the last figures. */
  age() {
    return this.#lastAt === 0 ? null : (performance.now() - this.#lastAt) / 1_000;
  }

  #follow() {
    this.#close();
    if (document.visibilityState === "hidden") {
      this.#on.state("hidden");
      return;
    }
    this.#on.state(this.#lastAt === 0 ? "connecting" : "reconnecting");
    this.#connect();
  }

  #connect() {
    this.#close();
    this.#openedAt = performance.now();
    const source = new EventSource(this.#path);
    this.#source = source;
    source.addEventListener("history", (message) => this.#on.history(JSON.parse(message.data)));
    source.addEventListener("live", (message) => {
      this.#lastAt = performance.now();
      this.#on.state("live");
      this.#on.live(JSON.parse(message.data));
    });
    source.addEventListener("error", () => this.#lost());
  }

  #lost() {
    this.#close();
    this.#on.state("reconnecting");
    this.#timer = setTimeout(() => this.#connect(), RETRY_MS);
    this.#askWhy();
  }

  /**
   * An event source hides the answer that it got: such as an unknown cluster, or too many viewers.
   */
  async #askWhy() {
    const path = this.#path;
    try {
      const answer = await fetch(path.replace("/stream", ""), { signal: AbortSignal.timeout(3_000) });
      if (answer.ok || path !== this.#path) return;
      const { error, help } = await answer.json();
      if (this.#source?.readyState !== EventSource.OPEN)
        this.#on.state("reconnecting", [error, help].filter(Boolean).join(": "));
    } catch {
      // The server is not there: the word "reconnecting" says all.
    }
  }

  #watch() {
    if (!this.#source) return;
    const quiet = performance.now() - Math.max(this.#lastAt, this.#openedAt);
    if (quiet > DEAD_MS) this.#lost();
    else if (quiet > STALE_MS && this.#lastAt > 0) this.#on.state("stale");
  }

  #close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }
}
