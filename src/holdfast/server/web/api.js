// Requests. The token is in sessionStorage: it is removed with the tab, and never part of an address that is kept.
// Another tab of this browser gets it from one that has it, over a channel that only pages of this server can join.

const KEY = "holdfast-token";
const TRIES = 3;
const tabs = new BroadcastChannel("holdfast-token");
let ask = () => {};
let wanted = () => {};

export function takeToken() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + "#/board");
  }
  return sessionStorage.getItem(KEY) || "";
}

export const token = () => sessionStorage.getItem(KEY) || "";
export const setToken = (text) => sessionStorage.setItem(KEY, text.trim());
export const dropToken = () => sessionStorage.removeItem(KEY);
// Asks the other tabs for a token until one answers; then calls `take`.
export function askTabs(take) {
  wanted = take;
  if (!token()) tabs.postMessage({ wants: true });
}
// Sends a token that the server has accepted to the tabs that wait for one.
export const offerToken = () => tabs.postMessage({ token: token() });
tabs.addEventListener("message", ({ data }) => {
  if (data.wants && token()) offerToken();
  if (!data.token || token()) return;
  setToken(data.token);
  wanted();
});
// Called when the server no longer accepts the token.
export const onRefused = (work) => { ask = work; };

// After a restart the server has other tokens. A page that was signed in derives its new one from a key, once the server has
// proved that it knows the key, too: a process that took the port meanwhile does not. The key is in memory only, where no other
// page of this address can read it, and is never sent.
let key = null;
let renewing = null;

export async function learnKey() {
  key = await get("/auth/key");
}

async function signed(...words) {
  const bytes = (text) => new TextEncoder().encode(text);
  const made = await crypto.subtle.importKey("raw", bytes(key.key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const found = new Uint8Array(await crypto.subtle.sign("HMAC", made, bytes(words.join("\0"))));
  return [...found].map((each) => each.toString(16).padStart(2, "0")).join("").slice(0, 40);
}

async function renew() {
  const nonce = freshKey();
  const answer = await fetched(`/auth/start${query({ role: key.role, nonce })}`, {});
  const told = answer.ok ? await answer.json() : {};
  if (told.proof !== await signed("server", location.origin, nonce, String(told.start))) return false;
  setToken(token().slice(0, 4) + await signed("token", told.start));
  offerToken();
  return true;
}

// Whether there is another token than the one that was refused.
async function renewed(used) {
  if (token() && token() !== used) return true;
  // Over plain HTTP from another machine a browser signs nothing.
  if (!key || !used || !crypto.subtle) return false;
  renewing = renewing || renew().catch(() => false).finally(() => { renewing = null; });
  return renewing;
}

// With the token, and once more where a restart has made another of it.
export async function authorised(path, more, options) {
  for (let again = false; ; again = true) {
    const used = token();
    const answer = await fetched(path, { ...options, headers: headers(more) });
    // A person may sign in while an answer to the previous token is still on its way: it does not concern the new one.
    answer.isOfToken = () => used === token();
    if (answer.status !== 401 || again || !await renewed(used)) return answer;
  }
}

export class Refused extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

function headers(more) {
  return { Authorization: `Bearer ${token()}`, ...more };
}

export async function refusal(answer) {
  let document = {};
  try {
    document = await answer.json();
  } catch { /* Not ours: the status has to do. */ }
  if (answer.status === 401 && token() && answer.isOfToken()) ask(document.detail || "");
  return new Refused(answer.status, document.code || "", document.detail || `The server answered ${answer.status}.`);
}

async function fetched(path, options) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "omit", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "The server cannot be reached. Nothing is lost; is `holdfast run` still there?");
  }
}

export function query(values) {
  const given = Object.entries(values || {}).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// The whole response, for callers that need more than its content.
export async function answered(path, values, signal) {
  const answer = await authorised(path + query(values), {}, { signal });
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function get(path, values, signal) {
  const answer = await answered(path, values, signal);
  const kind = answer.headers.get("content-type") || "";
  return kind.includes("json") ? answer.json() : answer.text();
}

// Unlike `randomUUID`, this works over plain HTTP, too.
const freshKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");

// A change has one key for all its tries: one that was carried out without an answer is not carried out again.
export async function change(method, path, body, more) {
  const once = freshKey();
  for (let attempt = 1; ; attempt += 1) {
    try {
      const sent = { "Content-Type": "application/json", "Idempotency-Key": once, ...more };
      const answer = await authorised(path, sent, { method, body: JSON.stringify(body || {}) });
      if (answer.ok) return answer.status === 204 ? null : await answer.json();
      const error = await refusal(answer);
      if (answer.status !== 503 || attempt >= TRIES) throw error;
    } catch (error) {
      if ((error.status !== 0 && error.status !== 503) || attempt >= TRIES) throw error;
    }
    await new Promise((done) => setTimeout(done, 500 * attempt));
  }
}

export const post = (path, body) => change("POST", path, body);
export const part = (name) => encodeURIComponent(name);
