import { element } from "./dom.js";
import { age, passed } from "./format.js";

// What kubectl nudge status says, in its words.
export const facts = (shown) => element("dl", {}, shown.facts.map(([name, text]) =>
  [element("dt", {}, name), element("dd", {}, text)]));

// How long is watched, and why so long.
export function clock({ clock: watch }) {
  if (!watch) return [];
  const max = Math.max(watch.seconds, 1), [value, left] = passed(watch.since, max);
  const bar = element("progress", { max, value, "data-from": watch.since, "aria-label": "time that is watched" });
  return element("p", { class: "clock" }, element("span", {}, `Watching ${watch.what} for ${watch.seconds} s`), bar, element("span", { class: "soft" }, left),
    element("span", { class: "soft wide" }, `because ${watch.why}`));
}

// The steps of the spec: those that went out, the one that is watched, those to come.
export function steps({ steps: all, step: out, target }) {
  if (!target) return [];
  const item = (step, at) => {
    const is = at + 1 < out ? "done" : at + 1 === out ? "now" : "to come";
    const labels = Object.entries(step.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ");
    return element("li", { class: is === "now" ? "is-now" : is === "done" ? "is-done" : "", "aria-current": is === "now" ? "step" : undefined },
      element("strong", {}, `${at + 1}`), element("span", {}, `${step.pods}${/%$/.test(step.pods) ? "" : step.pods === "1" ? " pod" : " pods"}${labels ? ` of ${labels}` : ""}`),
      element("span", { class: "soft" }, is === "to come" ? is : [is, step.at ? age(step.at, ", ") : ""]));
  };
  return element("ol", { class: "steps", "aria-label": `Steps of the rollout to ${target}` }, all.map(item));
}
