// Numbers that count refusals lead to the requests behind them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, texts, until, useBrowser } from "./harness.js";

useBrowser();

/** Queries that the page sent. */
function queries(page) {
  const sent = [];
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.pathname.startsWith("/api/v1/explain")) sent.push(url.pathname + url.search);
  });
  return sent;
}

test("the latest refusals of the cluster show by themselves", async () => {
  const { page } = await open("overload");
  await until(async () => (await page.locator("#explained li").count()) === 8, "eight requests");
  assert.match((await texts(page, "#explain-note"))[0], /^latest refused: 8 latest, as of \d\d:\d\d:\d\d$/);
});

test("a number leads to the requests that it counts", async () => {
  const { page } = await open("overload");
  const sent = queries(page);
  await page.click("#demand tbody tr:nth-child(4) .reasons a >> nth=1");
  await until(
    async () =>
      (await texts(page, "#explain-note"))[0].startsWith("reason quota, criticality sheddable, cluster web: 12 latest"),
    "the result",
  );
  assert.deepEqual(sent, ["/api/v1/explain?reason=quota&criticality=sheddable&cluster=web&last=20"]);
  const level = await texts(page, "#explained .level");
  assert.ok(level.length === 12 && level.every((each) => each === "sheddable"));
  assert.equal(await page.evaluate(() => document.activeElement.id), "explain-title", "the focus follows");
  assert.equal(await page.inputValue("#query select"), "quota");
});

test("a request opens into everything that was decided about it", async () => {
  const { page } = await open("overload");
  await page.click("#explained li:nth-child(3) summary");
  const lines = await texts(page, "#explained li:nth-child(3) dd");
  assert.ok(lines.includes("refused with 429: the customer is at its limit, after 0.08 ms"), lines.join("\n"));
  assert.ok(
    lines.includes("quota, expected cost 2.50 ms of CPU, pressure severe, customer used 4.02 of 4.00 CPUs"),
    lines.join("\n"),
  );
});

test("the form asks by id, reason and customer", async () => {
  const { page } = await open("overload");
  const sent = queries(page);
  await page.fill('input[name="customer"]', "initech");
  await page.selectOption('select[name="reason"]', "overloaded");
  await page.click("#query button");
  await until(
    async () => (await texts(page, "#explain-note"))[0].startsWith("reason overloaded, customer initech"),
    "by customer",
  );
  await page.fill('input[name="id"]', "a/b?c");
  await page.keyboard.press("Enter");
  await until(async () => (await texts(page, "#explain-note"))[0].startsWith("request a/b?c: 1 latest"), "by id");
  assert.deepEqual(sent, [
    "/api/v1/explain?reason=overloaded&customer=initech&cluster=web&last=20",
    "/api/v1/explain/a%2Fb%3Fc",
  ]);
});

test("an error of the server shows as its message", async () => {
  const { page } = await open("overload");
  await page.route("**/api/v1/explain**", (route) =>
    route.fulfill({ status: 404, json: { error: "no such request", help: "remembered: 3 refused" } }),
  );
  await page.fill('input[name="customer"]', "x");
  await page.click("#query button");
  await until(
    async () => (await texts(page, "#explain-note"))[0].includes("no such request; remembered: 3 refused"),
    "the message",
  );
});
