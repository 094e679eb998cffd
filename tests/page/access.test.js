// Accessibility by axe, and layout: every scene in both colour schemes, at three widths.

import assert from "node:assert/strict";
import { test } from "node:test";

import { violations } from "./axe.js";
import { open, useBrowser } from "./harness.js";

useBrowser();

for (const colorScheme of ["light", "dark"]) {
  for (const scene of ["fine", "as-intended", "overload", "capacity-short", "huge", "no-gate", "quota", "fleet"]) {
    test(`axe finds nothing: ${scene}, ${colorScheme}`, async () => {
      const { page } = await open(scene, { colorScheme });
      assert.deepEqual(await violations(page), []);
    });
  }

  test(`axe finds nothing in the dialog, in a narrow page and with old figures: ${colorScheme}`, async () => {
    const { page, server } = await open("overload", { colorScheme, width: 400 });
    assert.deepEqual(await violations(page), []);
    await page.click("#explained summary >> nth=0");
    await page.locator("#backends tbody button").first().click();
    assert.deepEqual(await violations(page), [], "the dialog");
    await page.keyboard.press("Escape");
    server.isSilent = true;
    await page.waitForSelector('body[data-figures="old"]');
    assert.deepEqual(await violations(page), [], "old figures");
  });
}

test("no scene scrolls sideways at any width", async () => {
  for (const scene of ["fine", "overload", "huge", "no-gate", "quota", "fleet"]) {
    const { page } = await open(scene);
    for (const width of [320, 400, 768, 1024, 1440, 1920]) {
      await page.setViewportSize({ width, height: 900 });
      await page.waitForTimeout(150);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${scene} at ${width} px is ${wide} px too wide`);
    }
  }
});

test("a chart has a table, and state has a word", async () => {
  const { page } = await open("overload");
  for (const panel of ["#demand", "#backends", "#customers", "#traffic"]) {
    assert.ok((await page.locator(`${panel} table tbody tr`).count()) > 0, panel);
  }
  const states = await page.locator("#backends tbody th").allTextContents();
  assert.ok(
    states.every((words) => /healthy|ejected|lame duck/.test(words)),
    states.join(),
  );
});

test("nothing moves for readers who want less motion", async () => {
  const { page, server } = await open("overload");
  await page.emulateMedia({ reducedMotion: "reduce" });
  server.isSilent = true;
  await page.waitForSelector('#connection[data-state="stale"]', { timeout: 7_000 });
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
});
