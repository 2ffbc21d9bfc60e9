import { element, soft } from "./dom.js";
import { SHAPES, age, many, moment, period } from "./format.js";

// Each outcome has a mark, since colour alone says nothing to many.
const MARKS = {
  Open: ["▶", "moving"], Current: ["●", "none"], Returned: ["●", "none"],
  Left: ["▲", "look"], Held: ["■", "act"], RolledBack: ["■", "act"],
};

const cell = (label, ...children) => element("td", { "data-label": label }, ...children);

function table(heads, rows) {
  const head = element("tr", {}, heads.map((text) => element("th", { scope: "col" }, text)));
  return element("table", { class: "stacks" }, element("thead", {}, head), element("tbody", {}, rows));
}

// Why it ended so, and what was counted for and against it.
function verdict({ why, evidence, analyses = [], atOnce, approvals = [], steps, startTime }) {
  const out = steps.map(([at, pods]) => `${many(pods, "pod")} after ${period(at - startTime)}`).join(", ");
  const approved = approvals.map(([user, at]) => `${user} ${moment(at)}`).join(", ");
  const texts = [why, atOnce, evidence, ...analyses, approved && `approved by ${approved}`, out && `steps: ${out}`];
  return texts.filter((text) => text).map((text) => element("div", {}, text));
}

function release(one) {
  const [mark, color] = MARKS[one.outcome] ?? ["○", ""];
  const took = () => element("span", { title: moment(one.endTime) }, period(one.endTime - one.startTime));
  return element("tr", {},
    element("td", {}, element("strong", {}, one.version), soft(one.from ? ` from ${one.from}` : " (the first)")),
    cell("Outcome", element("span", { class: color }, `${mark} ${one.outcome}`)),
    cell("Requested by", one.requestedBy ?? "<unknown>"),
    cell("Began", age(one.startTime), element("div", { class: "soft small" }, moment(one.startTime))),
    cell("Took", one.endTime ? took() : "open"),
    cell("Verdict", verdict(one)));
}

// What was requested, by whom, and what became of it; the newest first.
export function releases({ releases: all }) {
  if (!all.length) return element("p", {}, "There is no release yet.");
  return table(["Version", "Outcome", "Requested by", "Began", "Took", "Verdict"], all.map(release));
}

function condition(one) {
  const color = one.attention, fine = color === "none";
  const meaning = `${one.meaning}${one.action ? " Somebody must act." : ""}`;
  return element("tr", {},
    element("td", {}, element("strong", {}, one.type)),
    cell("Status", element("span", { class: color }, `${SHAPES[color]} ${one.status}`)),
    cell("Reason", one.reason),
    cell("Message", element("div", {}, one.message), fine ? "" : element("div", { class: "soft" }, meaning)),
    cell("Since", age(one.since, "", "")));
}

const ORDER = ["act", "look", "moving"];

// What keeps the config from being as its spec says, or is suspect, the worst first; each text once.
export function why({ conditions: all }) {
  const rank = (one) => ORDER.indexOf(one.attention);
  // What is reconciled is said by Ready.
  const waits = all.some((one) => one.type === "Ready" && rank(one) >= 0);
  const open = all.filter((one) => rank(one) >= 0 && !(waits && one.type === "Reconciling")).sort((one, other) => rank(one) - rank(other));
  const first = (one, at) => open.findIndex((other) => other.message === one.message) === at;
  const help = (one) => one.action ? element("div", { class: "soft" }, `${one.meaning} Somebody must act.`) : "";
  return open.filter(first).map((one) => element("li", { class: `notice is-${one.attention}` },
    element("strong", { class: one.attention }, `${SHAPES[one.attention]} ${one.reason}`), `: ${one.message}`, help(one)));
}

export function conditions({ conditions: all }) {
  if (!all.length) return element("p", {}, "Nudge has not said anything about the config yet.");
  return table(["Condition", "Status", "Reason", "Message", "Since"], all.map(condition));
}
