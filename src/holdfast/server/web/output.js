// An agent's output, live: its typed events, or the bytes that it printed. The newest part of it;
// earlier parts are loaded page by page.

import { answered, get, part } from "./api.js";
import { failed, h, nothing, plain, put } from "./dom.js";
import { drawer } from "./transcript.js";
import { follow } from "./stream.js";

const PAGE = 200;
const TAIL = 65536;
const PIECE = 16384;
// How much is kept in the page; what is removed at the top can be loaded again.
const NODES_MAX = 2000;
const CHARS_MAX = 300000;
const HIDDEN_MS = 2000;
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

export function output(panel, state, signal) {
  if (!state.attempt) {
    put(panel, nothing("No output yet", "The agent's output is here as soon as one works on it."));
    return undefined;
  }
  const box = h("div", { class: "output", tabindex: "0", "aria-label": "Output", role: "log", "aria-live": "off" });
  const said = h("span", { class: "faint", role: "status" }, "connecting");
  let paused = false;
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => set(!paused) }, "Pause scrolling");
  const set = (is) => {
    paused = is;
    pause.setAttribute("aria-pressed", String(is));
    pause.textContent = is ? "Follow the end" : "Pause scrolling";
    if (!is) box.scrollTop = box.scrollHeight;
  };
  // A person who scrolls back reads; one who scrolls to the end follows.
  box.addEventListener("scroll", () => {
    const end = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
    if (end === paused && box.scrollHeight > box.clientHeight) set(!end);
  }, { signal });
  let leave = new AbortController();
  const raw = h("button", { type: "button", "aria-pressed": "false", title: "The bytes that the agent printed", onclick: () => {
    raw.setAttribute("aria-pressed", String(raw.getAttribute("aria-pressed") !== "true"));
    begin();
  } }, "Raw");
  put(panel, h("div", { class: "output-bar" }, said, h("div", { class: "buttons" }, raw, pause)), box);

  function begin() {
    leave.abort();
    leave = new AbortController();
    put(box);
    box.classList.toggle("raw", raw.getAttribute("aria-pressed") === "true");
    const way = raw.getAttribute("aria-pressed") === "true" ? bytesOf(state.attempt) : eventsOf(state.attempt);
    live(way, { box, tell: (words) => { said.textContent = words; }, isPaused: () => paused, signal: leave.signal,
      refuse: (error) => { put(box, failed(error, "output")); } });
  }
  signal.addEventListener("abort", () => leave.abort());
  begin();
  return undefined;
}

// Both views are read alike: the last page, the pages before it on demand, and new output, from where the
// last page ended. `way`: path, last(signal) and earlier(cursor, signal) → { nodes, before, after, over }, take(event)
// → nodes.
async function live(way, { box, tell, isPaused, signal, refuse }) {
  // Groups of nodes, each with its start cursor, by which groups that are removed at the top are found again.
  const groups = [];
  let ended = false;
  let stream = null;
  let place = "";
  let timer = 0;
  const earlier = h("button", { type: "button", class: "quiet earlier", hidden: true, onclick: async () => {
    earlier.disabled = true;
    try {
      const page = await way.earlier(groups[0].begins, signal);
      const [from, held] = [box.scrollHeight, box.scrollTop];
      earlier.after(...page.nodes);
      groups.unshift({ begins: page.before, nodes: page.nodes });
      shown();
      // Keeps the scroll position of the text that was read.
      box.scrollTop = held + box.scrollHeight - from;
    } catch (error) {
      if (error.name !== "AbortError") tell(error.message);
    }
    earlier.disabled = false;
  } }, "Show what came before");
  box.append(earlier);

  const shown = () => { earlier.hidden = !groups.length || !groups[0].begins; };
  const add = (begins, nodes) => {
    groups.push({ begins, nodes });
    box.append(...nodes);
    const size = () => groups.reduce((sum, each) => sum + each.nodes.reduce((all, node) => all + way.weight(node), 0), 0);
    while (!isPaused() && groups.length > 1 && size() > way.most) groups.shift().nodes.forEach((node) => node.remove());
    shown();
    if (!isPaused()) box.scrollTop = box.scrollHeight;
  };
  const over = () => {
    ended = true;
    tell(groups.some((each) => each.nodes.length) ? "the attempt is over" : way.nothing);
  };

  try {
    const page = await way.last(signal);
    add(page.before, page.nodes);
    place = page.after;
    if (page.over) {
      over();
      return;
    }
  } catch (error) {
    if (error.name !== "AbortError") refuse(error);
    return;
  }
  const start = () => follow(way.path, { follow: true }, {
    open: () => tell("live"),
    event: (event) => {
      if (event.kind === "end") {
        over();
        return "end";
      }
      add(place, way.take(event));
      place = event.id;
      return undefined;
    },
    closed: () => { if (!ended) tell("reconnecting"); },
    refused: (error) => {
      if (error.status === 429 || error.status >= 500) return true;
      ended = true;
      refuse(error);
      return false;
    },
  }, place);
  // It uses one of the few connections that a browser has: a hidden page gives it back, and continues there later.
  const seen = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(pauseStream, stream ? HIDDEN_MS : 0);
    else if (!stream && !ended) stream = start();
  };
  const pauseStream = () => {
    if (stream && !ended) {
      stream.close();
      stream = null;
    }
    if (!ended) tell("paused while hidden");
  };
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    if (stream) stream.close();
  });
  if (!signal.aborted) seen();
}

function eventsOf(attempt) {
  const path = `/attempts/${part(attempt)}/events`;
  const draw = drawer();
  return {
    path,
    most: NODES_MAX,
    weight: () => 1,
    nothing: "the attempt is over; it has said nothing that could be read: see Raw",
    last: async (signal) => {
      const page = await get(path, { limit: PAGE }, signal);
      return { ...page, nodes: draw.behind(page.events) };
    },
    earlier: async (before, signal) => {
      const page = await get(path, { limit: PAGE, before }, signal);
      return { ...page, nodes: draw.before(page.events) };
    },
    take: (event) => draw.behind(JSON.parse(event.data)),
  };
}

function bytesOf(attempt) {
  const path = `/agents/${part(attempt)}/output`;
  const nodes = (text) => {
    const clean = plain(text.replace(ESCAPES, "").replace(/\r\n?/g, "\n"));
    const found = [];
    for (let at = 0; at < clean.length; at += PIECE) found.push(document.createTextNode(clean.slice(at, at + PIECE)));
    return found;
  };
  const page = async (values, signal) => {
    const answer = await answered(path, { tail: TAIL, ...values }, signal);
    const begins = Number(answer.headers.get("x-output-start"));
    // Whether it is over need not be known here: the stream says so at once.
    return { nodes: nodes(await answer.text()), before: begins ? String(begins) : "", after: answer.headers.get("x-output-end"), over: false };
  };
  return {
    path,
    most: CHARS_MAX,
    weight: (node) => node.length,
    nothing: "the attempt is over; it has said nothing",
    last: (signal) => page({}, signal),
    earlier: (before, signal) => page({ before }, signal),
    take: (event) => nodes(String(JSON.parse(event.data))),
  };
}
