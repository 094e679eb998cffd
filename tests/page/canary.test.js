// The panel of canaries: there only with a split, with the verdict and each metric.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, texts, until, useBrowser } from "./harness.js";

useBrowser();

const metric = (name, finding, difference, low, high) => ({ metric: name, finding, difference, low, high });

const SPLIT = {
  route: "/",
  by: "cookie:session",
  sides: [
    { cluster: "web", share: 0.95, fallbacks: 0 },
    { cluster: "web-canary", share: 0.05, fallbacks: 3 },
  ],
  comparisons: [
    {
      main: "web",
      canary: "web-canary",
      verdict: "worse",
      needed_requests: null,
      main_requests: 95_000,
      canary_requests: 5_000,
      metrics: [
        metric("cpu", "worse", 0.102, 0.071, 0.134),
        metric("errors", "no-difference", -0.0002, -0.003, 0.002),
        metric("latency-median", "no-difference", 0.01, -0.03, 0.05),
        metric("latency-p99", "undecided", null, null, null),
      ],
    },
  ],
};

test("the panel shows the verdict and each metric of a canary", async () => {
  const { page } = await open("fine", { prepare: (server) => (server.splits = [SPLIT]) });
  await page.waitForSelector("#canary:not([hidden])");
  assert.deepEqual(await texts(page, "#canary h3"), ["✕ worse: web-canary beside web, route /"]);
  assert.deepEqual(await texts(page, "#canary li > .muted"), [
    "5.0% of requests by cookie:session: 5,000 of the canary; 3 fell back for want of a backend",
  ]);
  assert.deepEqual(await texts(page, "#canary tbody tr"), [
    "CPU per requestworse+10.2%+7.1% to +13.4%",
    "errorsno difference−0.0 points−0.3 points to +0.2 points",
    "median latencyno difference+1.0%−3.0% to +5.0%",
    "p99 latencyundecided––",
  ]);
});

test("the panel names a drained side", async () => {
  const [main, canary] = SPLIT.sides;
  const split = { ...SPLIT, sides: [main, { ...canary, drained: true }] };
  const { page } = await open("fine", { prepare: (server) => (server.splits = [split]) });
  await page.waitForSelector("#canary:not([hidden])");
  const [facts] = await texts(page, "#canary li > .muted");
  assert.match(facts, /; web-canary is drained, and the comparison waits$/);
});

test("the panel is away without a split and over several proxies", async () => {
  const { page } = await open("fine");
  await until(async () => (await page.locator("#explained").count()) === 1, "the page");
  assert.equal(await page.isVisible("#canary"), false);
  const fleet = await open("fleet", { prepare: (server) => (server.splits = [SPLIT]) });
  assert.equal(await fleet.page.isVisible("#canary"), false);
});
