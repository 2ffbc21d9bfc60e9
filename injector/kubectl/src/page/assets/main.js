import { exchange, stored } from "./api.js";
import { element } from "./dom.js";
import { overview } from "./overview.js";

const main = document.getElementById("main");
const link = document.getElementById("link");

const refused = (message) => main.replaceChildren(element("h1", {}, "The page can't be shown"), element("p", { role: "alert" }, message));

function state(name, message) {
  if (link.textContent !== name) link.textContent = name;
  if (message) refused(message);
}

try {
  await exchange();
  const granted = stored();
  if (!granted) throw new Error("run kubectl nudge ui, and open the address that it prints");
  const where = granted.onlyNamespace
    ? `${granted.context}, namespace ${granted.namespace} only${granted.wanted ? "" : ": you may not list configs of all namespaces"}`
    : `${granted.context}, all namespaces`;
  document.getElementById("where").append(element("span", {}, where));
  document.title = `Nudge: ${granted.context}`;
  await overview(main, new AbortController().signal, state);
} catch (error) {
  state("ended", error.message);
}
