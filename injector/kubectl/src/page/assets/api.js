const KEY = "nudge-session";

export const stored = () => JSON.parse(sessionStorage.getItem(KEY) ?? "null");

async function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  const session = stored()?.session;
  if (session) headers.authorization = `Bearer ${session}`;
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), credentials: "omit", signal });
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

// How long a line may be missing, and how long a command that does not answer is looked for.
const SILENCE = 30000, PATIENCE = 60000;
const GONE = "kubectl nudge ui has ended, so the page shows nothing new. Run it again.";

// Reads lines until the signal ends it, and connects again when the stream breaks off or says nothing. Each line says whether it is up to date.
export async function follow(path, body, signal, line, state) {
  let lost;
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10000)) {
    let why = "no connection, trying again", quiet;
    const here = new AbortController(), end = () => here.abort();
    const heard = () => { clearTimeout(quiet); quiet = setTimeout(end, SILENCE); };
    signal.addEventListener("abort", end, { once: true });
    try {
      heard();
      const response = await post(path, body, here.signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "", first = true;
      for (;;) {
        const { value, done } = await reader.read();
        if (signal.aborted || done) break;
        heard();
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        let fresh = true;
        for (const text of lines) {
          fresh = line(JSON.parse(text), first);
          first = false;
        }
        if (lines.length) state(fresh ? "live" : "lost", fresh ? "live" : "out of date");
        wait = 500;
        lost = undefined;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401 || error.status === 404) return state("ended", "ended", error.message);
      // An answer comes from a command that is there.
      if (error.status) { why = error.message; lost = undefined; }
    } finally {
      clearTimeout(quiet);
      signal.removeEventListener("abort", end);
    }
    if (signal.aborted) return;
    lost ??= Date.now();
    if (Date.now() - lost > PATIENCE) {
      // Another program may listen there now.
      sessionStorage.removeItem(KEY);
      return state("ended", "ended", GONE);
    }
    state("lost", why);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
