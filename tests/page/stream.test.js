// The connection: history, restarts of the server, silence, hidden tabs, pauses.

import assert from "node:assert/strict";
import { test } from "node:test";

import { hasColour, open, openAt, texts, until, useBrowser } from "./harness.js";
import { MockServer } from "./mock/server.js";

useBrowser();

const state = (page) => page.getAttribute("#connection", "data-state");

test("ten minutes are drawn with the first event", async () => {
  const { page } = await open("fine");
  assert.ok(await hasColour(page, "critical", 0.1, 0.3), "the oldest minutes of the chart");
  assert.ok(await hasColour(page, "critical", 0.7, 0.95), "the newest minutes of the chart");
  const path = await page.getAttribute("#traffic svg path", "d");
  assert.ok(path.split("L").length > 100, "a line of ten minutes");
});

test("the chart of a young process spans its life, and a minute at least", async () => {
  const minutes = await open("fine", { prepare: (server) => (server.remembers = 120) });
  assert.ok(await hasColour(minutes.page, "critical", 0.1, 0.3), "two minutes fill the chart");
  const seconds = await open("fine", { prepare: (server) => (server.remembers = 10) });
  assert.ok(await hasColour(seconds.page, "critical", 0.9, 1));
  assert.equal(await hasColour(seconds.page, "critical", 0.1, 0.7), false, "ten seconds fill a part");
});

test("page goes on after a restart, says so, and keeps what it saw", async () => {
  const { page, server } = await open("fine");
  const restarted = server.restart(4_500);
  await page.waitForSelector('#connection[data-state="reconnecting"]');
  await until(async () => (await page.getAttribute("body", "data-figures")) === "old", "old figures look old");
  assert.match(await page.textContent("#connection"), /reconnecting; figures of \d\d:\d\d:\d\d/);
  assert.match(await page.title(), /^\(\d\d:\d\d:\d\d\) ✓ Fine/);
  await restarted;
  await page.waitForSelector('#connection[data-state="live"]');
  await until(
    async () => (await texts(page, "#traffic ~ .changes li")).some((line) => line.includes("edge-3 restarted")),
    "a line about the restart",
  );
  assert.equal(await page.getAttribute("body", "data-figures"), "fresh");
  assert.match(await page.title(), /^✓ Fine/);
  assert.ok(await hasColour(page, "critical", 0.1, 0.3), "figures from before the restart");
});

test("silence of the server shows as such", async () => {
  const { page, server } = await open("fine");
  server.isSilent = true;
  await page.waitForSelector('#connection[data-state="stale"]', { timeout: 7_000 });
  assert.match(await page.textContent("#connection"), /no new figures; figures of/);
  assert.equal(await page.getAttribute("body", "data-figures"), "old");
  server.isSilent = false;
  await page.waitForSelector('#connection[data-state="live"]');
});

test("a dead connection is replaced", async () => {
  const { page, server } = await open("fine");
  server.isSilent = true;
  await until(() => server.opened.length === 2, "another stream", 16_000);
  server.isSilent = false;
  await page.waitForSelector('#connection[data-state="live"]');
});

test("hidden tab closes its stream and opens it when it is seen", async () => {
  const { page, server } = await open("fine");
  const turn = (value) =>
    page.evaluate((now) => {
      Object.defineProperty(document, "visibilityState", { configurable: true, get: () => now });
      document.dispatchEvent(new Event("visibilitychange"));
    }, value);
  assert.equal(server.streams.size, 1);
  await turn("hidden");
  await until(() => server.streams.size === 0, "the stream is closed");
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  assert.equal(server.streams.size, 0, "it stays closed");
  await turn("visible");
  await until(() => server.streams.size === 1, "the stream is open");
  await page.waitForSelector('#connection[data-state="live"]');
});

test("pause holds the figures, resume shows those of now", async () => {
  const { page, server } = await open("fine");
  await page.click("#pause");
  assert.equal(await state(page), "paused");
  assert.equal(await page.getAttribute("#pause", "aria-pressed"), "true");
  server.play("overload");
  server.tick();
  await new Promise((resolve) => setTimeout(resolve, 1_300));
  assert.deepEqual(await texts(page, "h1 .word"), ["Fine"], "nothing moves");
  await page.click("#pause");
  assert.deepEqual(await texts(page, "h1 .word"), ["Users affected"]);
  assert.equal(await state(page), "live");
});

test("unknown cluster in the address has a message and a way out", async () => {
  const server = await new MockServer("fine").start();
  const page = await openAt(`${server.url}?cluster=nope`, { server });
  await until(
    async () => /there is no cluster "nope": use one of: web, search/.test(await page.textContent("#meaning")),
    "the message of the server",
  );
  await page.click("#meaning a");
  await page.waitForSelector('#connection[data-state="live"]');
});
