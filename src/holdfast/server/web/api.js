// Requests. The token is in sessionStorage: it is gone with the tab, and is never part of an address that is kept.
// Another tab of this browser gets it from one that has it, by a channel that only pages of this server hear.

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
// Asks the other tabs, now and for as long as this one has none; `take` is told when one has come.
export function askTabs(take) {
  wanted = take;
  if (!token()) tabs.postMessage({ wants: true });
}
// For tabs that wait for one: the server has taken this one.
export const offerToken = () => tabs.postMessage({ token: token() });
tabs.addEventListener("message", ({ data }) => {
  if (data.wants && token()) offerToken();
  if (!data.token || token()) return;
  setToken(data.token);
  wanted();
});
// Told when the server no longer takes the token.
export const onRefused = (work) => { ask = work; };

export class Refused extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

export function headers(more) {
  return { Authorization: `Bearer ${token()}`, ...more };
}

export async function refusal(answer) {
  let document = {};
  try {
    document = await answer.json();
  } catch { /* Not ours: the status has to do. */ }
  if (answer.status === 401) ask(document.detail || "");
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

export async function get(path, values, signal) {
  const answer = await fetched(path + query(values), { headers: headers(), signal });
  if (!answer.ok) throw await refusal(answer);
  const kind = answer.headers.get("content-type") || "";
  return kind.includes("json") ? answer.json() : answer.text();
}

// Unlike `randomUUID`, this is there over plain HTTP, too.
const freshKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");

// A change has one key for all its tries: one that was carried out but not answered is not carried out again.
export async function change(method, path, body, more) {
  const key = freshKey();
  for (let attempt = 1; ; attempt += 1) {
    try {
      const answer = await fetched(path, {
        method,
        headers: headers({ "Content-Type": "application/json", "Idempotency-Key": key, ...more }),
        body: JSON.stringify(body || {}),
      });
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
