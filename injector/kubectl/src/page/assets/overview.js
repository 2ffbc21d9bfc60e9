import { follow } from "./api.js";
import { element } from "./dom.js";

const SHAPES = { none: "●", moving: "▶", look: "▲", act: "■" };
const key = (row) => JSON.stringify([row.namespace, row.config]);

export function since(seconds, now) {
  const age = Math.max(0, Math.floor(now / 1000 - seconds));
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (age >= length) return `${Math.floor(age / length)} ${unit}`;
  return `${age} s`;
}

function version(row) {
  return row.target && row.target !== row.current ? `${row.current ?? "none"} → ${row.target}` : row.current ?? "none";
}

function cells(row, now) {
  const cell = (label, ...children) => element("td", { "data-label": label }, ...children);
  const bar = element("progress", { max: Math.max(row.total, 1), value: row.updated, "aria-label": "pods that run their version" });
  const paused = row.paused ? ", paused" : "";
  return [
    element("td", {}, element("span", { class: "soft" }, `${row.namespace} / `), element("strong", {}, row.config)),
    cell("Phase", element("span", { class: row.attention }, `${SHAPES[row.attention]} ${row.phase}${paused}`)),
    cell("Version", version(row)),
    cell("Pods", bar, ` ${row.updated}/${row.total}`, row.failed ? `, ${row.failed} failed` : ""),
    cell("Since", row.since ? since(row.since, now) : "unknown"),
    cell("Why", row.message ? `${row.reason}: ${row.message}` : ""),
  ];
}

export function overview(main, signal, state) {
  const rows = new Map(), elements = new Map();
  const heads = ["Config", "Phase", "Version", "Pods", "Since", "Why"].map((head) => element("th", { scope: "col" }, head));
  const body = element("tbody");
  const fault = element("p", { class: "notice", role: "alert", hidden: true });
  const summary = element("p", { role: "status" }, "Loading.");
  const filter = element("input", { id: "filter", type: "search", oninput: () => show() });
  main.replaceChildren(element("h1", {}, "Configs"), fault, element("label", { for: "filter" }, "Filter"), filter, summary,
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    let visible = 0, act = 0;
    for (const [name, row] of rows) {
      const is = `${row.namespace}/${row.config} ${row.phase} ${row.current} ${row.target} ${row.reason}`.toLowerCase().includes(wanted);
      elements.get(name).hidden = !is;
      visible += is;
      act += is && row.attention === "act";
    }
    const text = `${visible} of ${rows.size} configs; ${act} wait for somebody to act`;
    if (summary.textContent !== text) summary.textContent = text;
  };
  return follow("/api/overview", {}, signal, (line, first) => {
    if (first) { rows.clear(); elements.clear(); body.replaceChildren(); }
    if ("fault" in line || first) { fault.textContent = line.fault ?? ""; fault.hidden = !line.fault; }
    for (const gone of line.gone ?? []) {
      const name = JSON.stringify(gone);
      elements.get(name)?.remove();
      rows.delete(name);
      elements.delete(name);
    }
    let added = false;
    for (const row of line.rows ?? []) {
      const name = key(row);
      rows.set(name, row);
      if (!elements.has(name)) { elements.set(name, element("tr")); added = true; }
      elements.get(name).replaceChildren(...cells(row, line.now));
    }
    if (added) body.append(...[...elements.keys()].sort().map((name) => elements.get(name)));
    if (line.rows || line.gone) show();
  }, state);
}
