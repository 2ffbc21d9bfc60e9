import { element, soft } from "./dom.js";
import { age, many, moment, period } from "./format.js";

// Each outcome has a mark, since colour alone says nothing to many.
const MARKS = {
  Open: ["▶", "moving"], Current: ["●", "none"], Returned: ["●", "none"],
  Left: ["▲", "look"], Paused: ["■", "act"], RolledBack: ["■", "act"],
};

const cell = (label, ...children) => element("td", { "data-label": label }, ...children);

function table(heads, rows) {
  const head = element("tr", {}, heads.map((text) => element("th", { scope: "col" }, text)));
  return element("table", { class: "stacks" }, element("thead", {}, head), element("tbody", {}, rows));
}

// Why it ended so, and what was counted for and against it.
function verdict({ why, evidence, atOnce, steps, beganAt }) {
  const out = steps.map(([at, pods]) => `${many(pods, "pod")} after ${period(at - beganAt)}`).join(", ");
  const texts = [why, evidence, atOnce && `at once: ${atOnce}`, out && `steps: ${out}`];
  return texts.filter((text) => text).map((text) => element("div", {}, text));
}

function release(one) {
  const [mark, color] = MARKS[one.outcome] ?? ["○", ""];
  const took = () => element("span", { title: moment(one.endedAt) }, period(one.endedAt - one.beganAt));
  return element("tr", {},
    element("td", {}, element("strong", {}, one.version), soft(one.from ? ` from ${one.from}` : " (the first)")),
    cell("Outcome", element("span", { class: color }, `${mark} ${one.outcome}`)),
    cell("Requested by", one.requestedBy ?? "<unknown>"),
    cell("Began", age(one.beganAt)),
    cell("Took", one.endedAt ? took() : "open"),
    cell("Verdict", verdict(one)));
}

// What was asked for, by whom, and what became of it; the newest first.
export function releases({ releases: all }) {
  if (!all.length) return element("p", {}, "There is no release yet.");
  return table(["Version", "Outcome", "Requested by", "Began", "Took", "Verdict"], all.map(release));
}

// Conditions that are good news when they are true.
const GOOD = ["Ready", "Published", "SecretPublished", "Restarted", "Fetched", "Valid"];

function mark(condition, fine) {
  if (fine) return ["●", "none"];
  if (condition.action) return ["■", "act"];
  return condition.type === "Reconciling" ? ["▶", "moving"] : ["▲", "look"];
}

function condition(one) {
  const fine = (one.status === "True") === GOOD.includes(one.type);
  const [shape, color] = mark(one, fine);
  const meaning = `${one.meaning}${one.action ? " Somebody has to act." : ""}`;
  return element("tr", {},
    element("td", {}, element("strong", {}, one.type)),
    cell("Is", element("span", { class: color }, `${shape} ${one.status}`)),
    cell("Reason", one.reason),
    cell("Says", element("div", {}, one.message), fine ? "" : element("div", { class: "soft" }, meaning)),
    cell("Since", age(one.since, "", "")));
}

export function conditions({ conditions: all }) {
  if (!all.length) return element("p", {}, "Nudge has not said anything about the config yet.");
  return table(["Condition", "Is", "Reason", "Says", "Since"], all.map(condition));
}
