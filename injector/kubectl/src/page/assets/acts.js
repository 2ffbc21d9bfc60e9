import { ask } from "./api.js";
import { element, say, swap } from "./dom.js";

// Asks before it acts: what follows, and the command that it equals. The dialog keeps the focus, and gives it back.
function confirm(of, act, { version, digest }, said) {
  const command = element("code", { id: "command" });
  const wrong = element("p", { class: "notice", role: "alert", hidden: true });
  const reason = element("input", { id: "reason", maxlength: 256, autocomplete: "off", required: true });
  const go = element("button", { type: "submit", class: "go", id: "go" }, act.label);
  const body = () => ({ namespace: of.namespace, config: of.name, act: act.name, version, digest, reason: act.reason ? reason.value : undefined });
  const fault = (error) => { say(wrong, error?.message ?? ""); wrong.hidden = !error; };
  let asked = 0, previewed = "";
  async function preview() {
    const turn = ++asked;
    go.disabled = true;
    if (act.reason && !reason.value.trim()) return say(command, "Give a reason first.");
    try {
      const answer = await ask("/api/preview", body());
      if (turn !== asked) return;
      previewed = answer.command;
      say(command, previewed);
      fault();
      go.disabled = false;
    } catch (error) {
      if (turn === asked) fault(error);
    }
  }
  reason.addEventListener("input", preview);
  async function run(event) {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    try {
      const { lines } = await ask("/api/act", { ...body(), command: previewed });
      dialog.close();
      say(said, lines.join(" "));
    } catch (error) {
      fault(error);
      go.disabled = false;
    }
  }
  const title = `${act.label}${version ? ` ${version}` : ""}: ${of.namespace}/${of.name}`;
  const dialog = element("dialog", { "aria-labelledby": "confirm-title", onclose: () => dialog.remove() },
    element("form", { onsubmit: run }, element("h2", { id: "confirm-title" }, title), element("p", {}, act.effect),
      act.reason ? [element("label", { for: "reason" }, act.reason), reason] : "",
      element("p", { class: "soft" }, "This runs:"), element("pre", { tabindex: "0", "aria-labelledby": "confirm-title" }, command), wrong,
      element("div", { class: "acts" }, go, element("button", { type: "button", id: "cancel", onclick: () => dialog.close() }, "Cancel"))));
  document.body.append(dialog);
  dialog.showModal();
  (act.reason ? reason : dialog.querySelector("#cancel")).focus();
  preview();
}

const DECISIONS = ["approve", "deny"];

export function actions(into, deciding, said, of) {
  let acts = [], asked = "", known = "", awaits;
  // Of a version, the digest is that of the content which stands beside the button.
  function button(act, on = {}) {
    const { version } = on;
    const named = { "data-act": act.name, "data-key": `${act.name}-${version ?? ""}` };
    const hidden = version ? element("span", { class: "hidden" }, ` ${version}`) : "";
    const onclick = () => confirm(of, act, on, said);
    return element("button", { type: "button", ...named, onclick }, act.label, hidden, "…");
  }
  const doing = {
    changed() {},
    known: () => known,
    forVersion({ version, digest }, without) {
      const left = version === awaits?.version ? [...without, ...DECISIONS] : without;
      return acts.filter((act) => act.version && !left.includes(act.name)).map((act) => button(act, { version, digest }));
    },
    // The version that awaits approval is decided about where it says so.
    decide() { swap(deciding, awaits ? acts.filter((act) => DECISIONS.includes(act.name)).map((act) => button(act, awaits)) : ""); },
    // What may be done is asked again where it may be something else.
    show(shown) {
      const { approval: it, ...is } = shown, waits = it && it.version !== is.current ? { version: it.version, digest: it.digest } : undefined;
      if (JSON.stringify(waits) !== JSON.stringify(awaits)) { awaits = waits; doing.decide(); doing.changed(); }
      const now = JSON.stringify([is.current, is.desired, is.target, is.previous, is.onHold, is.holdProtected, Boolean(it), is.versions.length]);
      if (now === asked) return;
      asked = now;
      ask("/api/acts", { namespace: of.namespace, config: of.name }).then((answer) => {
        acts = answer.filter((act) => act.allowed);
        if (known === JSON.stringify(acts)) return;
        known = JSON.stringify(acts);
        const none = answer.length && !acts.length ? element("p", { class: "soft" }, "You may look at the config, but not change it.") : "";
        swap(into, acts.filter((act) => !act.version).map((act) => button(act)), none);
        doing.decide();
        doing.changed();
      }, (error) => { asked = ""; say(said, error.message); });
    },
  };
  return doing;
}
