import { ask } from "./api.js";
import { address, element, link, soft } from "./dom.js";
import { many } from "./format.js";

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
  const rest = cut ? element("p", { class: "soft" }, `${cut} more lines; see kubectl nudge diff`) : "";
  return [element("pre", { tabindex: "0", "aria-label": "changed lines" }, made), rest];
}

function change(one, room) {
  const note = one.instead ? ` (${one.instead})` : "";
  const title = element("h2", {}, element("code", {}, one.key), soft(` ${one.what}${note}`));
  return element("section", { class: "change" }, title, one.text ? lines(one.text, room) : "");
}

export async function diff(main, signal, state, of) {
  const { namespace, name, old, young } = of;
  const body = element("div", { id: "changes" }, element("p", { role: "status" }, "Loading."));
  const back = link(address(namespace, name), name);
  const turned = link(address(namespace, name, "diff", young, old), "The other way round");
  main.replaceChildren(element("nav", { "aria-label": "Breadcrumb" }, link("#/", "Configs"), ` / ${namespace} / `, back),
    element("h1", {}, `${name}: ${old} → ${young}`), element("p", {}, turned), body);
  try {
    const { digests, changes, warnings } = await ask("/api/diff", { namespace, config: name, old, new: young });
    if (signal.aborted) return;
    const room = { left: MOST_LINES };
    const notices = warnings.map((text) => element("p", { class: "notice" }, text));
    const count = element("p", { role: "status" }, many(changes.length, "key differs", "keys differ"));
    const read = element("p", { class: "soft" }, `Digest of ${old}: ${digests[0]}; of ${young}: ${digests[1]}`);
    body.replaceChildren(...notices, count, read, ...changes.map((one) => change(one, room)));
    state("", "");
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) return state("ended", "ended", error.message);
    body.replaceChildren(element("p", { class: "notice", role: "alert" }, error.message));
  }
}
