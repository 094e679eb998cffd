// Keyboard only: every control, and the dialog before a command.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, texts, until, useBrowser } from "./harness.js";

useBrowser();

/** What has the focus: its name, and whether that can be seen. */
const focused = (page) =>
  page.evaluate(() => {
    const element = document.activeElement;
    const shown = element.type === "radio" ? element.nextElementSibling : element;
    const { outlineStyle, outlineWidth } = getComputedStyle(shown);
    return {
      name: element.id || element.getAttribute("aria-label") || element.name || element.textContent.trim().slice(0, 40),
      tag: element.tagName,
      isSeen: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2,
      isInDialog: element.closest("dialog") !== null,
    };
  });

async function tabTo(page, wanted) {
  for (let presses = 0; presses < 120; presses += 1) {
    await page.keyboard.press("Tab");
    const found = await focused(page);
    if (wanted(found)) return found;
  }
  return assert.fail("not reached by Tab");
}

test("every control is reached by Tab and shows its focus", async () => {
  const { page } = await open("overload");
  const reached = [];
  for (let presses = 0; presses < 150; presses += 1) {
    await page.keyboard.press("Tab");
    const found = await focused(page);
    if (found.tag === "BODY") break;
    assert.ok(found.isSeen, `focus on ${found.tag} ${found.name} is not seen`);
    reached.push(found.name);
  }
  for (const name of [
    "choice",
    "unit",
    "pause",
    "all-backends",
    "drain 10.0.0.19:8080",
    "id",
    "reason",
    "customer",
    "explain",
  ]) {
    assert.ok(reached.includes(name), `${name} is not reached: ${reached.join(" | ")}`);
  }
  const links = await page.locator("a.explains[href]").count();
  assert.ok(links > 10);
  assert.ok(reached.filter((name) => /^overloaded|^quota/.test(name)).length >= 6, "links to explain");
});

test("controls do their work by keyboard", async () => {
  const { page } = await open("overload");
  await tabTo(page, ({ name }) => name === "unit");
  await page.keyboard.press("ArrowRight");
  assert.deepEqual(await texts(page, "#demand h2"), ["Asked for and admitted, requests/s"]);
  await tabTo(page, ({ name }) => name === "pause");
  await page.keyboard.press("Space");
  assert.equal(await page.getAttribute("#connection", "data-state"), "paused");
  await page.keyboard.press("Space");
  await tabTo(page, ({ name }) => name === "all-backends");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#backends tbody tr").count(), 40);
});

test("drain asks first: Escape sends nothing, Enter on cancel neither", async () => {
  const { page, server } = await open("overload");
  const { name } = await tabTo(page, (found) => found.name.startsWith("drain "));
  await page.keyboard.press("Enter");
  assert.equal(await page.isVisible("#confirm"), true);
  assert.deepEqual(await texts(page, "#confirm-title"), [`${name}?`]);
  assert.match(
    (await texts(page, "#confirm-text"))[0],
    /^It gets no new requests.* 37 healthy backends of 40 remain\.$/,
  );
  assert.equal((await focused(page)).name, "cancel", "the harmless answer has the focus");
  for (let presses = 0; presses < 6; presses += 1) {
    await page.keyboard.press("Tab");
    const found = await focused(page);
    assert.ok(found.isInDialog || found.tag === "BODY", `the focus left the dialog: ${found.name}`);
  }
  await page.keyboard.press("Escape");
  await until(async () => !(await page.isVisible("#confirm")), "the dialog is closed");
  assert.equal((await focused(page)).name, name, "the focus is back");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await until(async () => !(await page.isVisible("#confirm")), "the dialog is closed");
  assert.deepEqual(server.commands, []);
});

test("drain and undrain by keyboard send one command each", async () => {
  const { page, server } = await open("overload");
  const { name } = await tabTo(page, (found) => found.name.startsWith("drain "));
  const address = name.split(" ")[1];
  for (const verb of ["drain", "undrain"]) {
    await until(async () => (await focused(page)).name === `${verb} ${address}`, `a button to ${verb}`);
    await page.keyboard.press("Enter");
    await tabTo(page, (found) => found.name === verb);
    await page.keyboard.press("Enter");
    await until(
      async () => (await texts(page, "#command"))[0] === `✓ ${verb} of ${address} accepted`,
      `the answer to ${verb}`,
    );
    assert.deepEqual(server.commands.at(-1), {
      path: `/api/v1/clusters/web/backends/${encodeURIComponent(address)}/${verb}`,
      site: "same-origin",
    });
  }
  assert.equal(server.commands.length, 2);
});

test("a refused command shows the message of the server", async () => {
  const { page } = await open("overload");
  await page.route("**/drain", (route) =>
    route.fulfill({ status: 404, json: { error: "there is no backend", help: "use one of: 10.0.0.2:8080" } }),
  );
  await page.locator("#backends tbody button").first().click();
  await page.click("#confirm .strong");
  await until(async () => /there is no backend; use one of/.test((await texts(page, "#command"))[0]), "the message");
});

test("rows stay in place under the focus while loads change", async () => {
  const { page, server } = await open("overload");
  const { name } = await tabTo(page, (found) => found.name.startsWith("drain "));
  const before = await texts(page, "#backends tbody .address");
  for (let updates = 0; updates < 3; updates += 1) {
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    server.tick();
  }
  const after = await texts(page, "#backends tbody .address");
  assert.deepEqual(after.slice(0, before.length), before);
  assert.equal((await focused(page)).name, name);
});
