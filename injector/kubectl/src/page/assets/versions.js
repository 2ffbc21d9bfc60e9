import { ask } from "./api.js";
import { address, element, link, swap } from "./dom.js";
import { age, bytes, many } from "./format.js";

// The most that are shown before somebody requests all.
const FEW = 8;
const MARKS = {
  Current: ["●", "none"], Target: ["▶", "moving"], Available: ["○", ""], Incomplete: ["▲", "look"],
  Failed: ["■", "act"], Broken: ["■", "act"], Invalid: ["■", "act"],
};

const toDiff = (of, old, young) => address(of.namespace, of.name, "diff", old, young);

// Complete versions as they were sealed, and those that have objects alone; the newest first.
function merged(shown, creations) {
  const known = new Set(shown.versions.map((one) => one.version));
  const incomplete = Object.keys(creations).filter((name) => !known.has(name)).map((version) => ({ version, state: "Incomplete" }));
  return [...shown.versions, ...incomplete].reverse();
}

// Who requested it, and when, as far as that is known.
function request({ requestedBy, requestTime }) {
  if (requestTime) return age(requestTime, `; requested by ${requestedBy ?? "<unknown>"} `);
  return requestedBy ? `; requested by ${requestedBy}` : "";
}

function facts(version, creation, previous) {
  const [mark, color] = MARKS[version.state] ?? ["○", ""];
  const size = version.keys === undefined ? "" : `${many(version.keys, "key")}, ${bytes(version.bytes)}, digest ${version.digest}`;
  const made = () => [size ? "; " : "", `made by ${creation.by ?? "an unknown program"}`, creation.at ? age(creation.at, ", ") : ""];
  return [
    element("div", {}, element("strong", {}, version.version), " ", element("span", { class: color }, `${mark} ${version.state}`),
      previous ? " (the way back)" : "", version.consent ? ", needs somebody to request it" : ""),
    element("div", { class: "soft" }, size, creation ? made() : "", version.sealTime ? age(version.sealTime, "; sealed ") : "", request(version)),
    creation?.from ? element("div", { class: "soft" }, creation.from) : "",
    version.message ? element("div", {}, version.message) : "",
  ];
}

export function versions(into, of, doing) {
  let shown, creations = {}, unknown = "", asked = "", whole = false, last = "";

  function compare() {
    const names = shown.versions.filter((one) => one.state !== "Invalid").map((one) => one.version);
    if (names.length < 2) return "";
    const chosen = shown.target && names.includes(shown.target) ? [shown.current, shown.target] : [shown.previous, shown.current];
    const [old, young] = chosen.every((name) => names.includes(name)) ? chosen : names.slice(-2);
    const options = (value) => names.map((name) => element("option", { value: name, selected: name === value }, name));
    const select = (id, label, value) =>
      [element("label", { for: id }, label), element("select", { id, "data-key": id }, options(value))];
    const go = (event) => {
      event.preventDefault();
      location.hash = toDiff(of, into.querySelector("#old").value, into.querySelector("#new").value);
    };
    return element("form", { class: "compare", onsubmit: go }, select("old", "Compare", old), select("new", "with", young),
      element("button", { type: "submit", "data-key": "compare" }, "Compare"));
  }

  const unusable = ({ state }) => ["Invalid", "Incomplete", "Broken"].includes(state);

  function row(version, at, all) {
    const before = all[at + 1], differs = before && !unusable(before) && !unusable(version);
    const diff = () => link(toDiff(of, before.version, version.version), `What changed since ${before.version}`,
      { "data-key": `diff-${version.version}` });
    // What is requested already can only be had faster.
    const asked = version.state === "Target" && version.version === shown.desired;
    const acts = unusable(version) || version.state === "Current" ? [] : doing.forVersion(version, asked ? ["use"] : []);
    return element("li", { "data-version": version.version },
      facts(version, creations[version.version], version.version === shown.previous), element("div", {}, differs ? diff() : "", acts));
  }

  function draw() {
    const all = merged(shown, creations);
    const now = JSON.stringify([all, creations, shown.current, shown.desired, shown.previous, shown.target, doing.known(), whole, unknown]);
    if (now === last) return;
    last = now;
    const gap = unknown && element("p", { class: "notice" }, `Where versions come from, and whether some are not complete, is not known: ${unknown}`);
    if (!all.length) return swap(into, gap, element("p", {}, "There is no version yet."));
    const few = whole ? all : all.slice(0, FEW);
    const onclick = () => { whole = true; draw(); };
    const rest = all.length > few.length && element("button", { type: "button", "data-key": "all", onclick }, `Show all ${all.length} versions`);
    swap(into, gap, compare(), element("ol", { class: "line" }, few.map((version, at) => row(version, at, all))), rest);
  }

  doing.changed = () => shown && draw();
  return {
    show(config) {
      shown = config;
      const names = JSON.stringify(config.versions.map((one) => [one.version, one.state]));
      if (names !== asked) {
        asked = names;
        ask("/api/creations", { namespace: of.namespace, config: of.name }).then((answer) => { creations = answer; unknown = ""; }, (error) => { unknown = error.message; }).then(draw);
      }
      draw();
    },
  };
}
