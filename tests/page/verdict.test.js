// The verdict: first on the page, and the title of its tab.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, texts, until, useBrowser } from "./harness.js";

useBrowser();

test("page follows an overload and its end", async () => {
  const { page, server } = await open("fine");
  assert.equal(await page.title(), "✓ Fine · web · Plimsoll");
  assert.deepEqual(await texts(page, "h1 .word"), ["Fine"]);
  assert.deepEqual(await texts(page, "#facts dt"), [], "nothing to tell");

  server.play("overload");
  server.tick();
  await until(async () => (await page.title()) === "✕ Users affected · web · Plimsoll", "title of the overload");
  assert.deepEqual(await texts(page, '[role="status"] h1'), ["✕ Users affected"]);
  assert.deepEqual(await texts(page, "#meaning"), ["Critical requests are lost."]);
  assert.equal(await page.getAttribute("#verdict", "data-verdict"), "users-affected");

  server.play("fine");
  server.tick();
  await until(async () => (await page.title()).startsWith("✓ Fine"), "title of the end");
});

test("which traffic is shed and why stands beside the verdict", async () => {
  const { page, server } = await open("overload", { prepare: (each) => (each.now = () => 1_764_338_591.5) });
  assert.deepEqual(await texts(page, "#facts dt"), ["shed now", "why", "from", "enough"]);
  const [shed, why, from, enough] = await texts(page, "#facts dd");
  const lost = server.event().cluster.demand.find(({ criticality }) => criticality === "critical");
  assert.ok(lost.shed_cpus > 0.5, "the scene loses critical requests");
  assert.match(shed, /^[\d.]+% of critical \d\.\d\d CPUs ?100% of sheddable-plus/);
  assert.match(why, /^overloaded the process has no headroom: cpu at 131%/);
  assert.match(from, /^acme \d\.\d\d of \d\.\d\d CPUs/);
  assert.match(enough, /^11\.4 CPUs would have been enough ?8\.00 CPUs are there$/);
});

test("figures that are not known yet are not made up", async () => {
  let shedding = 131;
  const { page, server } = await open("overload", {
    prepare: (server) => {
      const event = server.event.bind(server);
      server.event = (...moment) => {
        const made = event(...moment);
        Object.assign(made.cluster.gate, { enough_cpus: null, throttled_for_s: shedding });
        return made;
      };
    },
  });
  assert.match((await texts(page, '[data-term="enough"] dd'))[0], /^not known yet \(it needs ten minutes/);
  shedding = 900;
  server.tick();
  await until(
    async () => /^no figure by CPU the load would have fitted/.test((await texts(page, '[data-term="enough"] dd'))[0]),
    "another cause",
  );
});

test("a worse cluster is named while another is shown", async () => {
  const { page } = await open("overload", { query: "?cluster=search" });
  assert.deepEqual(await texts(page, "h1 .word"), ["Fine"]);
  assert.equal(await page.title(), "✕ Users affected · web · Plimsoll", "the tab shows the worst");
  assert.deepEqual(await texts(page, "#elsewhere"), ["✕ Users affected in cluster web"]);
  await page.click("#elsewhere a");
  await until(async () => (await texts(page, "h1 .word"))[0] === "Users affected", "the other cluster");
});

test("each verdict has a glyph and a word of its own", async () => {
  const seen = new Set();
  for (const scene of ["fine", "as-intended", "capacity-short", "overload"]) {
    const { page } = await open(scene);
    for (const part of [".glyph", ".word"]) seen.add((await texts(page, `h1 ${part}`))[0]);
  }
  assert.equal(seen.size, 8);
});

test("cluster without a gate shows requests only, and those unserved", async () => {
  const { page } = await open("no-gate");
  assert.equal(await page.title(), "✕ Requests unserved · static · Plimsoll");
  assert.match((await texts(page, "#facts dd"))[0], /^saturated/);
  assert.equal(await page.isVisible("#units"), false, "there is nothing to switch");
  assert.equal(await page.isVisible("#customers"), false);
  assert.deepEqual(await texts(page, "#demand h2"), ["Asked for and admitted, requests/s"]);
  assert.match((await texts(page, "#backends h2"))[0], /^Requests in flight at 12 backends/);
});
