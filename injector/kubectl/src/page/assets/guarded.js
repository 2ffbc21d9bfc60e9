import { element, soft } from "./dom.js";
import { SHAPES, age, ahead, many, moment } from "./format.js";

// What stands for each decision, besides its colour.
const MARKS = { Approve: ["✓", "none", "approved by"], Deny: ["■", "act", "DENIED by"] };

function decision({ approver, decision: is, reason, at }) {
  const [mark, color, words] = MARKS[is];
  return element("li", { class: `notice is-${color}` }, element("strong", { class: color }, `${mark} ${words} ${approver}`),
    at ? soft(age(Date.parse(at) / 1000, ", ")) : "", `: ${reason}`);
}

// Who has approved and denied the requested version, and how many must. What is missing, the condition Ready says.
export function approvals({ approval: it, current }) {
  if (!it) return [];
  const waits = it.version !== current;
  const needs = it.required && waits ? `Version ${it.version} needs ${many(it.required, "approval")}. ` : "";
  const nobody = it.given.length ? "" : `Nobody has approved or denied version ${it.version}.`;
  const digest = `The digest of version ${it.version} is ${it.digest}.`;
  return [element("p", {}, `${needs}${nobody} ${digest}`), element("ul", { class: "why" }, it.given.map(decision))];
}

// When versions may continue again, where that is what they wait for.
export const opens = ({ opens: at }) => at === undefined ? [] : element("p", { class: "notice is-moving" },
  element("strong", { class: "moving" }, `${SHAPES.moving} `, ahead(at, "May continue in ", "", "May continue now")), ` at ${moment(at)}`);

// What follows from the numbers of an analysis.
const VERDICTS = { Clear: ["●", "none"], Pending: ["▶", "moving"], Inconclusive: ["▲", "look"], Bad: ["■", "act"] };

function analysis(one, on) {
  const cell = (label, ...children) => element("td", { "data-label": label }, ...children);
  const [mark, color] = VERDICTS[one.verdict] ?? ["○", ""];
  return element("tr", {},
    element("td", {}, element("strong", {}, one.name)),
    cell(on, one.target ?? "no number"), cell("Other pods", one.control ?? "no number"), cell("Limit", one.limit || "unknown"),
    cell("Verdict", element("span", { class: color }, `${mark} ${one.verdict}`)),
    cell("Measured", one.at ? age(one.at) : "not yet"));
}

// The numbers that the version is judged by: of the pods with it, and of those without it.
export function analyses({ analyses: all, target }) {
  if (!all.length) return [];
  const on = `Pods on ${target}`;
  const head = ["Analysis", on, "Other pods", "Limit", "Verdict", "Measured"].map((text) => element("th", { scope: "col" }, text));
  return element("table", { class: "stacks" }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, all.map((one) => analysis(one, on))));
}
