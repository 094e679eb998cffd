// Names come from strangers: they are text, and they break no layout.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, texts, until, useBrowser } from "./harness.js";
import { HOSTILE_NAMES } from "./mock/scenes.js";

useBrowser();

for (const width of [1440, 400]) {
  test(`names of strangers are text only, ${width} px wide`, async () => {
    const { page } = await open("hostile", { width });
    const shown = await page.locator("#customers .name").allTextContents();
    assert.deepEqual(shown.sort(), [...HOSTILE_NAMES].sort());
    await until(async () => (await page.locator("#explained li").count()) > 0, "explained requests");
    await page.click("#explained summary >> nth=0");
    assert.equal(await page.locator("main img, main script").count(), 0);
    assert.equal(await page.evaluate(() => window.wasHit), undefined);
    assert.ok(
      await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
      "the page does not scroll sideways",
    );
  });
}

test("links carry such a name as it is", async () => {
  const { page } = await open("hostile");
  const hrefs = await page.locator("#customers .reasons a").evaluateAll((links) => links.map((link) => link.href));
  const names = new Set(hrefs.map((href) => new URL(href).searchParams.get("customer")));
  assert.deepEqual([...names].sort(), [...HOSTILE_NAMES].sort());
  assert.ok(hrefs.every((href) => new URL(href).pathname === "/api/v1/explain"));
  await page.click("#customers .reasons a >> nth=0");
  await until(async () => (await texts(page, "#explain-note"))[0].includes("customer "), "the result");
  assert.equal(await page.evaluate(() => window.wasHit), undefined);
});
