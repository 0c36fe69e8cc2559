// The frame: who is signed in, which view is shown, dark or light, and whether the stream is alive.

import { addTask } from "./actions.js";
import { agents } from "./agents.js";
import { askTabs, dropToken, learnKey, offerToken, onRefused, setToken, takeToken, token } from "./api.js";
import { board } from "./board.js";
import { costs } from "./costs.js";
import { h, nothing, put, s } from "./dom.js";
import { graph } from "./graph.js";
import { journal } from "./journal.js";
import { store } from "./store.js";
import { task } from "./task.js";
import { timeline } from "./timeline.js";
import { tick } from "./words.js";

const VIEWS = [
  ["board", "Board", board, "M4 5h4v14H4zM10 5h4v9h-4zM16 5h4v11h-4z"],
  ["graph", "Graph", graph, "M6 4a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM18 4a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM12 16a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM7 8l4 8M17 8l-4 8"],
  ["agents", "Agents", agents, "M5 8h14v10H5zM12 8V4M9 13h.01M15 13h.01"],
  ["timeline", "Timeline", timeline, "M4 6h9M8 12h10M6 18h7"],
  ["costs", "Costs", costs, "M4 20h16M7 20v-6M12 20V6M17 20v-9"],
  ["journal", "Journal", journal, "M6 4h12v16H6zM9 8h6M9 12h6M9 16h3"],
];
const view = document.getElementById("view");
const nav = document.getElementById("nav");
let leave = new AbortController();

function route() {
  const [path, rest] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/");
  let argument = "";
  try {
    argument = decodeURIComponent(parts.join("/"));
  } catch { /* A broken address shows the page without it. */ }
  return { name: name || "board", argument, query: new URLSearchParams(rest || "") };
}

function show() {
  if (!token()) {
    signIn("");
    return;
  }
  const { name, argument, query } = route();
  leave.abort();
  leave = new AbortController();
  const found = VIEWS.find(([each]) => each === name);
  for (const link of nav.children) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.className = `view-${name}`;
  put(view);
  scrollTo(0, 0);
  document.title = `${name === "task" ? argument.slice(0, 60) : found ? found[1] : "Holdfast"} · Holdfast`;
  if (name === "task" && argument) task(view, argument, leave.signal, query);
  else if (found) found[2](view, query, leave.signal);
  else put(view, nothing("There is no such page", "", h("p", {}, h("a", { href: "#/board" }, "To the board"))));
}

function signIn(words) {
  leave.abort();
  nav.hidden = true;
  const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  put(view, h("form", { class: "sign-in", onsubmit: (event) => {
    event.preventDefault();
    if (!input.value.trim()) return;
    // The server may be elsewhere by now: another process that answers here must not get its token.
    const address = /^https?:\/\/\S+/.exec(input.value.trim());
    if (address && new URL(address[0]).origin !== location.origin) {
      location.href = address[0];
      return;
    }
    // A person may have copied the whole address.
    setToken((/token=([^&\s]+)/.exec(input.value) || ["", input.value])[1]);
    begin();
  } },
  h("h1", {}, "Sign in"),
  h("p", {}, "Type ", h("code", {}, "holdfast dashboard"), " in a terminal: it prints the address of this page with your token in it. Open that, or paste it here."),
  words && h("p", { class: "notice bad", role: "alert" }, words),
  h("label", { for: "token" }, "Token"), input,
  h("button", { class: "primary", type: "submit" }, "Sign in")));
  view.className = "view-sign-in";
  input.focus();
}

function makeNav() {
  put(nav, VIEWS.map(([name, label, , path]) => h("a", { href: `#/${name}`, "data-view": name },
    s("svg", { viewBox: "0 0 24 24", width: "18", height: "18", "aria-hidden": "true" },
      s("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round", "stroke-linejoin": "round" })),
    h("span", {}, label))));
  nav.hidden = false;
}

function showConnection({ state, words }) {
  const node = document.getElementById("connection");
  node.dataset.state = state;
  node.lastElementChild.textContent = words;
}

function showWhere(status) {
  const repo = String(status.repo || "").split("/").filter(Boolean).pop() || "";
  put(document.getElementById("where"), repo && h("bdi", {}, repo), status.branch && h("span", { class: "faint" }, ` ${status.branch}`),
    status.works === false && " ", status.works === false && h("span", { class: "badge off", title: "`holdfast serve` starts no agents" }, "serving only"));
}

function theme() {
  const button = document.getElementById("theme");
  const wants = matchMedia("(prefers-color-scheme: dark)");
  const set = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    const dark = (name || (wants.matches ? "dark" : "light")) === "dark";
    button.setAttribute("aria-pressed", String(dark));
    button.title = dark ? "Light" : "Dark";
  };
  set(localStorage.getItem("holdfast-theme"));
  wants.addEventListener("change", () => set(localStorage.getItem("holdfast-theme")));
  button.addEventListener("click", () => {
    const next = button.getAttribute("aria-pressed") === "true" ? "light" : "dark";
    localStorage.setItem("holdfast-theme", next);
    set(next);
  });
}

function keys(event) {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !token()) return;
  if (event.key === "n" && store.operates) {
    event.preventDefault();
    addTask();
  } else if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
}

let begun = false;
// Until all is loaded a page would be drawn twice, and what was typed into the first be lost.
let ready = false;

async function begin() {
  makeNav();
  if (begun) {
    // A refused stream does not reconnect by itself: with another token everything is loaded again.
    location.reload();
    return;
  }
  begun = true;
  try {
    await store.begin();
    offerToken();
    await learnKey();
  } catch (error) {
    if (error.status === 401) return;
    begun = false;
  }
  document.body.dataset.role = store.me.role;
  ready = true;
  show();
}

onRefused((detail) => {
  dropToken();
  signIn(detail || "This token is not valid any more. A new start of the server may have a new one.");
});
store.on("connection", showConnection);
store.on("status", showWhere);
addEventListener("hashchange", () => {
  if (/[#&]token=/.test(location.hash)) {
    takeToken();
    begin();
  } else if (ready && location.hash !== "#view") show();
});
addEventListener("keydown", keys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
setInterval(tick, 5000);
theme();
// A tab that was opened from another one gets its token; a person is asked only where no tab answers.
const ASK_MS = 400;
const has = takeToken();
askTabs(begin);
if (has) begin();
else setTimeout(() => { if (!token()) signIn(""); }, ASK_MS);
