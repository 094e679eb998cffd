// The page over several proxies: their rows, what their sums leave out, and commands to all of them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { violations } from "./axe.js";
import { open, texts, until, useBrowser } from "./harness.js";
import { ADDRESSES, LOST_S } from "./mock/fleet.js";

useBrowser();

const frozen = (server) => {
  server.now = () => 1_764_338_591.5;
};
const whole = (server) => {
  frozen(server);
  server.isLost = false;
};

test("each proxy has a row: those without an answer first, then the worst verdict", async () => {
  const { page } = await open("fleet", { prepare: frozen });
  assert.deepEqual(await texts(page, "#proxies h2"), ["4 proxies"]);
  assert.match((await texts(page, "#proxies .note"))[0], /^3 of 4 answer · 1 without cluster web · /);
  assert.deepEqual(await texts(page, "#proxies tbody tr a"), ["edge-2", "edge-3", "edge-1", "mail-1"]);
  assert.deepEqual(await texts(page, "#proxies tbody tr td:nth-child(2)"), [
    "tcp connect error: Connection refused (os error 111), for 2 min",
    "✕ Users affected",
    "✓ Fine",
    "it has no cluster web",
  ]);
  assert.equal(await page.textContent("#process-name"), "3 of 4 proxies");
});

test("a row leads to the page of its proxy, with the same cluster", async () => {
  const { page } = await open("fleet", { prepare: frozen });
  const links = await page.locator("#proxies tbody a").evaluateAll((all) => all.map((link) => link.href));
  const order = [1, 2, 0, 3];
  assert.deepEqual(
    links,
    order.map((place) => `http://${ADDRESSES[place]}/live/?cluster=web`),
  );
});

test("rows and panels follow the switch of units", async () => {
  const { page, server } = await open("fleet", { prepare: frozen });
  const { proxies } = server.event();
  const figure = (value) => (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0));
  const shown = async () => (await texts(page, "#proxies tbody tr:nth-child(2) td.offered"))[0];
  assert.equal(await shown(), figure(proxies[2].load.offered_cpus));
  await page.check('input[value="qps"]');
  assert.equal(await shown(), `${(proxies[2].load.offered_qps / 1e3).toFixed(2)}k`);
  assert.deepEqual(await texts(page, "#proxies thead .of-unit"), ["offered, requests/s"]);
});

test("the verdict names its proxy, and the page says which figures are not there", async () => {
  const { page, server } = await open("fleet", { prepare: frozen });
  assert.match((await texts(page, "#meaning"))[0], / At edge-3\.$/);
  const missing = (await texts(page, "#missing"))[0];
  const since = new Date((1_764_338_591.5 - LOST_S) * 1e3).toISOString().slice(11, 19);
  assert.equal(missing, `✕ edge-2 does not answer since ${since}: the figures are those of 2 of 4 proxies`);
  server.isLost = false;
  server.tick();
  await until(async () => !(await page.isVisible("#missing")), "the line goes when all answer");
  assert.deepEqual(await texts(page, "#proxies tbody tr:first-child a"), ["edge-3"]);
  const second = await texts(page, '#proxies tbody tr:has(a[href*="edge-2"]) th small');
  assert.deepEqual(second, ["edge-2.example:9900 · draining · version 0.2.0"]);
});

test("a backend is one row, and says how many proxies see its state", async () => {
  const { page } = await open("fleet", { prepare: frozen });
  const states = await texts(page, "#backends tbody th small");
  assert.ok(states.includes("ejected, consecutive failures at 1 of 2"), states.join("; "));
  assert.ok(states.includes("lame duck, reported at 2 of 2"), states.join("; "));
});

test("changes have the names of their proxies", async () => {
  const { page } = await open("fleet", { prepare: frozen });
  const changes = await texts(page, '.grid[data-kind="proxy"] .changes li');
  assert.ok(changes.some((words) => /edge-2\.example:9900 does not answer/.test(words)), changes.join("\n"));
  assert.ok(changes.some((words) => /ejected: consecutive-failures at edge-1 and edge-3/.test(words)), changes.join("\n"));
});

test("drain asks for all proxies, and shows the answer of each", async () => {
  const { page, server } = await open("fleet", { prepare: frozen });
  await page.locator("#backends tbody button").first().click();
  assert.match(await page.textContent("#confirm-text"), /^It gets no new requests from 4 proxies, /);
  assert.deepEqual(server.commands, [], "not before the confirmation");
  await page.click("#confirm .strong");
  await until(async () => (await page.textContent("#command")) !== "", "the answers");
  const [done, ...problems] = (await page.textContent("#command")).split("\n");
  assert.match(done, /^✓ drain of 10\.\d+\.\d+\.\d+:8080 accepted at edge-1, edge-3$/);
  assert.deepEqual(problems, [
    "✕ edge-2: tcp connect error: Connection refused (os error 111)",
    '✕ mail-1: there is no cluster "web"',
  ]);
  assert.equal(server.commands.length, 1);
  assert.equal(server.commands[0].site, "same-origin");
});

test("explained requests have their proxies, and the note those that are missing", async () => {
  const { page } = await open("fleet", { prepare: frozen });
  await until(async () => /; without edge-2$/.test((await texts(page, "#explain-note"))[0]), "the note");
  await page.click("#explained summary >> nth=0");
  const lines = await texts(page, "#explained li:first-child dd");
  assert.ok(lines.includes("edge-3"), lines.join("; "));
});

test("no answer of any proxy is no verdict", async () => {
  const { page, server } = await open("fleet", { prepare: whole });
  const event = server.event.bind(server);
  server.event = (...all) => {
    const of = event(...all);
    const proxies = of.proxies.map((proxy) => ({
      ...proxy,
      answers: false,
      load: null,
      version: null,
      state: null,
      problem: "silent for 5 s",
    }));
    return { ...of, proxies, cluster: null, verdict: null, clusters: [], sample: null };
  };
  server.tick();
  await until(async () => (await texts(page, "h1 .word"))[0] === "No figures", "the headline");
  assert.deepEqual(await texts(page, "#meaning"), ["No proxy answers."]);
  assert.match((await texts(page, "#missing"))[0], /^✕ edge-1 and 3 more do not answer since/);
  assert.equal(await page.isVisible("#demand"), false);
  assert.equal(await page.isVisible("#proxies"), true);
});

test("the page of one proxy has no such panel", async () => {
  const { page } = await open("overload");
  assert.equal(await page.isVisible("#proxies"), false);
  assert.equal(await page.isVisible("#missing"), false);
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1440, 1024, 400]) {
    test(`axe finds nothing: ${width} px, ${colorScheme}`, async () => {
      const { page } = await open("fleet", { colorScheme, width });
      assert.deepEqual(await violations(page), []);
      await page.locator("#backends tbody button").first().click();
      await page.click("#confirm .strong");
      await until(async () => (await page.textContent("#command")) !== "", "the answers");
      assert.deepEqual(await violations(page), [], "with the answers to a command");
    });
  }
}
