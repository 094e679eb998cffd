// Figures in the tables, against the event that the server sent.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, texts, until, useBrowser } from "./harness.js";

useBrowser();

/** A server whose clock stands still sends the same event again and again. */
const frozen = (server) => {
  server.now = () => 1_764_338_591.5;
};

const three = (value) =>
  value === 0 ? "0" : value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
const share = (value) => (value < 0.0995 ? `${(100 * value).toFixed(1)}%` : `${(100 * value).toFixed(0)}%`);

async function demandTable(page) {
  const rows = await page.locator("#demand tbody tr").all();
  return Promise.all(rows.map(async (row) => (await row.locator("td").allTextContents()).slice(0, 3)));
}

function expected(event, unit) {
  return event.cluster.demand.map((row) => {
    const [offered, admitted, shed] = ["offered", "admitted", "shed"].map((name) => row[`${name}_${unit}`]);
    return [three(offered), three(admitted), `${shed > 0 ? share(shed / offered) : ""} ${three(shed)}`];
  });
}

test("offered, admitted and shed are those of the event, in CPUs and in requests", async () => {
  const { page, server } = await open("overload", { prepare: frozen });
  const event = server.event();
  assert.deepEqual(await demandTable(page), expected(event, "cpus"));
  await page.check('input[value="qps"]');
  assert.deepEqual(await demandTable(page), expected(event, "qps"));
  assert.deepEqual(await texts(page, "#demand h2"), ["Asked for and admitted, requests/s"]);
  assert.match(page.url(), /unit=qps/);
  await page.reload();
  await page.waitForSelector('#connection[data-state="live"]');
  assert.deepEqual(await demandTable(page), expected(event, "qps"), "the address remembers the unit");
  await page.check('input[value="cpus"]');
  assert.deepEqual(await demandTable(page), expected(event, "cpus"));
});

test("reasons have their names and plain words", async () => {
  const { page, server } = await open("overload", { prepare: frozen });
  const { shed } = server.event().cluster.demand[3];
  assert.deepEqual(await texts(page, "#demand tbody tr:nth-child(4) .reasons p"), [
    `overloaded ${three(shed.overloaded.cpus)}the process has no headroom`,
    `quota ${three(shed.quota.cpus)}the customer is at its limit`,
  ]);
});

test("backends are the four most loaded and all unhealthy, and all on demand", async () => {
  const { page, server } = await open("overload", { prepare: frozen });
  const { backends } = server.event().cluster;
  const healthy = backends.rows.filter(({ state }) => state === "healthy").sort((one, other) => other.load - one.load);
  const shown = await texts(page, "#backends tbody .address");
  assert.deepEqual(
    shown.slice(0, 4),
    healthy.slice(0, 4).map(({ address }) => address),
  );
  assert.deepEqual(
    shown.slice(4).sort(),
    backends.rows
      .filter(({ state }) => state !== "healthy")
      .map(({ address }) => address)
      .sort(),
  );
  assert.deepEqual(await texts(page, "#backends tbody tr:nth-child(5) small"), ["ejected, consecutive failures"]);
  const note = await page.textContent("#backends .note");
  assert.match(
    note,
    new RegExp(`38 healthy .* max/mean ${three(backends.max_over_mean)} · waste ${three(backends.waste)} backends`),
  );
  assert.equal(await page.locator(".bars div > i").count(), 40, "a bar for each");
  await page.click("#all-backends");
  assert.equal(await page.locator("#backends tbody tr").count(), 40);
  assert.equal(await page.getAttribute("#all-backends", "aria-expanded"), "true");
});

test("many backends are a histogram, the twenty most loaded and the unhealthy ones", async () => {
  const { page, server } = await open("huge", { prepare: frozen });
  const { histogram } = server.event().cluster.backends;
  assert.equal(await page.locator(".bars div > i").count(), 20);
  const highest = histogram.indexOf(Math.max(...histogram));
  const heights = await page
    .locator(".bars div > i")
    .evaluateAll((bars) => bars.map((bar) => parseFloat(bar.style.getPropertyValue("--height"))));
  assert.equal(heights[highest], 100);
  assert.deepEqual(await texts(page, "#backends h2"), ["CPU of 10,000 backends"]);
  assert.equal(await page.locator('#backends tbody tr[data-state="healthy"]').count(), 20);
  assert.equal(await page.locator('#backends tbody tr[data-state="ejected"]').count(), 20);
  assert.deepEqual(await texts(page, "#left-off"), ["37 more unhealthy"]);
});

test("customers show demand, use, shed and limits", async () => {
  const { page, server } = await open("overload", { prepare: frozen });
  const [acme] = server.event().cluster.customers;
  const cells = await page.locator("#customers tbody").first().locator("tr:first-child td").allTextContents();
  assert.deepEqual(cells, [acme.offered_cpus, acme.used_cpus, acme.shed_cpus].map(three));
  const words = (await texts(page, "#customers tbody:nth-of-type(1) small"))[0];
  assert.equal(words, "soft 2.00 · hard 4.00 · fleet 19.8 of 20.0, asks for 40.4 · 40% of sheddable admitted");
  assert.equal(
    await page.locator("#customers tbody:nth-of-type(1) .meter i:not([hidden])").count(),
    4,
    "used, shed, two limits",
  );
  assert.equal(await page.locator("#customers tbody:nth-of-type(4) .meter i:not([hidden])").count(), 2, "no limits");
});

test("traffic shows throttled, retries, hedges and batch work", async () => {
  const { page, server } = await open("overload", { prepare: frozen });
  const { traffic } = server.event().cluster;
  const rows = await page
    .locator("#traffic tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [
        row.querySelector("th").textContent,
        row.querySelector(".number").textContent,
        row.querySelector(".details").textContent,
      ]),
    );
  const byName = Object.fromEntries(rows.map(([name, ...rest]) => [name, rest]));
  assert.deepEqual(byName.throttled, [
    `${three(traffic.throttled.sheddable + 2.1)}/s`,
    "not sent now: sheddable 42%",
  ]);
  assert.deepEqual(byName.retries, [
    `${three(traffic.retries_qps)}/s`,
    "97% of the budget used, 21.5/s denied: budget",
  ]);
  assert.equal(byName["batch queue"][1], "1 at backends, credit 1.20");
  assert.equal(byName.hedges[1], `${share(traffic.hedges_won_qps / traffic.hedges_qps)} answered first`);
});

test("changes show states, verdicts and reloads with their times", async () => {
  const { page, server } = await open("overload", { prepare: frozen });
  const [first] = server.event().changes;
  const shown = await texts(page, "#traffic ~ .changes li");
  assert.equal(shown.length, server.event().changes.length);
  const time = new Date(first.at * 1_000).toISOString().slice(11, 19);
  assert.equal(shown[0], `${time}◆verdict: web users-affected, was fine2 min ago`);
});

test("numbers, shares and spans have two or three digits and a unit", async () => {
  const { page } = await open("fine");
  const formatted = await page.evaluate(async () => {
    const { number, percent, span, milliseconds, counted } = await import("/format.js");
    return {
      number: [0, 0.001, 0.42, 8, 11.42, 812.4, 1_240, 999_600, null, NaN].map(number),
      percent: [0, 0.0004, 0.004, 0.15, 0.999, 1, null].map(percent),
      span: [0, 45, 120, 3_600 * 2 + 600, 7_190, 86_400 * 3].map(span),
      milliseconds: [0.42, 12, 1_200].map(milliseconds),
      counted: [counted(1, "backend"), counted(10_000, "backend")],
    };
  });
  assert.deepEqual(formatted, {
    number: ["0", "<0.01", "0.42", "8.00", "11.4", "812", "1.24k", "1.00M", "–", "–"],
    percent: ["0%", "<0.1%", "0.4%", "15%", ">99%", "100%", "–"],
    span: ["0 s", "45 s", "2 min", "2 h 10 min", "2 h", "3 d"],
    milliseconds: ["0.42 ms", "12.0 ms", "1.20 s"],
    counted: ["1 backend", "10,000 backends"],
  });
});

test("chart tells the figures under the pointer", async () => {
  const { page, server } = await open("overload", { prepare: frozen });
  const { x, y, width, height } = await page.locator("#demand .u-over").boundingBox();
  await page.mouse.move(x + width - 1, y + height / 2);
  const total = (name) => three(server.event().cluster.demand.reduce((sum, row) => sum + row[`${name}_cpus`], 0));
  await until(
    async () =>
      (await page.textContent("#demand .readout")).includes(
        `offered ${total("offered")}, admitted ${total("admitted")}, shed ${total("shed")} CPUs`,
      ),
    "the figures of now",
  );
});

/**
 * A value with `nothing` in place of every number: `null`, or `undefined`, which JSON leaves out.
 */
function unknown(value, nothing) {
  if (typeof value === "number" || value === null) return nothing;
  if (Array.isArray(value)) return value.map((part) => unknown(part, nothing));
  if (typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, unknown(part, nothing)]));
}

const unknownScenes = ["overload", "huge", "no-gate", "quota"].flatMap((scene) => [
  [scene, null],
  [scene, undefined],
]);
for (const [scene, nothing] of unknownScenes) {
  test(`numbers that are ${nothing} are dashes: ${scene}`, async () => {
    const { page } = await open(scene, {
      prepare: (server) => {
        const event = server.event.bind(server);
        server.event = (...moment) => {
          const made = event(...moment);
          for (const part of ["cluster", "service", "batch"]) made[part] = unknown(made[part], nothing);
          made.sample = { ...unknown(made.sample, nothing), at: made.sample.at };
          return made;
        };
      },
    });
    const words = await page.innerText("main");
    assert.doesNotMatch(words, /NaN|undefined|Infinity|null/);
    assert.match(words, /–/);
  });
}

test("a proxy without a cluster says so", async () => {
  const { page } = await open("fine", {
    prepare: (server) => {
      const event = server.event.bind(server);
      server.event = (...moment) => ({ ...event(...moment), verdict: null, clusters: [], cluster: null, batch: [] });
    },
  });
  assert.deepEqual(await texts(page, "h1 .word"), ["No cluster"]);
  assert.equal(await page.isVisible(".grid"), false);
});

test("another cluster is shown when it is chosen", async () => {
  const { page, server } = await open("overload");
  await page.selectOption("#choice", "search");
  await until(async () => (await texts(page, "h1 .word"))[0] === "Fine", "the other cluster");
  assert.match(page.url(), /cluster=search/);
  assert.deepEqual(server.opened, ["", "cluster=search"]);
  await until(() => server.streams.size === 1, "one stream is left");
});
