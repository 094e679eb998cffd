// The page of a running proxy or quota server: PLIMSOLL_PAGE_URL=http://127.0.0.1:9900/live/ npm
// run proxy. Without the address, of the mock server.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { openAt, texts, until, useBrowser } from "./harness.js";
import { MockServer } from "./mock/server.js";
import { violations } from "./axe.js";

useBrowser();

let server;
let address = process.env.PLIMSOLL_PAGE_URL;
before(async () => {
  if (address) return;
  server = await new MockServer("overload").start();
  address = server.url;
});
after(() => server?.stop());

test("page is live within five seconds and goes on", async () => {
  const page = await openAt(address);
  await page.waitForSelector('#connection[data-state="live"]', { timeout: 5_000 });
  assert.notEqual((await texts(page, "h1 .word"))[0], "Waiting for the first figures");
  assert.match(await page.title(), / · Plimsoll$/);
  const draws = () => page.evaluate(() => performance.getEntriesByName("draw").length);
  const first = await draws();
  await until(async () => (await draws()) >= first + 3, "three more updates");
});

test("page has a strict policy and loads nothing from elsewhere", async () => {
  const response = await fetch(address);
  const policy = response.headers.get("content-security-policy") ?? "";
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"]) {
    assert.ok(policy.includes(part), `${part} is not in the policy: ${policy}`);
  }
  assert.ok(!policy.includes("unsafe"), policy);
  const page = await openAt(address);
  await page.waitForSelector('#connection[data-state="live"]');
  const origins = await page.evaluate(() =>
    performance.getEntriesByType("resource").map(({ name }) => new URL(name).origin),
  );
  assert.deepEqual([...new Set(origins)], [new URL(address).origin]);
});

test("figures of the page are those of the API", async () => {
  const event = await (await fetch(new URL("/api/v1/live", address))).json();
  const page = await openAt(address);
  await page.waitForSelector('#connection[data-state="live"]');
  assert.equal(await page.textContent("#process-name"), event.process.name);
  const choices = (await texts(page, "#choice option")).map((words) => words.split(" ").at(-1));
  assert.deepEqual(
    choices,
    (event.clusters ?? event.services).map(({ name }) => name),
  );
  if (event.cluster) {
    const rows = await texts(page, "#demand tbody th");
    assert.equal(rows.length, 4);
    assert.match(
      await page.textContent("#backends h2"),
      new RegExp(`${event.cluster.backends.total.toLocaleString("en-US")} backend`),
    );
  }
});

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing, ${colorScheme}`, async () => {
    const page = await openAt(address, { colorScheme });
    await page.waitForSelector('#connection[data-state="live"]');
    assert.deepEqual(await violations(page), []);
  });
}
