import { legend, palette, rank, state, words, workload } from "./cells.js";
import { element, say, swap } from "./dom.js";
import { many } from "./format.js";

// The most workloads, and pods of the list, that are in the page.
const MOST_WORKLOADS = 60, MOST_LISTED = 50;

const HEADS = ["Pod", "Workload", "State", "Version", "Assigned", "Step", "Message"];

// Some pods with their texts, those first that need somebody.
function table(cells) {
  const order = (one, other) => rank(one) - rank(other) || (one.pod < other.pod ? -1 : 1);
  const row = (pod) => {
    const texts = [pod.pod, pod.workload, state(pod), pod.version, pod.assigned, pod.step, pod.message ?? ""];
    return element("tr", {}, texts.map((text, at) => element("td", at ? { "data-label": HEADS[at] } : {}, text ?? "none")));
  };
  const head = element("tr", {}, HEADS.map((text) => element("th", { scope: "col" }, text)));
  const rows = cells.sort(order).slice(0, MOST_LISTED).map(row);
  return element("table", { class: "stacks" }, element("thead", {}, head), element("tbody", {}, rows));
}

// The list of pods that somebody opens, with its filter.
function list(cells, later) {
  const listed = element("div");
  const filter = element("input", { id: "pod-filter", type: "search", autocomplete: "off", oninput: later });
  const label = element("label", { for: "pod-filter" }, "Filter by name, workload, version or message");
  const whole = element("details", { ontoggle: later }, element("summary", {}, "Pods by name"), label, filter, listed);
  const text = (cell) => [cell.pod, cell.workload, cell.version, cell.message].join(" ").toLowerCase();
  return {
    whole,
    show() {
      if (!whole.open) return;
      const asked = filter.value.trim().toLowerCase();
      const found = [...cells.values()].filter((cell) => text(cell).includes(asked));
      const count = found.length > MOST_LISTED ? `${MOST_LISTED} of ${found.length} are shown` : many(found.length, "pod");
      swap(listed, element("p", { class: "soft" }, count), table(found));
    },
  };
}

function inWords(cell) {
  const step = cell.step ? `, step ${cell.step}` : "", message = cell.message ? `; ${cell.message}` : "";
  return `${cell.pod}: ${state(cell)}; runs ${cell.version ?? "no version"}, assigned ${cell.assigned ?? "none"}${step}${message}`;
}

// The workloads with the most pods, and the pods of all others.
function largest(cells) {
  const by = [...Map.groupBy(cells, (cell) => cell.workload ?? "")];
  by.sort(([one, some], [other, more]) => more.length - some.length || (one < other ? -1 : 1));
  return [by.slice(0, MOST_WORKLOADS), by.slice(MOST_WORKLOADS).flatMap(([, some]) => some)];
}

export function pods(into, signal) {
  const cells = new Map(), made = new Map(), dirty = new Set();
  let more = 0, waits = false, known = false, everything = false, names = false;
  const fault = element("p", { class: "notice", hidden: true });
  const summary = element("p", { id: "pod-summary", role: "status" }, "Loading.");
  const hint = element("p", { class: "soft hint", "aria-hidden": "true" });
  const pictures = element("div"), rest = element("p", { class: "soft" }), meaning = legend();
  const named = list(cells, () => { names = true; later(); });
  into.replaceChildren(fault, summary, meaning.whole, hint, pictures, rest, named.whole);
  const over = (cell) => say(hint, cell ? inWords(cell) : "Point at a pod to see its name.");
  over();

  // Paints the workloads that have changed.
  function paint(shown, colors) {
    const width = Math.max(200, Math.floor(into.clientWidth)), kept = new Set(shown.map(([name]) => name));
    for (const name of made.keys()) if (!kept.has(name)) made.delete(name);
    for (const [name, some] of shown) {
      const fresh = !made.has(name);
      if (fresh) made.set(name, workload(name, over));
      if (fresh || everything || dirty.has(name)) made.get(name).paint(some, width, colors);
    }
    const wanted = shown.map(([name]) => made.get(name).whole);
    const same = wanted.length === pictures.children.length && wanted.every((one, at) => pictures.children[at] === one);
    if (!same) pictures.replaceChildren(...wanted);
  }

  function show() {
    waits = false;
    if (signal.aborted) return;
    const [shown, others] = largest(cells.values()), colors = palette();
    paint(shown, colors);
    if (everything) meaning.paint(colors);
    const other = others.length ? `Other workloads: ${many(others.length, "pod")}: ${words(others)}.` : "";
    say(rest, `${other} ${more ? `${many(more, "more pod")} are not shown.` : ""}`);
    const count = cells.size ? `${many(cells.size + more, "pod")}: ${words(cells.values())}` : "No pod with an agent uses the config.";
    if (known) say(summary, count);
    meaning.whole.hidden = hint.hidden = named.whole.hidden = !cells.size;
    if (names || everything || dirty.size) named.show();
    dirty.clear();
    everything = names = false;
  }

  // However much changes, it is shown once in a frame.
  function later() {
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
        if (line.podsFault && !known) say(summary, "Pods are not known.");
      }
      if ("more" in line) { more = line.more; known = true; }
      const touch = (cell) => cell && dirty.add(cell.workload ?? "");
      for (const name of line.gone ?? []) { touch(cells.get(name)); cells.delete(name); }
      for (const cell of line.pods ?? []) { touch(cells.get(cell.pod)); touch(cell); cells.set(cell.pod, cell); }
      if (first || "more" in line || line.gone || line.pods) later();
    },
  };
}
