// An agent's stream of JSON lines as a person would read it. What is no such line is shown as it came.

import { money } from "./words.js";

const LINE_MAX = 200000;

// Takes pieces, and gives text for the lines that are whole.
export function reader() {
  let rest = "";
  return (piece) => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    // A line without an end is not kept for ever.
    if (rest.length > LINE_MAX) {
      lines.push(rest);
      rest = "";
    }
    return lines.map(told).filter((each) => each !== null).map((each) => `${each}\n`).join("");
  };
}

function told(line) {
  if (!line.startsWith("{")) return line;
  let event;
  try {
    event = JSON.parse(line);
  } catch {
    return line;
  }
  return (KINDS[event.type] || (() => line))(event, line);
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const indented = (value) => text(value).trimEnd().split("\n").map((each) => `    ${each}`).join("\n");
const tool = (name, input) => `▸ ${name} ${text(input || "")}`.trimEnd();

const KINDS = {
  said: (event) => event.text,
  tool_started: (event) => tool(event.name, event.input),
  tool_ended: (event) => (event.output ? indented(event.output) : event.ok === false ? "    (failed)" : null),
  spent: (event) => `· ${money(event.usd)}, ${((event.tokens_in || 0) + (event.tokens_out || 0)).toLocaleString("en")} tokens`,
  session: (event) => `· session ${event.id || ""}${event.model ? `, ${event.model}` : ""}`,
  compacted: () => "· compacted its context",
  rate_limited: (event) => `· rate limited: ${event.detail || ""}`,
  finished: (event) => `· ${event.ok ? "finished" : "gave up"}${event.detail ? `: ${event.detail}` : ""}`,
  assistant: (event, line) => parts(event, line),
  user: (event, line) => parts(event, line),
};

// Messages whose content is a list of parts: text, uses of tools, and what those gave.
function parts(event, line) {
  const content = event.message && event.message.content;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return line;
  return content.map((part) => {
    if (part.type === "text") return part.text;
    if (part.type === "tool_use") return tool(part.name, part.input);
    if (part.type === "tool_result") return indented(Array.isArray(part.content) ? part.content.map((each) => each.text || "").join("\n") : part.content || "");
    return text(part);
  }).join("\n");
}
