// Pictures of every scene, width and colour scheme: node pictures.js [FOLDER] [SCENE...]

import { mkdirSync } from "node:fs";

import { launch } from "./browser.js";
import { MockServer } from "./mock/server.js";

const [folder = "pictures", ...only] = process.argv.slice(2);
const SCENES =
  only.length > 0 ? only : ["fine", "as-intended", "overload", "capacity-short", "huge", "no-gate", "quota", "fleet"];
const WIDTHS = [1440, 1024, 400];

mkdirSync(folder, { recursive: true });
const browser = await launch();
for (const scene of SCENES) {
  const server = new MockServer(scene);
  // The same moment in every picture.
  const began = Date.now() / 1_000;
  server.now = () => 1_764_338_591 + Date.now() / 1_000 - began;
  await server.start();
  for (const colorScheme of ["light", "dark"]) {
    for (const width of WIDTHS) {
      const page = await browser.newPage({
        viewport: { width, height: 900 },
        colorScheme,
        timezoneId: "UTC",
        locale: "en-GB",
      });
      await page.goto(server.url);
      await page.waitForSelector('#connection[data-state="live"]');
      await page.waitForTimeout(1_300);
      await page.screenshot({ path: `${folder}/${scene}-${width}-${colorScheme}.png`, fullPage: true });
      await page.close();
    }
  }
  await server.stop();
}
await browser.close();
