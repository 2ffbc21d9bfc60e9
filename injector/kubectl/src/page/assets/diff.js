import { ask } from "./api.js";
import { address, element, link } from "./dom.js";

// The most lines of all changes together that are in the page.
const MOST_LINES = 4000;
const KINDS = { "+": ["added", "ins"], "-": ["removed", "del"], "@": ["place", "span"] };

function lines(text, room) {
  // The first two lines name the files.
  const all = text.replace(/\n$/, "").split("\n").slice(2);
  const made = all.slice(0, room.left).map((line) => {
    const [kind, name] = KINDS[line[0]] ?? ["same", "span"];
    return element(name, { class: `text ${kind}` }, line, "\n");
  });
  const cut = all.length - made.length;
  room.left -= made.length;
  return [element("pre", { tabindex: "0", "aria-label": "changed lines" }, made), cut ? element("p", { class: "soft" }, `${cut} more lines; see kubectl nudge diff`) : ""];
}

function change(one, room) {
  const note = one.instead ? ` (${one.instead})` : "";
  return element("section", { class: "change" }, element("h2", {}, element("code", {}, one.key), element("span", { class: "soft" }, ` ${one.what}${note}`)), one.text ? lines(one.text, room) : "");
}

export async function diff(main, signal, state, of) {
  const { namespace, name, old, young } = of;
  const body = element("div", { id: "changes" }, element("p", { role: "status" }, "Loading."));
  main.replaceChildren(element("nav", { "aria-label": "Breadcrumb" }, link("#/", "Configs"), ` / ${namespace} / `, link(address(namespace, name), name)),
    element("h1", {}, `${name}: ${old} → ${young}`), element("p", {}, link(address(namespace, name, "diff", young, old), "The other way round")), body);
  try {
    const { changes, warnings } = await ask("/api/diff", { namespace, config: name, old, new: young });
    if (signal.aborted) return;
    const room = { left: MOST_LINES };
    body.replaceChildren(...warnings.map((text) => element("p", { class: "notice" }, text)),
      element("p", { role: "status" }, `${changes.length} ${changes.length === 1 ? "key differs" : "keys differ"}`), ...changes.map((one) => change(one, room)));
    state("");
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) return state("ended", error.message);
    body.replaceChildren(element("p", { class: "notice", role: "alert" }, error.message));
  }
}
