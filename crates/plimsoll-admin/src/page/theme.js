// Colours for canvases, from the style sheet. Both colour schemes, and a change between them.

const scheme = matchMedia("(prefers-color-scheme: dark)");
let hatches = new Map();

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Calls when colours change. */
export function onScheme(change) {
  scheme.addEventListener("change", () => {
    hatches = new Map();
    change();
  });
}

/** Slanted lines of a colour: the sign of shed traffic, in charts as in bars. */
export function hatch(name) {
  if (!hatches.has(name)) hatches.set(name, draw(colour(name)));
  return hatches.get(name);
}

function draw(hue) {
  const size = Math.round(8 * devicePixelRatio);
  const canvas = document.createElement("canvas");
  canvas.width = size;
  canvas.height = size;
  const pen = canvas.getContext("2d");
  pen.fillStyle = hue;
  pen.strokeStyle = hue;
  pen.globalAlpha = 0.22;
  pen.fillRect(0, 0, size, size);
  pen.globalAlpha = 1;
  pen.lineWidth = size / 4;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
  }
  pen.stroke();
  return pen.createPattern(canvas, "repeat");
}
