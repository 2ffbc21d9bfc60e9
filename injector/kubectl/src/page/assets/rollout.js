import { element, soft } from "./dom.js";
import { age, passed } from "./format.js";

// What kubectl nudge status says, in its words.
export const facts = (shown) => element("dl", {}, shown.facts.map(([name, text]) =>
  [element("dt", {}, name), element("dd", {}, text)]));

// How long is watched, and why so long.
export function clock({ clock: watch }) {
  if (!watch) return [];
  const max = Math.max(watch.seconds, 1), [value, left] = passed(watch.since, max);
  const bar = element("progress", { max, value, "data-from": watch.since, "aria-label": "time that is watched" });
  return element("p", { class: "clock" }, element("span", {}, `Watching ${watch.what} for ${watch.seconds} s`), bar,
    soft(left), element("span", { class: "soft wide" }, `because ${watch.why}`));
}

// The numbers for and against the version: what is seen of its pods.
export const seen = ({ facts: all, target }) => target ? all.filter(([name]) => name === "Evidence")
  .map(([name, text]) => element("p", {}, soft(`${name}: `), text)) : [];

// A number of pods, or a share of them, and which.
function pods({ pods: count, labels = {} }) {
  const unit = count.endsWith("%") ? "" : count === "1" ? " pod" : " pods";
  const selector = Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(", ");
  return `${count}${unit}${selector ? ` of ${selector}` : ""}`;
}

// The steps of the spec: those that went out, the one that is watched, those to come.
export function steps({ steps: all, step: out, target }) {
  if (!target) return [];
  const item = (step, at) => {
    const [is, kind] = at + 1 < out ? ["done", "is-done"] : at + 1 === out ? ["now", "is-now"] : ["to come", ""];
    const when = step.at && is !== "to come" ? age(step.at, ", ") : "";
    return element("li", { class: kind, "aria-current": is === "now" ? "step" : undefined },
      element("strong", {}, `${at + 1}`), element("span", {}, pods(step)), soft(is, when));
  };
  return element("ol", { class: "steps", "aria-label": `Steps of the rollout to ${target}` }, all.map(item));
}
