import { element } from "./dom.js";
import { age, moment, period } from "./format.js";

const MARKS = { Open: ["▶", "moving"], Current: ["●", "none"], Returned: ["●", "none"], Left: ["▲", "look"], Paused: ["■", "act"], RolledBack: ["■", "act"] };
const cell = (label, ...children) => element("td", { "data-label": label }, ...children);
const table = (heads, rows) => element("table", { class: "stacks" },
  element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))), element("tbody", {}, rows));

// What was asked for, by whom, and what became of it; the newest first.
export function releases({ releases: all }) {
  if (!all.length) return element("p", {}, "There is no release yet.");
  const row = (release) => {
    const [mark, color] = MARKS[release.outcome] ?? ["○", ""];
    const steps = release.steps.map(([at, pods]) => `${pods} ${pods === 1 ? "pod" : "pods"} after ${period(at - release.beganAt)}`).join(", ");
    const texts = [release.why, release.evidence, release.atOnce ? `at once: ${release.atOnce}` : "", steps ? `steps: ${steps}` : ""].filter((text) => text);
    return element("tr", {}, element("td", {}, element("strong", {}, release.version), element("span", { class: "soft" }, release.from ? ` from ${release.from}` : " (the first)")),
      cell("Outcome", element("span", { class: color }, `${mark} ${release.outcome}`)), cell("Requested by", release.requestedBy ?? "<unknown>"),
      cell("Began", age(release.beganAt)), cell("Took", release.endedAt ? element("span", { title: moment(release.endedAt) }, period(release.endedAt - release.beganAt)) : "open"),
      cell("Verdict", texts.map((text) => element("div", {}, text))));
  };
  return table(["Version", "Outcome", "Requested by", "Began", "Took", "Verdict"], all.map(row));
}

// Conditions that are good news when they are true.
const GOOD = ["Ready", "Published", "SecretPublished", "Restarted", "Fetched", "Valid"];

export function conditions({ conditions: all }) {
  if (!all.length) return element("p", {}, "Nudge has not said anything about the config yet.");
  const row = (condition) => {
    const neutral = condition.type === "Reconciling";
    const fine = (condition.status === "True") === GOOD.includes(condition.type);
    const [mark, color] = fine ? ["●", "none"] : condition.action ? ["■", "act"] : neutral ? ["▶", "moving"] : ["▲", "look"];
    return element("tr", {}, element("td", {}, element("strong", {}, condition.type)), cell("Is", element("span", { class: color }, `${mark} ${condition.status}`)), cell("Reason", condition.reason),
      cell("Says", element("div", {}, condition.message), fine ? "" : element("div", { class: "soft" }, `${condition.meaning}${condition.action ? " Somebody has to act." : ""}`)), cell("Since", age(condition.since, "", "")));
  };
  return table(["Condition", "Is", "Reason", "Says", "Since"], all.map(row));
}
