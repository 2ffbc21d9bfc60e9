import { element, say, shown } from "./dom.js";
import { many } from "./format.js";

// How the page says and draws each state, the worst first. Each has a shape, since colour alone says nothing to many.
const STATES = [
  ["harmed", "harmed", "--act", "cross"],
  ["unhealthy", "not Ready", "--look", "ring"],
  ["assigned", "assigned but not running it yet", "--move", "half"],
  ["running", "running it", "--good", "full"],
  ["waiting", "not in a step yet", "--track", "rest"],
];
const SIZE = 14, GAP = 3, APART = 10;

export const rank = (cell) => STATES.findIndex(([name]) => name === cell.state);
export const state = (cell) => STATES[rank(cell)][1];

export function words(cells) {
  const counts = {};
  for (const cell of cells) counts[cell.state] = (counts[cell.state] ?? 0) + 1;
  return STATES.filter(([name]) => counts[name]).map(([name, text]) => `${counts[name]} ${text}`).join(", ") || "none";
}

// The colours of the page as it is, light or dark.
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const colors = { ground: style.getPropertyValue("--card"), rim: style.getPropertyValue("--soft") };
  for (const [name, , color] of STATES) colors[name] = style.getPropertyValue(color);
  return colors;
}

const DRAW = {
  full: (on, x, y) => on.fillRect(x, y, SIZE, SIZE),
  ring: (on, x, y) => on.strokeRect(x + 2, y + 2, SIZE - 4, SIZE - 4),
  half(on, x, y) {
    on.strokeRect(x + 1, y + 1, SIZE - 2, SIZE - 2);
    on.fillRect(x, y + SIZE / 2, SIZE, SIZE / 2);
  },
  rest(on, x, y, colors) {
    on.fillRect(x, y, SIZE, SIZE);
    on.strokeStyle = colors.rim;
    on.lineWidth = 1;
    on.strokeRect(x + .5, y + .5, SIZE - 1, SIZE - 1);
  },
  cross(on, x, y, colors) {
    on.fillRect(x, y, SIZE, SIZE);
    on.strokeStyle = colors.ground;
    on.beginPath();
    on.moveTo(x + 3, y + 3);
    on.lineTo(x + SIZE - 3, y + SIZE - 3);
    on.moveTo(x + SIZE - 3, y + 3);
    on.lineTo(x + 3, y + SIZE - 3);
    on.stroke();
  },
};

function draw(on, [name, , , shape], colors, x, y) {
  on.fillStyle = on.strokeStyle = colors[name];
  on.lineWidth = 2;
  DRAW[shape](on, x, y, colors);
}

// A canvas of this size, sharp on any screen.
function sheet(canvas, width, height) {
  const scale = devicePixelRatio;
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const on = canvas.getContext("2d");
  on.scale(scale, scale);
  return on;
}

export function legend() {
  const samples = STATES.map((is) => ({ is, canvas: element("canvas", { "aria-hidden": "true" }) }));
  const items = samples.map(({ is: [, text], canvas }) => element("li", {}, canvas, text));
  return {
    whole: element("ul", { class: "legend", "aria-label": "What the pictures mean" }, items),
    paint: (colors) => samples.forEach(({ is, canvas }) => draw(sheet(canvas, SIZE, SIZE), is, colors, 0, 0)),
  };
}

const inOrder = (one, other) => (one.step ?? 0) - (other.step ?? 0) || (one.pod < other.pod ? -1 : 1);

// Where each pod stands: in rows, with a gap between steps.
function places(cells, width) {
  let x = 0, y = 0, step = cells[0]?.step;
  return cells.map((cell) => {
    if (cell.step !== step) x += APART;
    step = cell.step;
    if (x + SIZE > width) { x = 0; y += SIZE + GAP; }
    const place = { cell, x, y };
    x += SIZE + GAP;
    return place;
  });
}

function inWords(cells) {
  const steps = [...Map.groupBy(cells, (cell) => cell.step ?? 0)];
  if (steps.length < 2) return words(cells);
  return steps.map(([step, some]) => `${step ? `step ${step}` : "without steps"}: ${words(some)}`).join("; ");
}

// The pods of one workload: a picture, whatever their number one element, and the same in words.
export function workload(name, over) {
  const canvas = element("canvas", { role: "img" }), text = element("p", { class: "soft" });
  const title = name || "pods without a workload";
  let placed = [];
  const within = (at, from) => at >= from && at < from + SIZE + GAP;
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) =>
    over(placed.find(({ x, y }) => within(offsetX, x) && within(offsetY, y))?.cell));
  canvas.addEventListener("pointerleave", () => over());
  return {
    whole: element("div", { class: "workload" }, element("h3", {}, title), canvas, text),
    paint(cells, width, colors) {
      const sorted = [...cells].sort(inOrder);
      placed = places(sorted, width);
      const on = sheet(canvas, width, (placed.at(-1)?.y ?? 0) + SIZE);
      for (const { cell, x, y } of placed) draw(on, STATES[rank(cell)], colors, x, y);
      say(text, `${many(sorted.length, "pod")}. ${inWords(sorted)}`);
      canvas.setAttribute("aria-label", shown(`${title}: ${inWords(sorted)}`));
    },
  };
}
