import { follow } from "./api.js";
import { address, element, link, say } from "./dom.js";
import { SHAPES, age, heard, many, moves, outdated } from "./format.js";

// The most rows that are in the page; the filter finds the others.
const MOST = 200;
const ORDER = ["act", "look", "moving", "none"];
const key = (namespace, config) => JSON.stringify([namespace, config]);

// How far a rollout is.
function reached({ reached: it }) {
  if (!it) return "";
  const bar = element("progress", { max: it.of, value: it.atOnce ? it.of : it.step, "aria-label": "steps that went out" });
  return element("div", { class: "soft reached" }, bar, it.atOnce ? " all pods at once" : ` step ${it.step} of ${it.of}`);
}

function cells(row) {
  const cell = (label, ...children) => element("td", { "data-label": label }, ...children);
  const hold = row.onHold ? ", on hold" : "";
  return [
    element("td", {}, element("span", { class: "soft" }, `${row.namespace} / `),
      link(address(row.namespace, row.config), row.config, { "data-key": key(row.namespace, row.config) })),
    cell("State", element("span", { class: row.attention }, `${SHAPES[row.attention]} ${row.state}${hold}`)),
    cell("Version", moves(row), reached(row)),
    cell("Pods", `${row.onTarget}/${row.total}`, row.failed ? `, ${row.failed} failed` : ""),
    cell("Since", row.since ? age(row.since, "", "") : "unknown"),
    cell("Why", row.message ? `${row.reason}: ${row.message}` : ""),
  ];
}

const text = (row) => `${row.namespace}/${row.config} ${row.state} ${moves(row)} ${row.reason}`.toLowerCase();

export function overview(main, signal, state) {
  const rows = new Map(), made = new Map();
  const heads = ["Config", "State", "Version", "Pods", "Since", "Why"].map((head) => element("th", { scope: "col" }, head));
  const body = element("tbody");
  const fault = element("p", { class: "notice", role: "alert", hidden: true });
  const summary = element("p", { role: "status", id: "summary" }, "Loading.");
  const filter = element("input", { id: "filter", type: "search", autocomplete: "off", oninput: () => show() });
  const label = element("label", { for: "filter" }, "Filter by name, state, version or reason");
  const table = element("table", { class: "stacks" }, element("thead", {}, element("tr", {}, ...heads)), body);
  main.replaceChildren(element("h1", {}, "Configs"), fault, label, filter, summary, table);

  function count(found) {
    if (!rows.size) return "There are no configs here yet. kubectl nudge create makes one.";
    const act = found.filter(([, row]) => row.attention === "act").length;
    const more = found.length > MOST ? `; the first ${MOST} are shown, filter to see others` : "";
    const wait = act === 1 ? "waits" : "wait";
    return `${found.length} of ${many(rows.size, "config")}; ${act} ${wait} for somebody to act${more}`;
  }

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const found = [...rows].filter(([, row]) => text(row).includes(wanted));
    const rank = (row) => ORDER.indexOf(row.attention);
    const sorted = found.sort(([one, a], [other, b]) => rank(a) - rank(b) || (one < other ? -1 : 1));
    const visible = sorted.slice(0, MOST).map(([name]) => made.get(name));
    const same = visible.length === body.children.length && visible.every((row, at) => body.children[at] === row);
    if (!same) {
      const focused = document.activeElement;
      body.replaceChildren(...visible);
      if (focused?.isConnected && focused !== document.activeElement) focused.focus();
    }
    table.hidden = !visible.length;
    say(summary, count(found));
  }

  let stale = false;
  follow("/api/overview", {}, signal, (line, first) => {
    heard(line.now);
    if (first) { rows.clear(); made.clear(); }
    if ("fault" in line || first) { stale = Boolean(line.fault); say(fault, outdated(line)); fault.hidden = !stale; }
    for (const [namespace, config] of line.gone ?? []) {
      rows.delete(key(namespace, config));
      made.delete(key(namespace, config));
    }
    for (const row of line.rows ?? []) {
      const name = key(row.namespace, row.config);
      const has = made.get(name)?.contains(document.activeElement);
      if (!made.has(name)) made.set(name, element("tr"));
      rows.set(name, row);
      made.get(name).replaceChildren(...cells(row));
      if (has) made.get(name).querySelector("a").focus();
    }
    if (line.rows || line.gone) show();
    return !stale;
  }, state);
}
