// Draws an agent's typed events: the same that `holdfast attach` prints. Text only ever becomes text.

import { cut, h, put } from "./dom.js";
import { count, money, plural, span } from "./words.js";

// Longer texts are shown in parts.
const PART = 4000;
const HEAD = 160;

// A text of any length: its first part, and a button for each next one.
export function long(text, tag = "div", kind = "", size = PART) {
  const given = String(text);
  const box = h(tag, { class: kind });
  let at = 0;
  const more = h("button", { type: "button", class: "quiet", onclick: () => grow() });
  function grow() {
    // Not in the middle of a line, if one ends nearby.
    const end = given.length - at <= size ? given.length : given.lastIndexOf("\n", at + size) + 1 || at + size;
    const next = end > at ? end : at + size;
    more.before(h("span", {}, given.slice(at, next)));
    at = next;
    if (at >= given.length) more.remove();
    else more.textContent = `Show more (${count(given.length - at)} characters are left)`;
  }
  box.append(more);
  grow();
  return box;
}

const linesOf = (text) => text.trimEnd().split("\n").length;
const tokensOf = (each) => (each.tokens_in || 0) + (each.tokens_out || 0);
const costs = (usd, tokens) => [usd > 0 && money(usd), tokens > 0 && `${count(tokens)} ${tokens === 1 ? "token" : "tokens"}`].filter(Boolean).join(", ");
const note = (tone, sign, ...words) => h("p", { class: `ev note ${tone}` }, h("i", { "aria-hidden": "true" }, sign), h("span", {}, ...words));

// Keeps what one event needs of those before it: the call of a result, and the cost of a turn so far.
export function drawer() {
  const calls = new Map();
  const results = new Map();
  const fresh = () => ({ start: 0, spent: null, usd: 0, tokens: 0, said: "", retry: null });

  function batch(events, run) {
    return events.flatMap((event) => {
      const nodes = [];
      if (event.start && run.start && event.start !== run.start) nodes.push(note("warn", "↻", `it goes on: start ${event.start}`));
      run.start = event.start || run.start;
      if (event.type !== "retrying") run.retry = null;
      nodes.push((KINDS[event.type] || KINDS.other)(event, run));
      return nodes.flat().filter(Boolean);
    });
  }

  const key = (event) => `${event.start}:${event.call}`;

  const KINDS = {
    told: (event) => [h("b", {}, `${event.by || "a person"}: `), long(event.text || "", "div", "ev told")],
    said: (event, run) => {
      run.said = (event.text || "").trim();
      return long(event.text || "", "div", "ev said");
    },
    tool_started: (event, run) => {
      const node = tool(event);
      const early = results.get(key(event));
      if (early) {
        // Its end was drawn before its beginning was loaded.
        early.node.remove();
        results.delete(key(event));
        close(node, early.event);
      } else calls.set(key(event), node);
      run.said = "";
      return node;
    },
    tool_ended: (event, run) => {
      // A stream may name a call at its end only, or not at all: then it is the one that began first.
      const known = calls.has(key(event)) ? key(event) : [...calls.keys()].find((each) => !event.call && each.startsWith(`${event.start}:`));
      run.said = "";
      if (known !== undefined) {
        close(calls.get(known), event);
        calls.delete(known);
        return null;
      }
      const node = tool({ name: "the result of a call", input: "" });
      close(node, event);
      if (event.call) results.set(key(event), { node, event });
      return node;
    },
    spent: (event, run) => {
      run.usd += event.usd || 0;
      run.tokens += tokensOf(event);
      const words = costs(run.usd, run.tokens);
      if (!words) return null;
      const told = `${words} since the last turn`;
      if (run.spent) {
        put(run.spent.lastChild, told);
        return null;
      }
      run.spent = note("faint", "$", told);
      return run.spent;
    },
    turn: (event, run) => {
      // Its spending is shown with it.
      if (run.spent) run.spent.hidden = true;
      Object.assign(run, { spent: null, usd: 0, tokens: 0 });
      const files = event.files || [];
      const total = event.files_total || files.length;
      const named = files.length ? `: ${cut(files.slice(0, 3).join(", "), HEAD)}${total > 3 ? ", …" : ""}` : "";
      const words = [`${plural(total, "file")} changed${named}`, costs(event.usd, event.tokens), event.seconds >= 0.05 && span(event.seconds)].filter(Boolean).join(" · ");
      return h("div", { class: "ev turn-mark", "data-turn": event.turn }, h("b", {}, `Turn ${event.turn}`), h("span", { class: "faint" }, words));
    },
    session: (event) => note("faint", "›", `conversation ${cut(event.id || "without a name", 60)}${event.model ? `, ${cut(event.model, 60)}` : ""}`),
    compacted: () => note("faint", "›", "compacted its context"),
    rate_limited: (event) => note("warn", "‖", `rate limited: ${event.detail || "it does not say why"}`),
    retrying: (event, run) => {
      const words = `does not reach its model, and tries again${event.wait_s ? `, in ${span(event.wait_s)}` : ""}${event.tries > 1 ? ` (${event.tries} times now)` : ""}: ${event.detail || ""}`;
      if (run.retry) {
        put(run.retry.lastChild, words);
        return null;
      }
      run.retry = note("warn", "↻", words);
      return run.retry;
    },
    refused: (event) => note("warn", "!", event.detail || ""),
    finished: (event, run) => {
      const detail = (event.detail || "").trim();
      const how = event.ok === false ? "says that it has failed" : "finished";
      // Many agents print their last text twice.
      const words = detail && detail !== run.said ? [`${how}: `, long(detail, "span")] : [how];
      return event.ok === false ? note("bad", "✕", words) : note("good", "●", words);
    },
    ended: () => null,
    other: (event) => note("faint", "›", `${event.type} ${event.detail || event.text || ""}`.trim()),
  };

  const last = fresh();
  return {
    // Events after everything drawn so far.
    behind: (events) => batch(events, last),
    // A page before everything drawn so far.
    before: (events) => batch(events, fresh()),
  };
}

// A call's input, in short: of an object the most telling field, and all of them below it.
const TELLING = ["command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "prompt", "description"];

function givenTo(input) {
  const text = String(input || "").trim();
  if (!/^[[{]/.test(text)) return { head: text, whole: text };
  try {
    const found = JSON.parse(text);
    if (Array.isArray(found)) {
      const named = found.map((each) => (each && each.path) || "").filter(Boolean);
      return { head: named.length ? named.join(", ") : text, whole: JSON.stringify(found, null, 2) };
    }
    const fields = Object.entries(found).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 2)]);
    const main = fields.find(([name, value]) => TELLING.includes(name) && value) || [];
    if (!main.length) return { head: text, whole: fields.map(([name, value]) => `${name}: ${value}`).join("\n") };
    return { head: main[1], whole: fields.length === 1 ? main[1] : fields.map(([name, value]) => `${name}: ${value}`).join("\n") };
  } catch {
    return { head: text, whole: text };
  }
}

function tool({ name, input }) {
  const { head, whole } = givenTo(input);
  const line = head.replace(/\s+/g, " ").trim();
  const node = h("details", { class: "ev tool pending" },
    h("summary", {}, h("i", { "aria-hidden": "true" }, "▸"), h("b", {}, cut(name || "tool", 60)), h("code", {}, cut(line, HEAD)), h("span", { class: "how faint" }, "no result yet")));
  if (whole && (whole.trim() !== line || line.length > HEAD)) node.append(long(whole, "pre", "input"));
  return node;
}

// A tool's result, folded under its call; one that failed is open.
function close(node, event) {
  const text = String(event.output || "");
  const bad = event.ok === false;
  node.classList.remove("pending");
  node.classList.toggle("bad", bad);
  node.querySelector(".how").textContent = bad ? "failed" : text.trim() ? plural(linesOf(text), "line") : "no output";
  node.querySelector(".how").classList.toggle("bad-text", bad);
  if (text.trim()) node.append(long(text.trimEnd(), "pre", "result"));
  node.open = bad;
}
