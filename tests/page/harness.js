// A page in a browser before a mock server. Each test also fails on an error in the page, and on
// anything that the policy of the page forbids.

import assert from "node:assert/strict";
import { after, afterEach, before } from "node:test";

import { launch } from "./browser.js";
import { MockServer } from "./mock/server.js";

let browser;
let opened = [];

/** Call it once in each file of tests. */
export function useBrowser() {
  before(async () => {
    browser = await launch();
  });
  afterEach(async () => {
    const all = opened;
    opened = [];
    const problems = [];
    for (const each of all) {
      problems.push(...each.problems, ...(await each.page.evaluate(() => window.violations).catch(() => [])));
      await each.page.context().close();
      await each.server?.stop();
    }
    assert.deepEqual(problems, [], "errors in the page, or breaches of its policy");
  });
  after(() => browser.close());
}

/** A page at an address, with a list of its problems. */
export async function openAt(url, { width = 1440, height = 900, colorScheme = "light", server, setup } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, timezoneId: "UTC" });
  const page = await context.newPage();
  const problems = [];
  page.on("pageerror", (problem) => problems.push(String(problem)));
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (breach) => {
      window.violations.push(
        `${breach.violatedDirective}: ${breach.blockedURI} ${breach.sourceFile}:${breach.lineNumber}`,
      );
    });
  });
  if (setup) await page.addInitScript(setup);
  opened.push({ page, server, problems });
  await page.goto(url);
  return page;
}

/** A page before a mock server that plays a scene, once it is live. */
export async function open(scene, { query = "", prepare, ...options } = {}) {
  const server = new MockServer(scene);
  prepare?.(server);
  await server.start();
  const page = await openAt(server.url + query, { ...options, server });
  await page.waitForSelector('#connection[data-state="live"]');
  return { page, server };
}

/** Text of all elements, blanks as one. */
export async function texts(page, selector) {
  const all = await page.locator(selector).allTextContents();
  return all.map((text) => text.replace(/\s+/g, " ").trim());
}

/** Waits until a check in this process holds. */
export async function until(check, words, patience = 5_000) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) assert.fail(`not within ${patience} ms: ${words}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Whether the first chart has the colour of a criticality in a part of its width, from 0 to 1. */
export function hasColour(page, name, from, to) {
  return page.evaluate(
    ([hue, begin, end]) => {
      const canvas = document.querySelector("#demand canvas");
      const style = getComputedStyle(document.documentElement).getPropertyValue(`--${hue}`).trim();
      const wanted = [1, 3, 5].map((place) => parseInt(style.slice(place, place + 2), 16));
      const left = Math.floor(canvas.width * begin);
      const { data } = canvas
        .getContext("2d")
        .getImageData(left, 0, Math.ceil(canvas.width * (end - begin)), canvas.height);
      let found = 0;
      for (let place = 0; place < data.length; place += 4) {
        if (wanted.every((part, offset) => Math.abs(data[place + offset] - part) < 3)) found += 1;
      }
      return found > 200;
    },
    [name, from, to],
  );
}
