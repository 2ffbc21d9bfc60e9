// Elements are made of nodes and text. No text of the cluster is ever read as HTML.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null).map((child) => child instanceof Node ? child : shown(child)));
  return made;
}

// Characters that hide text or reverse its order are written as escapes.
export function shown(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\u115f\u1160\u3164\uffa0]/gu, (char) =>
    char === "\n" || char === "\t" ? char : `\\u{${char.codePointAt(0).toString(16)}}`);
}
