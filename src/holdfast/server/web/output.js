// What an agent says, as it says it. It is text, and the last part of it only.

import { get, part } from "./api.js";
import { failed, h, nothing, plain, put } from "./dom.js";
import { reader } from "./said.js";
import { follow } from "./stream.js";

const TAIL = 65536;
const CHARS_MAX = 300000;
const PIECE = 16384;
const HIDDEN_MS = 2000;
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

export function output(panel, state, signal) {
  if (!state.attempt) {
    put(panel, nothing("No output yet", "What the agent says is here as soon as one works on it."));
    return undefined;
  }
  const text = h("pre", { class: "output", tabindex: "0", "aria-label": "Output", role: "log", "aria-live": "off" });
  const said = h("span", { class: "faint", role: "status" }, "connecting");
  let paused = false;
  let size = 0;
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => set(!paused) }, "Pause scrolling");
  const set = (is) => {
    paused = is;
    pause.setAttribute("aria-pressed", String(is));
    pause.textContent = is ? "Follow the end" : "Pause scrolling";
    if (!is) text.scrollTop = text.scrollHeight;
  };
  // Who scrolls back wants to read; who scrolls to the end wants to follow.
  text.addEventListener("scroll", () => {
    const end = text.scrollHeight - text.scrollTop - text.clientHeight < 30;
    if (end === paused && text.scrollHeight > text.clientHeight) set(!end);
  }, { signal });
  // All that came, as it came, for the two ways to show it.
  let all = "";
  let raw = false;
  let read = reader();
  const rawly = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    raw = !raw;
    rawly.setAttribute("aria-pressed", String(raw));
    read = reader();
    size = 0;
    put(text);
    show(all);
  } }, "As it came");
  put(panel, h("div", { class: "output-bar" }, said, h("div", { class: "buttons" }, rawly, pause)), text);

  function take(piece) {
    all = (all + piece).slice(-CHARS_MAX);
    show(piece);
  }

  function show(piece) {
    const given = raw ? piece : read(piece);
    const clean = plain(given.replace(ESCAPES, "").replace(/\r\n?/g, "\n"));
    for (let place = 0; place < clean.length; place += PIECE) text.append(document.createTextNode(clean.slice(place, place + PIECE)));
    size += clean.length;
    while (size > CHARS_MAX && text.firstChild !== text.lastChild) {
      size -= text.firstChild.length;
      text.firstChild.remove();
    }
    if (!paused) text.scrollTop = text.scrollHeight;
  }

  const path = `/agents/${part(state.attempt)}/output`;
  const tell = (words) => { said.textContent = words; };
  const over = async (error) => {
    // It is no agent any more, or the server cannot follow: what there is in one piece.
    try {
      take(await get(path, { tail: TAIL }, signal));
      tell("the attempt is over");
    } catch {
      if (!signal.aborted) put(panel, failed(error, "output"));
    }
  };
  let ended = false;
  let stream = null;
  let place = "";
  let timer = 0;
  const begin = () => follow(path, { tail: TAIL, follow: true }, {
    open: () => tell("live"),
    event: (event) => {
      if (event.kind === "end") {
        ended = true;
        tell(size ? "the attempt is over" : "the attempt is over; it has said nothing");
        return "end";
      }
      let piece = event.data;
      try {
        piece = JSON.parse(event.data);
      } catch { /* Shown as it came. */ }
      take(String(piece));
      return undefined;
    },
    closed: () => { if (!ended) tell("reconnecting"); },
    refused: (error) => {
      if (error.status === 429 || error.status >= 500) return true;
      ended = true;
      over(error);
      return false;
    },
  }, place);
  // It takes one of the few connections that a browser has: who is not looked at gives it back, and goes on there.
  const seen = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(pauseStream, stream ? HIDDEN_MS : 0);
    else if (!stream && !ended) stream = begin();
  };
  const pauseStream = () => {
    if (stream && !ended) {
      place = stream.cursor;
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
  seen();
  return undefined;
}
