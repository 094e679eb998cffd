// The browser of the tests: Debian's chromium-headless-shell, or the one named by
// PLIMSOLL_CHROMIUM.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium-headless-shell", "/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium"];

export function launch() {
  const executablePath = process.env.PLIMSOLL_CHROMIUM ?? PLACES.find(existsSync);
  if (!executablePath) throw new Error("no browser: install chromium-headless-shell, or set PLIMSOLL_CHROMIUM");
  // The sandbox needs rights that a container does not give; the pages are our own.
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}
