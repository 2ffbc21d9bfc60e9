import { element, say } from "./dom.js";

// The clock of the machine that runs the command, as its lines say it.
let fast = 0;
export const heard = (now) => { fast = now - Date.now(); };
export const now = () => Date.now() + fast;

const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

export function period(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const unit = UNITS.find(([, length]) => whole >= length);
  return unit ? `${Math.floor(whole / unit[1])} ${unit[0]}` : `${whole} s`;
}

export const moment = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ").replace(".000Z", " UTC");

// A time that says how long ago it is, and keeps saying it.
export function age(seconds, before = "", after = " ago") {
  const datetime = new Date(seconds * 1000).toISOString();
  const kept = { "data-since": seconds, "data-before": before, "data-after": after };
  return element("time", { datetime, title: moment(seconds), ...kept }, `${before}${period(now() / 1000 - seconds)}${after}`);
}

// What is left until a time, and keeps being so.
const left = (until, before, after, over) => {
  const rest = Number(until) - now() / 1000;
  return rest > 0 ? `${before}${period(rest)}${after}` : over;
};

export function ahead(until, before, after, over) {
  const kept = { "data-until": until, "data-before": before, "data-after": after, "data-over": over };
  return element("time", { datetime: new Date(until * 1000).toISOString(), title: moment(until), ...kept }, left(until, before, after, over));
}

// How far a time that is watched has come, and the words beside it.
export function passed(from, seconds) {
  const gone = now() / 1000 - from;
  return [Math.min(seconds, Math.max(0, gone)), gone < seconds ? `at least ${period(seconds - gone)} more` : "the time is over"];
}

function tick() {
  for (const time of document.querySelectorAll("[data-since]")) {
    const { since, before, after } = time.dataset;
    const text = `${before}${period(now() / 1000 - Number(since))}${after}`;
    say(time, text);
  }
  for (const time of document.querySelectorAll("[data-until]")) {
    const { until, before, after, over } = time.dataset;
    const text = left(until, before, after, over);
    say(time, text);
  }
  for (const clock of document.querySelectorAll("progress[data-from]")) {
    const [value, text] = passed(Number(clock.dataset.from), clock.max);
    clock.value = value;
    const label = clock.nextElementSibling;
    if (label.textContent !== text) label.textContent = text;
  }
}
setInterval(tick, 1000);

export const many = (number, one, more = `${one}s`) => `${number} ${number === 1 ? one : more}`;

export const bytes = (count) => (count < 1024 ? `${count} B` : `${(count / 1024).toFixed(1)} KiB`);

// The version that pods run, and the one that they are moved to, or are to be moved to.
export function moves({ current, target, desired }) {
  if (target && target !== current) return `${current ?? "none"} → ${target}`;
  return desired && desired !== current ? `${current ?? "none"}, desired ${desired}` : (current ?? "none");
}

// Why what is shown may be out of date.
export const outdated = ({ fault }) => (fault ? `What is shown may be out of date: ${fault}` : "");

// What stands for each state besides its colour.
export const SHAPES = { none: "●", moving: "▶", look: "▲", act: "■" };
