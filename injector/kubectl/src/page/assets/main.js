import { exchange, stored } from "./api.js";
import { config } from "./config.js";
import { diff } from "./diff.js";
import { element, say } from "./dom.js";
import { overview } from "./overview.js";

const main = document.getElementById("main");
const link = document.getElementById("link");
let ends = new AbortController();

function refused(message) {
  ends.abort();
  main.replaceChildren(element("h1", {}, "The page can't be shown"), element("p", { role: "alert", class: "notice" }, message));
}

// How it is with the connection, in a word for the style and in words for people; with a message, nothing more is shown.
function state(kind, words, message) {
  say(link, words);
  link.className = kind;
  if (message) refused(message);
}

// What is no escape stands for itself.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// What the address names: nothing, a config, or two versions of it.
function view(parts) {
  const [namespace, name, what, old, young] = parts;
  if (what === "diff" && old && young) return [diff, `${old} and ${young} of ${namespace}/${name}`, { namespace, name, old, young }];
  if (name) return [config, `${namespace}/${name}`, { namespace, name }];
  return [overview, "Configs", {}];
}

function route() {
  ends.abort();
  ends = new AbortController();
  const parts = location.hash.startsWith("#/") ? location.hash.slice(2).split("/").map(decoded) : [];
  const [show, title, wanted] = view(parts.filter((part) => part));
  document.title = `${title} – Nudge: ${stored().context}`;
  main.setAttribute("aria-busy", "true");
  show(main, ends.signal, state, wanted);
  main.removeAttribute("aria-busy");
}

function where(granted) {
  const one = `${granted.context}, namespace ${granted.namespace} only`;
  if (!granted.onlyNamespace) return `${granted.context}, all namespaces`;
  return granted.chosen ? one : `${one}: you may not list configs of all namespaces`;
}

try {
  await exchange();
  if (!stored()) throw new Error("This tab has no session: run kubectl nudge ui, and open the address that it prints. To have the page twice, duplicate its tab.");
  say(document.getElementById("where"), where(stored()));
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", () => {
    route();
    main.focus();
    scrollTo(0, 0);
  });
  route();
} catch (error) {
  state("ended", "ended", error.message);
}
