// Server-sent events over fetch, because an EventSource cannot send the token in a header.

import { authorised, query, refusal } from "./api.js";

const WAIT_MS_MAX = 15000;
// The server sends something at least every 15 seconds.
const SILENT_MS_MAX = 40000;
// A stream that opens and ends this often without an event is stuck: the server may no longer know its cursor.
const BARREN_MAX = 5;

// Parses pieces of a stream into events. Lines may end with \n, \r\n or \r, anywhere in a piece.
export function parser(tell) {
  let rest = "";
  let event = { id: "", kind: "message", data: [] };
  const line = (text) => {
    if (text === "") {
      if (event.data.length) tell({ id: event.id, kind: event.kind, data: event.data.join("\n") });
      event = { id: "", kind: "message", data: [] };
      return;
    }
    const colon = text.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (name === "id") event.id = value;
    else if (name === "event") event.kind = value;
    else if (name === "data") event.data.push(value);
  };
  return (piece) => {
    rest += piece;
    // A \r at the end may be half of a \r\n.
    const held = rest.endsWith("\r") ? 1 : 0;
    const lines = rest.slice(0, rest.length - held).split(/\r\n|\n|\r/);
    rest = lines.pop() + (held ? "\r" : "");
    lines.forEach(line);
  };
}

// Reads one answer to its end. `alive` is called for every piece.
async function read(answer, tell, alive) {
  const take = parser(tell);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    take(value);
  }
}

// Follows a path for good: reconnects with the last id after every end, more and more slowly while the server does not answer.
// `told`: open(isAgain), event({id, kind, data}), closed(words, wait), refused(error) → true to go on, stuck().
export function follow(path, values, told, start = "") {
  let cursor = start;
  let failures = 0;
  let barren = 0;
  let opened = 0;
  let over = false;
  let abort = new AbortController();
  let wake = () => {};

  async function once() {
    abort = new AbortController();
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENT_MS_MAX);
    };
    try {
      alive();
      const more = cursor ? { "Last-Event-ID": cursor } : {};
      const answer = await authorised(path + query(values), more, { signal: abort.signal });
      if (!answer.ok) {
        const error = await refusal(answer);
        if (!told.refused(error)) over = true;
        throw error;
      }
      failures = 0;
      opened += 1;
      barren += 1;
      told.open(opened > 1);
      await read(answer, (event) => {
        barren = 0;
        if (event.id) cursor = event.id;
        if (told.event(event) === "end") over = true;
      }, alive);
    } finally {
      clearTimeout(timer);
    }
  }

  async function run() {
    while (!over) {
      let words = "the stream ended";
      try {
        await once();
      } catch (error) {
        words = error.message;
        failures += 1;
      }
      if (over) return;
      if (barren >= BARREN_MAX && told.stuck) {
        barren = 0;
        cursor = "";
        told.stuck();
      }
      const wait = Math.min(WAIT_MS_MAX, 250 * 2 ** Math.min(Math.max(failures, barren), 8)) * (0.75 + Math.random() / 2);
      told.closed(words, wait);
      await new Promise((done) => {
        wake = done;
        setTimeout(done, wait);
      });
    }
  }

  run();
  return {
    close() { over = true; abort.abort(); wake(); },
    // Tries at once, for instance because the network is back.
    nudge() { wake(); },
    restart(at) { cursor = at; abort.abort(); },
    get cursor() { return cursor; },
  };
}
