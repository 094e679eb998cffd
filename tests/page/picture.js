// A picture of a running page: node picture.js URL FILE SECONDS_UNTIL_THEN

import { launch } from "./browser.js";

const [url, file, after] = process.argv.slice(2);
const began = Date.now();
const browser = await launch();
const page = await browser.newPage({
  viewport: { width: 1_200, height: 700 },
  colorScheme: "light",
  timezoneId: "UTC",
  locale: "en-GB",
});
await page.goto(url);
await page.waitForSelector('#connection[data-state="live"]');
await page.waitForTimeout(Math.max(1_300, Number(after) * 1_000 - (Date.now() - began)));
await page.screenshot({ path: file, fullPage: true });
await browser.close();
