// Time to draw. One update of 10,000 backends may take 100 ms.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, until, useBrowser } from "./harness.js";
import { proxyEvent } from "./mock/scenes.js";

useBrowser();

const watchTasks = () => {
  window.longTasks = [];
  new PerformanceObserver((list) =>
    window.longTasks.push(...list.getEntries().map(({ duration }) => duration)),
  ).observe({ type: "longtask" });
};

/** Some updates meet other work on the machine. A draw takes a fifth of the bar. */
const median = (times) => [...times].sort((one, other) => one - other)[times.length >> 1];

async function drawn(page, updates) {
  await page.evaluate(() => {
    performance.clearMeasures("draw");
    window.longTasks.length = 0;
  });
  const durations = () => page.evaluate(() => performance.getEntriesByName("draw").map(({ duration }) => duration));
  await until(async () => (await durations()).length >= updates, `${updates} updates`, 30_000);
  // Tasks hold parsing, drawing and layout.
  return { draws: await durations(), tasks: await page.evaluate(() => window.longTasks) };
}

test("10,000 backends draw in 100 ms", async () => {
  const { page } = await open("huge", { setup: watchTasks });
  const { draws, tasks } = await drawn(page, 5);
  console.log(
    `draw: ${draws.map((each) => each.toFixed(1)).join(", ")} ms; tasks above 50 ms: ${tasks.join(", ") || "none"}`,
  );
  assert.ok(median(draws) <= 100, `${draws}`);
});

test("a server that sends all 10,000 rows freezes nothing", async () => {
  const { page } = await open("huge", {
    setup: watchTasks,
    prepare: (server) => {
      const event = server.event.bind(server);
      const row = proxyEvent({ scene: "fine", at: 0 }).cluster.backends.rows[0];
      const rows = Array.from({ length: 10_000 }, (_, place) => ({
        ...row,
        address: `10.1.${place >> 8}.${place & 255}:80`,
        state: "ejected",
      }));
      server.event = (...moment) => {
        const made = event(...moment);
        if (made.cluster.backends.total === 10_000) Object.assign(made.cluster.backends, { rows, is_complete: true });
        return made;
      };
    },
  });
  const { draws } = await drawn(page, 4);
  console.log(`draw: ${draws.map((each) => each.toFixed(1)).join(", ")} ms`);
  assert.ok(median(draws) <= 100, `${draws}`);
  assert.ok((await page.locator("#backends tbody tr").count()) <= 200);
});

test("an update changes only what differs", async () => {
  const { page, server } = await open("overload", { prepare: (each) => (each.now = () => 1_764_338_591.5) });
  await page.evaluate(() => {
    window.changed = [];
    new MutationObserver((list) =>
      window.changed.push(
        ...list.map(
          ({ target, type, attributeName }) => `${type} ${attributeName ?? ""} ${target.nodeName}.${target.className}`,
        ),
      ),
    ).observe(document.querySelector("main"), {
      childList: true,
      subtree: true,
      characterData: true,
      attributes: true,
    });
  });
  const draws = () => page.evaluate(() => performance.getEntriesByName("draw").length);
  const before = await draws();
  server.tick();
  await until(async () => (await draws()) > before, "an update");
  assert.deepEqual(await page.evaluate(() => window.changed), [], "the same event again changes nothing");
});
