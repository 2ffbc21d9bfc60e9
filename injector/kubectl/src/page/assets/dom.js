// Elements are made of nodes and text. No text of the cluster is ever read as HTML.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...nodes(children));
  return made;
}

function nodes(children) {
  const there = children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false);
  return there.map((child) => (child instanceof Node ? child : shown(child)));
}

// Characters that hide text or reverse its order are written as escapes.
export function shown(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\u115f\u1160\u3164\uffa0]/gu, (char) =>
    char === "\n" || char === "\t" ? char : `\\u{${char.codePointAt(0).toString(16)}}`);
}

// Other children, with the focus on the one that has the same data-key as the one before.
export function swap(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...nodes(children));
  if (key !== undefined) [...parent.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus();
}

// Text that has changed alone is written, so that screen readers say nothing twice.
export function say(into, text) {
  const safe = shown(text);
  if (into.textContent !== safe) into.textContent = safe;
}

export const soft = (...children) => element("span", { class: "soft" }, ...children);

export const link = (to, text, attributes = {}) => element("a", { href: to, ...attributes }, text);

export const address = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
