import { element, say, shown, swap } from "./dom.js";

// How the page says and draws each state, the worst first. Each has a shape, since colour alone says nothing to many.
const STATES = [
  ["harmed", "harmed", "--act", "cross"], ["unhealthy", "not Ready", "--look", "ring"], ["assigned", "assigned but not running it yet", "--move", "half"],
  ["running", "running it", "--good", "full"], ["waiting", "not in a step yet", "--track", "rest"],
];
const SIZE = 14, GAP = 3, APART = 10;
// The most workloads, and pods of the list, that are in the page.
const MOST_GROUPS = 60, MOST_LISTED = 50;

const words = (counts) => STATES.filter(([name]) => counts[name]).map(([name, text]) => `${counts[name]} ${text}`).join(", ") || "none";

const many = (number) => `${number} ${number === 1 ? "pod" : "pods"}`;

function count(cells) {
  const counts = {};
  for (const cell of cells) counts[cell.state] = (counts[cell.state] ?? 0) + 1;
  return counts;
}

const inOrder = (one, other) => (one.step ?? 0) - (other.step ?? 0) || (one.pod < other.pod ? -1 : 1);

function draw(context, shape, color, x, y) {
  context.fillStyle = context.strokeStyle = color;
  if (shape === "full") context.fillRect(x, y, SIZE, SIZE);
  else if (shape === "rest") {
    context.fillRect(x, y, SIZE, SIZE);
    context.strokeStyle = context.rim;
    context.lineWidth = 1;
    context.strokeRect(x + .5, y + .5, SIZE - 1, SIZE - 1);
    context.lineWidth = 2;
  } else if (shape === "half") { context.strokeRect(x + 1, y + 1, SIZE - 2, SIZE - 2); context.fillRect(x, y + SIZE / 2, SIZE, SIZE / 2); }
  else if (shape === "ring") context.strokeRect(x + 2, y + 2, SIZE - 4, SIZE - 4);
  else {
    context.fillRect(x, y, SIZE, SIZE);
    context.strokeStyle = context.ground;
    context.beginPath();
    context.moveTo(x + 3, y + 3); context.lineTo(x + SIZE - 3, y + SIZE - 3);
    context.moveTo(x + SIZE - 3, y + 3); context.lineTo(x + 3, y + SIZE - 3);
    context.stroke();
  }
}

// The pods of one workload: a picture of fixed cost, and the same in words.
function group(name, over) {
  const canvas = element("canvas", { role: "img" });
  const text = element("p", { class: "soft" });
  const whole = element("div", { class: "workload" }, element("h3", {}, name || "pods without a workload"), canvas, text);
  let places = [];
  canvas.addEventListener("pointermove", (event) => {
    const found = places.find(({ x, y }) => event.offsetX >= x && event.offsetX < x + SIZE + GAP && event.offsetY >= y && event.offsetY < y + SIZE + GAP);
    over(found?.cell);
  });
  canvas.addEventListener("pointerleave", () => over());
  const paint = (cells, width, colors) => {
    const sorted = [...cells].sort(inOrder);
    const perStep = Object.entries(Object.groupBy(sorted, (cell) => cell.step ?? 0));
    let x = 0, y = 0, step = sorted[0]?.step;
    places = sorted.map((cell) => {
      // A gap stands between steps.
      if (cell.step !== step) { x += APART; step = cell.step; }
      if (x + SIZE > width) { x = 0; y += SIZE + GAP; }
      const place = { cell, x, y };
      x += SIZE + GAP;
      return place;
    });
    const height = y + SIZE, scale = devicePixelRatio;
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.lineWidth = 2;
    Object.assign(context, { ground: colors.ground, rim: colors.rim });
    for (const place of places) draw(context, ...colors[place.cell.state], place.x, place.y);
    const steps = perStep.length > 1 ? perStep.map(([at, some]) => `${at === "0" ? "without steps" : `step ${at}`}: ${words(count(some))}`).join("; ") : words(count(sorted));
    say(text, `${many(sorted.length)}. ${steps}`);
    canvas.setAttribute("aria-label", shown(`${name || "pods without a workload"}: ${steps}`));
  };
  return { whole, paint, places: () => places };
}

function palette() {
  const style = getComputedStyle(document.documentElement);
  const colors = { ground: style.getPropertyValue("--card"), rim: style.getPropertyValue("--soft") };
  for (const [name, , color, shape] of STATES) colors[name] = [shape, style.getPropertyValue(color)];
  return colors;
}

function legend() {
  return element("ul", { class: "legend", "aria-label": "What the pictures mean" }, STATES.map(([name, text]) =>
    element("li", {}, element("canvas", { width: SIZE, height: SIZE, "data-state": name, "aria-hidden": "true" }), text)));
}

// Some pods with their texts, those first that need somebody.
function table(cells) {
  const rank = (cell) => STATES.findIndex(([name]) => name === cell.state);
  const first = [...cells].sort((one, other) => rank(one) - rank(other) || (one.pod < other.pod ? -1 : 1)).slice(0, MOST_LISTED);
  const heads = ["Pod", "Workload", "State", "Version", "Assigned", "Step", "Message"].map((head) => element("th", { scope: "col" }, head));
  const cell = (label, text) => element("td", { "data-label": label }, text);
  const row = (pod) => element("tr", {}, element("td", {}, pod.pod), cell("Workload", pod.workload ?? "none"), cell("State", STATES[rank(pod)][1]), cell("Version", pod.version ?? "none"),
    cell("Assigned", pod.assigned ?? "none"), cell("Step", pod.step ?? "none"), cell("Message", pod.message ?? ""));
  return element("table", { class: "stacks" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, first.map(row)));
}

export function pods(into, signal) {
  const cells = new Map(), groups = new Map(), dirty = new Set();
  const fault = element("p", { class: "notice", hidden: true });
  const summary = element("p", { id: "pod-summary", role: "status" }, "Loading.");
  const hint = element("p", { class: "soft hint", "aria-hidden": "true" });
  const pictures = element("div"), listed = element("div"), rest = element("p", { class: "soft" });
  const filter = element("input", { id: "pod-filter", type: "search", autocomplete: "off", oninput: () => later(true) });
  const list = element("details", { ontoggle: () => later(true) }, element("summary", {}, "Pods by name"), element("label", { for: "pod-filter" }, "Filter by name, workload, version or message"), filter, listed);
  into.replaceChildren(fault, summary, legend(), hint, pictures, rest, list);
  let more = 0, waits = false, known = false, everything = false, names = false;

  const over = (cell) => say(hint, cell ? `${cell.pod}: ${STATES.find(([name]) => name === cell.state)[1]}; runs ${cell.version ?? "no version"}, assigned ${cell.assigned ?? "none"}${cell.step ? `, step ${cell.step}` : ""}${cell.message ? `; ${cell.message}` : ""}` : "");

  function show() {
    waits = false;
    if (signal.aborted) return;
    const by = Map.groupBy(cells.values(), (cell) => cell.workload ?? "");
    const size = ([, some]) => some.length;
    const kept = new Map([...by].sort((one, other) => size(other) - size(one) || (one[0] < other[0] ? -1 : 1)).slice(0, MOST_GROUPS));
    const colors = palette(), width = Math.max(200, Math.floor(into.clientWidth));
    for (const name of groups.keys()) if (!kept.has(name)) groups.delete(name);
    for (const [name, some] of kept) {
      const fresh = !groups.has(name);
      if (fresh) groups.set(name, group(name, over));
      if (fresh || everything || dirty.has(name)) groups.get(name).paint(some, width, colors);
    }
    const wanted = [...kept.keys()].map((name) => groups.get(name).whole);
    if (wanted.length !== pictures.children.length || wanted.some((one, at) => pictures.children[at] !== one)) pictures.replaceChildren(...wanted);
    for (const canvas of into.querySelectorAll("canvas[data-state]")) {
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, SIZE, SIZE);
      context.lineWidth = 2;
      Object.assign(context, { ground: colors.ground, rim: colors.rim });
      draw(context, ...colors[canvas.dataset.state], 0, 0);
    }
    const others = [...by.keys()].filter((name) => !kept.has(name)).flatMap((name) => by.get(name));
    say(rest, [others.length ? `Other workloads: ${many(others.length)}: ${words(count(others))}.` : "", more ? `${many(more)} more: not shown.` : ""].join(" "));
    if (known) say(summary, cells.size ? `${many(cells.size + more)}: ${words(count(cells.values()))}` : "No pod with an agent uses the config.");
    if (list.open && (names || dirty.size || everything)) {
      const text = filter.value.trim().toLowerCase();
      const found = [...cells.values()].filter((cell) => [cell.pod, cell.workload, cell.version, cell.message].join(" ").toLowerCase().includes(text));
      swap(listed, element("p", { class: "soft" }, found.length > MOST_LISTED ? `${MOST_LISTED} of ${found.length} are shown` : many(found.length)), table(found));
    }
    dirty.clear();
    everything = names = false;
  }

  function later(list) {
    names ||= list === true;
    if (waits) return;
    waits = true;
    requestAnimationFrame(show);
  }

  const all = () => { everything = true; later(); };
  addEventListener("resize", all, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all, { signal });
  return {
    apply(line, first) {
      if (first) { cells.clear(); everything = true; known = false; }
      if ("podsFault" in line || first) {
        say(fault, line.podsFault ? `Pods may be missing or out of date: ${line.podsFault}` : "");
        fault.hidden = !line.podsFault;
        if (line.podsFault) say(summary, "Pods are not known.");
      }
      if ("more" in line) { more = line.more; known = true; }
      for (const name of line.gone ?? []) { dirty.add(cells.get(name)?.workload ?? ""); cells.delete(name); }
      for (const cell of line.pods ?? []) {
        const before = cells.get(cell.pod);
        if (before) dirty.add(before.workload ?? "");
        cells.set(cell.pod, cell);
        dirty.add(cell.workload ?? "");
      }
      if (first || "more" in line || line.gone || line.pods) later();
    },
  };
}
