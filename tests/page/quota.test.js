// The page of the quota server.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, texts, until, useBrowser } from "./harness.js";

useBrowser();

const frozen = (server) => {
  server.now = () => 1_764_338_591.5;
};

test("customers over the fleet have demand, use, limit and cut", async () => {
  const { page, server } = await open("quota", { prepare: frozen });
  const { customers } = server.event().service;
  assert.equal(await page.title(), "◒ 2 customers are cut · search · Plimsoll");
  const cells = await page.locator("#quota-customers tbody tr").first().locator("td.number").allTextContents();
  assert.deepEqual(cells, [customers[0].demand.toFixed(1), customers[0].used.toFixed(1), "20.0"]);
  assert.deepEqual(await texts(page, "#quota-customers .cut-cell"), [
    "40% of sheddable",
    "40% of sheddable-plus",
    "no cut",
    "no cut",
    "no cut",
  ]);
  const shares = await page
    .locator("#quota-customers tbody tr:nth-child(2) .cut i")
    .evaluateAll((parts) => parts.map((part) => part.style.getPropertyValue("--share")));
  assert.deepEqual(shares, ["100%", "100%", "40.0%", "0%"]);
  const sum = (field) => customers.reduce((total, customer) => total + customer[field], 0).toFixed(1);
  assert.deepEqual(await page.locator("#quota-demand tbody td").allTextContents(), [
    sum("demand"),
    sum("used"),
    "54.0",
  ]);
});

test("panels of a proxy are not there", async () => {
  const { page } = await open("quota");
  assert.equal(await page.isVisible("#demand"), false);
  assert.equal(await page.isVisible("#units"), false);
  assert.deepEqual(await texts(page, "#choice-label"), ["service"]);
  assert.equal(await page.locator("#quota-demand canvas").count(), 1);
});

test("a service is chosen by its name", async () => {
  const { page, server } = await open("quota");
  await page.selectOption("#choice", "mail");
  assert.match(page.url(), /service=mail/);
  await until(() => server.opened.at(-1) === "service=mail", "a stream of the service");
});
