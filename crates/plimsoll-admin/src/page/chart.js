// A stacked chart over ten minutes with one dashed line: uPlot draws lines and bands, the stacking
// is here.

import { hide, make, text } from "./dom.js";
import { clock, number } from "./format.js";
import { colour, hatch, onScheme } from "./theme.js";

const HEIGHT = 216;
const SPAN_S = 600;
const MIN_SPAN_S = 60;
/** Below this span, the marks of the axis need seconds. */
const SECONDS_SPAN_S = 240;

/** Sums of the layers up to each, from the bottom. A moment with nothing known is a gap. */
function stack(layers, length) {
  const below = new Array(length).fill(null);
  return layers.map(({ values }) =>
    values.map((value, place) => {
      if (value === null && below[place] === null) return null;
      below[place] = (below[place] ?? 0) + (value ?? 0);
      return below[place];
    }),
  );
}

/** A figure of an axis, without zeros that say nothing: `7.5`, `10`, `1.2k`. */
const tick = (value) =>
  number(value)
    .replace(/(\.\d*?)0+(?=\D?$)/, "$1")
    .replace(/\.(?=\D?$)/, "");

export class Chart {
  #place;
  #readout;
  #plot = null;
  #shape = "";
  #lineName = "";
  #frame = { times: [], layers: [], line: null, unit: "" };

  constructor(place) {
    this.#place = place;
    this.#readout = make("p", { class: "readout", "aria-hidden": "true" });
    new ResizeObserver(() => this.#plot?.setSize(this.#size())).observe(place);
    onScheme(() => this.#plot?.redraw(false));
  }

  /**
   * `layers`: `{ name, colour, hatched, values }` from the bottom; `line`: `{ name, values }` or
   * `null`;
   * `edge`: the number of layers below the strong line.
   */
  draw(frame) {
    this.#frame = frame;
    const { times, layers, line } = frame;
    const shape = layers.map(({ colour: hue, hatched }) => `${hue}${hatched}`).join() + Boolean(line);
    const sums = stack(layers, times.length);
    const data = [times, ...sums, ...(line ? [line.values] : [])];
    this.#lineName = line?.name ?? "";
    if (shape === this.#shape) {
      this.#plot.setData(data);
      return;
    }
    this.#shape = shape;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(frame), data, this.#place);
    this.#place.append(this.#readout);
  }

  #size() {
    return { width: Math.max(200, this.#place.clientWidth), height: HEIGHT };
  }

  #options({ layers, line, edge }) {
    const axis = {
      stroke: () => colour("muted"),
      grid: { stroke: () => colour("rule"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    return {
      ...this.#size(),
      padding: [14, 16, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: {
        // Ten minutes, or the life of a young process.
        x: { time: true, range: (_, first, last) => [Math.max(last - SPAN_S, Math.min(first, last - MIN_SPAN_S)), last] },
        y: { range: (_, low, high) => [0, Math.max(high ?? 0, 0.1) * 1.06] },
      },
      axes: [
        {
          ...axis,
          size: 24,
          space: 64,
          grid: { show: false },
          values: ({ scales: { x } }, times) =>
            times.map((at) => (x.max - x.min < SECONDS_SPAN_S ? clock(at) : clock(at).slice(0, 5))),
        },
        { ...axis, size: 40, space: 36, values: (_, values) => values.map(tick) },
      ],
      series: [
        {},
        ...layers.map((layer, place) => ({
          width: place + 1 === edge ? 1.5 : 0,
          stroke: () => colour("ink"),
          fill: place === 0 ? () => this.#fill(layer) : undefined,
          points: { show: false },
        })),
        ...(line ? [{ width: 2, dash: [7, 5], stroke: () => colour("ink"), points: { show: false } }] : []),
      ],
      bands: layers.slice(1).map((layer, place) => ({ series: [place + 2, place + 1], fill: () => this.#fill(layer) })),
      hooks: { draw: [(plot) => this.#label(plot)], setCursor: [(plot) => this.#read(plot)] },
    };
  }

  #fill({ colour: hue, hatched }) {
    return hatched ? hatch(hue) : colour(hue);
  }

  /** The name of the dashed line, at its left end: news is at the right. */
  #label(plot) {
    const values = this.#frame.line?.values;
    const first = values?.find((value) => value !== null);
    const last = values?.findLast((value) => value !== null);
    if (last === undefined || last === null) return;
    const pen = plot.ctx;
    const { left } = plot.bbox;
    pen.save();
    pen.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    const words = `${this.#lineName} ${number(last)}`;
    const [x, y] = [left + 6 * devicePixelRatio, plot.valToPos(first, "y", true) - 4 * devicePixelRatio];
    pen.lineWidth = 4 * devicePixelRatio;
    pen.lineJoin = "round";
    pen.strokeStyle = colour("panel");
    pen.strokeText(words, x, y);
    pen.fillStyle = colour("ink");
    pen.fillText(words, x, y);
    pen.restore();
  }

  /** The figures under the pointer. */
  #read(plot) {
    const place = plot.cursor.idx;
    const { times, layers, unit, names } = this.#frame;
    const isShown = place !== null && place !== undefined && plot.cursor.left >= 0;
    hide(this.#readout, !isShown);
    if (!isShown) return;
    const sum = (hatched) =>
      layers.reduce((total, layer) => (layer.hatched === hatched ? total + (layer.values[place] ?? 0) : total), 0);
    const [used, shed] = [sum(false), sum(true)];
    text(
      this.#readout,
      `${clock(times[place])}  ${names[0]} ${number(used + shed)}, ${names[1]} ${number(used)}, ${names[2]} ${number(shed)} ${unit}`,
    );
  }
}
