import { follow } from "./api.js";
import { actions } from "./acts.js";
import { element, link, say, swap } from "./dom.js";
import { SHAPES, age, heard, moves, outdated } from "./format.js";
import { analyses, approvals, opens } from "./guarded.js";
import { conditions, releases, why } from "./past.js";
import { pods } from "./pods.js";
import { clock, facts, seen, steps } from "./rollout.js";
import { versions } from "./versions.js";

// A part of the page that is made again when what it shows has changed.
function part(into, of, make) {
  let last;
  return (shown) => {
    const wanted = JSON.stringify(of(shown));
    if (wanted === last) return;
    last = wanted;
    swap(into, make(shown));
  };
}

const badge = (row) => [element("span", { class: `badge ${row.attention}` },
  `${SHAPES[row.attention]} ${row.state}${row.stage ? `, ${row.stage}` : ""}${row.onHold ? ", on hold" : ""}`), " ",
  element("strong", { class: "version" }, moves(row))];

export function config(main, signal, state, of) {
  const section = (id, title) => {
    const body = element("div", { id });
    return { whole: element("section", { "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title), body), body };
  };
  const fault = element("p", { class: "notice", role: "alert", hidden: true });
  // The age keeps changing, so it is not in what screen readers repeat.
  const stands = element("span", { role: "status" }), since = element("span");
  const head = element("p", { class: "head" }, stands, since);
  const live = element("div"), reasons = element("ul", { class: "why", id: "why", "aria-label": "Why", role: "status" });
  const time = element("div", { id: "opens" }), given = element("div"), deciding = element("div", { class: "acts" });
  const decided = element("section", { id: "approvals", "aria-label": "Approvals" }, given, deciding);
  const buttons = element("div", { class: "acts", id: "acts" });
  const said = element("p", { role: "status", id: "said" });
  const [now, rollout, all, past, conditional] = [section("now", "Now"), section("rollout", "Pods"), section("versions", "Versions"),
    section("releases", "Releases"), section("conditions", "Conditions")];
  const watched = element("div", { id: "clock" }), judged = element("div", { id: "seen" }), measured = element("div", { id: "analyses" }), stepped = element("div", { id: "steps" }), shownPods = element("div", { id: "pods" });
  rollout.body.append(stepped, watched, judged, measured, shownPods);
  live.append(time, reasons, decided, buttons, said, rollout.whole, now.whole, all.whole, past.whole, conditional.whole);
  main.replaceChildren(element("nav", { "aria-label": "Breadcrumb" }, link("#/", "Configs"), ` / ${of.namespace} / ${of.name}`),
    element("h1", {}, of.name), head, fault, live);

  const doing = actions(buttons, deciding, said, of);
  const listed = versions(all.body, of, doing);
  const crowd = pods(shownPods, signal);
  const parts = [
    part(stands, (shown) => [shown.attention, shown.state, shown.stage, shown.onHold, moves(shown)], badge),
    part(since, (shown) => shown.since ?? 0, (shown) => shown.since ? age(shown.since, " since ", "") : ""),
    part(reasons, (shown) => shown.conditions, why),
    part(time, (shown) => shown.opens ?? 0, opens),
    part(given, (shown) => [shown.approval, shown.current], approvals),
    part(measured, (shown) => [shown.analyses, shown.target], analyses),
    part(now.body, (shown) => shown.facts, facts),
    part(watched, (shown) => shown.clock, clock),
    part(judged, (shown) => shown.facts, seen),
    part(stepped, (shown) => [shown.steps, shown.step, shown.target], steps),
    part(past.body, (shown) => shown.releases, releases),
    part(conditional.body, (shown) => shown.conditions, conditions),
  ];
  let stale = false;
  follow("/api/config", { namespace: of.namespace, config: of.name }, signal, (line, first) => {
    heard(line.now);
    if ("fault" in line || first) { stale = Boolean(line.fault); say(fault, outdated(line)); fault.hidden = !stale; }
    if (line.config) {
      live.hidden = Boolean(line.config.absent);
      if (line.config.absent) {
        swap(stands, "There is no such config, or it was deleted.");
        swap(since);
      } else {
        for (const update of parts) update(line.config);
        listed.show(line.config);
        doing.show(line.config);
      }
    }
    crowd.apply(line, first);
    return !stale;
  }, state);
}
