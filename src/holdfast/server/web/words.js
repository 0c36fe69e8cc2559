// States, times, money and sizes as text.

import { h } from "./dom.js";

// Every state has a colour, a sign and a word, so it can be read without the colour.
export const STATES = {
  PLANNED: ["wait", "◌", "planned"],
  OPEN: ["wait", "○", "open"],
  BLOCKED: ["wait", "⊘", "blocked"],
  WAITING_FOR_SUBTASKS: ["wait", "⋯", "waits for subtasks"],
  CLAIMED: ["work", "◔", "claimed"],
  IN_PROGRESS: ["work", "◑", "at work"],
  ORPHANED: ["warn", "◒", "orphaned"],
  DONE: ["judge", "◕", "being judged"],
  PENDING_APPROVAL: ["ask", "?", "wants approval"],
  FAILED: ["bad", "✕", "failed"],
  CLOSED: ["good", "●", "landed"],
  CANCELLED: ["off", "⊖", "cancelled"],
};

export const COLUMNS = [
  ["wait", "Waiting", ["PLANNED", "OPEN", "BLOCKED", "WAITING_FOR_SUBTASKS"]],
  ["work", "At work", ["CLAIMED", "IN_PROGRESS", "ORPHANED"]],
  ["judge", "Judging", ["DONE", "PENDING_APPROVAL"]],
  ["bad", "Failed or parked", ["FAILED"]],
  ["good", "Closed", ["CLOSED", "CANCELLED"]],
];

export const isAsking = (task) => !task.parked && Boolean(task.asks);

export function columnOf(task) {
  if (task.parked && task.state !== "CLOSED" && task.state !== "CANCELLED") return "bad";
  // Its agent waits for a person, as a process or ended.
  if (isAsking(task)) return "wait";
  return (COLUMNS.find(([, , states]) => states.includes(task.state)) || COLUMNS[0])[0];
}

export const waitsToLand = (task) => !task.parked && (task.landing_waits || []).length > 0;

export const isLanding = (task) => Boolean(task.approved) && task.state === "DONE" && !task.parked && !waitsToLand(task);

export const faultWords = (task) => (task.fault ? `${task.fault}${task.next_step ? `: ${task.next_step}` : ""}` : "");

export const lostWords = (lost) => `${lost.why.replace(/^i/, "I")}. Type: ${lost.next_step}`;

export function untilWhen(task) {
  if (!(task.not_before > Date.now() / 1000)) return "";
  return `not before ${at(task.not_before)}${task.cause ? `: ${task.cause}` : ""}`;
}

export function toneOf(task) {
  return task.parked ? "warn" : waitsToLand(task) || isAsking(task) ? "ask" : (STATES[task.state] || STATES.OPEN)[0];
}

export function stateBadge(task) {
  const [, sign, word] = STATES[task.state] || ["wait", "○", String(task.state).toLowerCase()];
  const [its, says] = task.parked ? ["‖", "parked"] : isAsking(task) ? ["?", "asks you"] : waitsToLand(task) ? ["?", "waits to land"] : [sign, isLanding(task) ? "approved, lands" : word];
  return h("span", { class: `badge ${toneOf(task)}` }, h("i", { "aria-hidden": "true" }, its), says);
}

// As on the command line: below a dollar with three significant digits, and never 0 where something was spent.
export function money(usd) {
  const value = Number(usd) || 0;
  if (value === 0) return "$0";
  if (value < 1e-6) return "<$0.000001";
  if (value >= 100) return `$${Math.round(value).toLocaleString("en")}`;
  if (value >= 1) return `$${value.toFixed(2)}`;
  const places = Math.max(2, Math.min(6, 2 - Math.floor(Math.log10(value))));
  const [whole, cents] = value.toFixed(places).split(".");
  return `$${whole}.${cents.replace(/0+$/, "").padEnd(2, "0")}`;
}

export function count(number) {
  const value = Number(number) || 0;
  if (value < 10000) return value.toLocaleString("en");
  return value < 1e6 ? `${(value / 1e3).toFixed(value < 1e5 ? 1 : 0)}k` : `${(value / 1e6).toFixed(1)}M`;
}

export const plural = (number, noun, nouns = `${noun}s`) => `${Number(number).toLocaleString("en")} ${number === 1 ? noun : nouns}`;

export function span(seconds) {
  const value = Math.max(0, Number(seconds) || 0);
  if (value < 1) return value === 0 ? "0 s" : `${value.toFixed(1)} s`;
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(value < 36000 ? 1 : 0)} h`;
  return `${Math.round(value / 86400)} d`;
}

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dated = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });

export const at = (seconds) => full.format(new Date(seconds * 1000));

export function clock(seconds) {
  const when = new Date(seconds * 1000);
  return Date.now() - when < 64800000 ? short.format(when) : dated.format(when);
}

function sinceWords(seconds) {
  const past = Date.now() / 1000 - seconds;
  return past < 5 ? "just now" : `${span(past)} ago`;
}

// A time that shows its age; `tick` updates all in the page now and then.
export function ago(seconds) {
  if (!seconds) return h("span", { class: "faint" }, "–");
  const iso = new Date(seconds * 1000).toISOString();
  return h("time", { class: "ago", datetime: iso, "data-at": String(seconds), title: at(seconds) }, sinceWords(seconds));
}

export function tick() {
  for (const node of document.querySelectorAll("time.ago")) {
    const words = sinceWords(Number(node.dataset.at));
    if (node.textContent !== words) node.textContent = words;
  }
}

// A note of an answer, which begins small, as a sentence of its own; empty where there is none.
export const sentence = (note) => (note ? `${note[0].toUpperCase()}${note.slice(1)}${/[.!?]$/.test(note) ? "" : "."}` : "");

export const taskLink = (id) => `#/task/${encodeURIComponent(id)}`;
export const taskOf = (attempt) => String(attempt || "").replace(/\.\d+$/, "");

// The sentences of the command line, without what only helps there: references to entries, and JSON.
export function readable(words) {
  const text = words.replace(/ \(intent [^)]*\)/, "");
  const found = /: (\{.*\})$/s.exec(text);
  if (!found) return text;
  try {
    const facts = Object.entries(JSON.parse(found[1])).filter(([, value]) => value !== "" && !(Array.isArray(value) && !value.length));
    const told = facts.map(([name, value]) => (name === "detail" ? value : `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`));
    return text.slice(0, found.index) + (told.length ? `: ${told.join(", ")}` : "");
  } catch {
    return text;
  }
}

// Landings that are no longer on their branch, and locks of dead runs, each with what to type.
export const repositoryNotices = (status) => [
  ...((status || {}).held ? [h("p", { class: "notice warn", "data-held": "" }, status.held)] : []),
  ...((status || {}).unconfined ? [h("p", { class: "notice warn", "data-unconfined": "" }, status.unconfined)] : []),
  ...((status || {}).lost || []).slice(0, 5).map((each) => h("p", { class: "notice warn", "data-lost": each.task },
    h("a", { href: taskLink(each.task) }, h("bdi", {}, each.task)), `: ${lostWords(each)}`)),
  ...((status || {}).locks || []).slice(0, 5).map((each) => h("p", { class: "notice warn", "data-lock": each.path },
    `${each.why}. Type: ${each.next_step}`))];

// Agents that cannot use their model now, each in its own sentence.
export const outageNotices = (status) => ((status || {}).outages || []).slice(0, 5).map((each) =>
  h("p", { class: "notice warn", "data-outage": each.agent, title: each.detail }, each.text));
