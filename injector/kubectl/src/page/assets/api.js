const KEY = "nudge-session";

export const stored = () => JSON.parse(sessionStorage.getItem(KEY) ?? "null");

async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const session = stored()?.session;
  if (session) headers.authorization = `Bearer ${session}`;
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), credentials: "omit" });
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  throw Object.assign(new Error(error), { status: response.status });
}

// The token leaves the address bar before anything else happens.
export async function exchange() {
  const token = location.hash.slice(1);
  // What begins with a slash is a place of the page.
  if (!token || token.startsWith("/")) return;
  history.replaceState(null, "", location.pathname);
  const granted = await (await post("/api/session", { token })).json();
  sessionStorage.setItem(KEY, JSON.stringify(granted));
}

export const ask = async (path, body) => (await post(path, body)).json();

// Reads lines until the signal ends it, and connects again when the stream breaks off.
export async function follow(path, body, signal, line, state) {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10000)) {
    try {
      const response = await post(path, body);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const end = () => reader.cancel().catch(() => {});
      signal.addEventListener("abort", end, { once: true });
      let rest = "", first = true;
      for (;;) {
        if (signal.aborted) return end();
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const text of lines) {
          line(JSON.parse(text), first);
          first = false;
        }
        state("live");
        wait = 500;
      }
    } catch (error) {
      if (error.status === 401 || error.status === 404) return state("ended", error.message);
      state("no connection, trying again");
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
