// The run over time: a bar for each attempt, and a mark where something was killed or recovered.

import { get } from "./api.js";
import { cut, failed, h, nothing, paced, put, s } from "./dom.js";
import { store } from "./store.js";
import { timescale } from "./timescale.js";
import { at, clock, plural, readable, span, STATES, taskLink, taskOf, toneOf } from "./words.js";

const ROW = 24;
const ROWS_MAX = 150;
const WINDOWS = [["3600", "1 h"], ["21600", "6 h"], ["86400", "1 day"], ["604800", "7 days"], ["0", "All"]];
// The kinds of marks, and how each is drawn and named. A landing is the end of a task's bar; a killed run is
// shown with the run.
const KINDS = [
  [/replay/, { tone: "good", name: "recovered", sign: "●", line: true, draw: () => s("circle", { cx: 0, cy: 41, r: 4.5 }) }],
  [/orphan|parked|abandoned/, { tone: "warn", name: "lost or parked", sign: "◆", line: true, draw: () => s("path", { d: "M0 35 6 41 0 47-6 41z" }) }],
  [/^task_failed$/, { tone: "bad", name: "task failed", sign: "▾", line: false, draw: () => s("path", { d: "M-5 37H5L0 46z" }) }],
];
const kindOf = (mark) => (KINDS.find(([test]) => test.test(mark.kind)) || [])[1];
const HOW = { killed: ["bad", "✕", "killed"], orderly: ["good", "●", "ended in order"], running: ["work", "◑", "running"],
  unknown: ["off", "?", "end unknown"] };

export function timeline(root, query, signal) {
  let seconds = 0;
  let data = null;
  const stage = h("div", { class: "timeline-stage" });
  const list = h("div", {});
  const choice = h("div", { class: "choice", role: "group", "aria-label": "How far back" });
  put(root, h("div", { class: "page-head" }, h("h1", {}, "Timeline"), choice), stage, list);
  const paintChoice = () => put(choice, WINDOWS.map(([value, label]) => h("button", { type: "button", "aria-pressed": String(Number(value) === seconds), onclick: () => {
    seconds = Number(value);
    paintChoice();
    choice.querySelector("[aria-pressed=true]").focus();
    draw();
  } }, label)));

  async function read() {
    const [runs, sessions, agents] = await Promise.allSettled([get("/timeline", { limit: 1000 }, signal), get("/sessions", { limit: 1000 }, signal), get("/agents", {}, signal)]);
    if (signal.aborted) return;
    data = { error: runs.reason, runs: (runs.value || {}).runs || [], marks: ((runs.value || {}).marks || []).filter(kindOf),
      bars: barsOf((sessions.value || {}).sessions || [], (agents.value || {}).agents || []) };
    draw();
  }

  function draw() {
    if (!data) return;
    const now = Date.now() / 1000;
    const times = [...data.bars.map((bar) => bar.began), ...data.runs.map((run) => run.began)].filter(Boolean);
    if (!times.length) {
      put(stage, data.error ? failed(data.error, "the timeline") : nothing("Nothing has run yet", "Each attempt is a bar here, and each kill a mark."));
      put(list);
      return;
    }
    const from = seconds ? now - seconds : Math.min(...times);
    put(stage, picture(data, from, Math.max(now, from + 60), Math.max(stage.clientWidth, 320)));
    put(list, runList(data));
  }

  const soon = paced(read, 2500);
  store.on("event", soon, signal);
  store.on("again", soon, signal);
  const resized = new ResizeObserver(paced(draw, 100));
  resized.observe(root);
  signal.addEventListener("abort", () => resized.disconnect());
  paintChoice();
  read();
}

function barsOf(sessions, agents) {
  const found = new Map();
  for (const each of sessions) {
    const key = each.attempt;
    const kept = found.get(key);
    const bar = { attempt: key, task: each.task || taskOf(key), agent: each.agent, began: each.began, ended: each.ended || null, turns: each.turns || 0 };
    if (kept) found.set(key, { ...kept, began: Math.min(kept.began, bar.began), ended: kept.ended && bar.ended ? Math.max(kept.ended, bar.ended) : bar.ended, turns: kept.turns + bar.turns });
    else found.set(key, bar);
  }
  for (const each of agents) {
    const kept = found.get(each.attempt);
    found.set(each.attempt, { ...(kept || { attempt: each.attempt, task: each.task, agent: each.agent, began: each.since }), ended: null,
      // `turn` is the one that it is in.
      turns: Math.max(0, each.turn - 1), live: true });
  }
  if (!found.size) {
    for (const task of store.tasks.values()) {
      if (task.attempt) found.set(task.attempt, { attempt: task.attempt, task: task.id, agent: task.agent, began: task.added_at, ended: task.changed_at, turns: task.turns });
    }
  }
  return [...found.values()].filter((bar) => bar.began);
}

function picture(data, from, to, width) {
  const bars = data.bars.filter((bar) => (bar.ended || to) >= from).sort((a, b) => b.began - a.began);
  const seen = bars.slice(0, ROWS_MAX).reverse();
  const side = width > 700 ? 170 : 96;
  const top = 46;
  const height = top + seen.length * ROW + 12;
  // Attempts at work are busy, and so is each moment of an event.
  const moments = [...data.runs.flatMap((run) => [run.began, run.ended]), ...data.marks.map((mark) => mark.at)].filter(Boolean);
  const scale = timescale(from, to, [...data.bars.map((bar) => [bar.began, bar.ended || to]), ...moments.map((when) => [when, when])], side, width - 10);
  const { x } = scale;
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Timeline: ${plural(seen.length, "attempt")}, ${plural(data.runs.length, "run")}` });
  for (const run of data.runs) band(svg, run, x, from, to, height);
  axis(svg, scale, height, width > 700 ? 8 : 4);
  for (const mark of data.marks) if (mark.at >= from && mark.at <= to) svg.append(markOf(mark, x, height));
  seen.forEach((bar, row) => svg.append(rowOf(bar, row, x, side, top, to)));
  for (const each of scale.folds) svg.append(foldOf(each, height));
  return [svg, legend(data), bars.length > ROWS_MAX && h("p", { class: "faint" }, `The newest ${ROWS_MAX} of ${plural(bars.length, "attempt")}.`)];
}

function band(svg, run, x, from, to, height) {
  const end = run.ended || (run.how === "running" ? to : null);
  if (end && end < from) return;
  const [left, right] = [x(run.began), end ? x(end) : x(run.began) + 2];
  svg.append(s("rect", { class: `run ${run.how}`, x: left, y: 24, width: Math.max(2, right - left), height: 8, rx: 2 },
    s("title", {}, `Run ${run.run}: ${howOf(run)[2]}, from ${at(run.began)}${run.ended ? ` to ${at(run.ended)}` : ""}`)));
  if (run.how === "killed" && run.ended) svg.append(s("line", { class: "kill", x1: right, x2: right, y1: 18, y2: height }),
    s("g", { class: "mark kill-mark", transform: `translate(${right} 0)` }, s("title", {}, `Run killed at ${at(run.ended)}`), s("path", { d: "M-5 23 5 33M5 23-5 33" })));
}

const howOf = (run) => HOW[run.how] || ["off", "?", run.how];

// Only the kinds that occur.
function legend(data) {
  const seen = KINDS.map(([, kind]) => kind).filter((kind) => data.marks.some((mark) => kindOf(mark) === kind)).map((kind) => [kind.tone, kind.sign, kind.name]);
  if (data.runs.some((run) => run.how === "killed")) seen.unshift(["bad", "✕", "run killed"]);
  return seen.length > 0 && h("p", { class: "legend faint" }, seen.map(([tone, sign, name]) => h("span", { class: tone }, h("i", { "aria-hidden": "true" }, sign), name)));
}

// A stretch of time in which nothing happened, with its length.
function foldOf({ x, a, b, wide }, height) {
  const words = span(b - a);
  const [left, right] = [x + 2, x + wide - 2];
  return s("g", { class: "fold" }, s("title", {}, `${words} in which no agent worked: ${at(a)} to ${at(b)}`),
    s("rect", { x: left, y: 0, width: right - left, height }),
    [left, right].map((edge) => s("path", { d: zigzag(edge, height) })),
    s("text", { class: "tick", x: (left + right) / 2, y: 14, "text-anchor": "middle" }, wide > 34 ? words : "…"));
}

function zigzag(x, height) {
  let path = `M${x} 20`;
  for (let y = 24, side = 2; y < height; y += 4, side = -side) path += `L${x + side} ${y}`;
  return path;
}

function axis(svg, scale, height, about) {
  const sizes = [10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
  const step = sizes.find((each) => scale.seconds / each <= about) || sizes[sizes.length - 1];
  const shift = new Date().getTimezoneOffset() * 60;
  for (const { a, b, x, wide } of scale.parts) {
    let last = -Infinity;
    for (let when = Math.ceil((a - shift) / step) * step + shift; when < b; when += step) {
      const place = scale.x(when);
      svg.append(s("line", { class: "grid", x1: place, x2: place, y1: 20, y2: height }));
      const words = step >= 86400 ? new Date(when * 1000).toISOString().slice(5, 10) : clock(when).replace(/^(\d\d:\d\d):00$/, "$1");
      const half = words.length * 3.4 + 2;
      // A label covers no other, and no fold beside it.
      if (place - half < Math.max(last, scale.folds.length ? x : 0) || (scale.folds.length && place + half > x + wide)) continue;
      last = place + half;
      svg.append(s("text", { class: "tick", x: place, y: 14, "text-anchor": "middle" }, words));
    }
  }
}

function rowOf(bar, row, x, side, top, to) {
  const task = store.tasks.get(bar.task) || { state: "OPEN", title: bar.task };
  const y = top + row * ROW;
  const end = bar.ended || to;
  // The task's state is that of its last attempt; those before it did not succeed.
  const isPast = !bar.live && task.attempt && task.attempt !== bar.attempt;
  const word = isPast ? "tried again since" : (STATES[task.state] || [])[2] || "";
  const wide = Math.max(4, x(end) - x(bar.began));
  return s("a", { href: taskLink(bar.task), class: `row ${bar.live ? "work" : isPast ? "off" : toneOf(task)}`, "aria-label": `${bar.attempt}: ${word}, ${span(end - bar.began)}` },
    s("title", {}, `${task.title || bar.task}\n${bar.attempt} · ${bar.agent || ""} · ${word}\n${at(bar.began)}, ${span(end - bar.began)}, ${turnWords(bar)}`),
    s("rect", { class: "row-back", x: 0, y: y - 2, width: x(to), height: ROW - 2 }),
    s("text", { class: "name", x: side - 8, y: y + 14, "text-anchor": "end" }, cut(bar.attempt, Math.floor(side / 7.4))),
    s("rect", { class: `span ${bar.live ? "live" : ""}`, x: x(bar.began), y: y + 2, width: wide, height: ROW - 9, rx: 3 }),
    wide > 70 && s("text", { class: "span-text", x: x(bar.began) + 6, y: y + 14 }, turnWords(bar)));
}

const turnWords = (bar) => `${bar.turns} ${bar.turns === 1 ? "turn" : "turns"}`;

function markOf(mark, x, height) {
  const kind = kindOf(mark);
  return s("g", { class: `mark ${kind.tone}`, transform: `translate(${x(mark.at)} 0)` }, s("title", {}, `${at(mark.at)}: ${kind.name}: ${mark.task} ${mark.plain || readable(mark.words)}`),
    kind.line && s("line", { x1: 0, x2: 0, y1: 36, y2: height }), kind.draw());
}

function runList(data) {
  const recovered = (run) => Object.entries(run.recovered || {}).filter(([, number]) => number).map(([name, number]) => `${number} ${name}`).join(", ");
  return [h("h2", {}, "Runs"), h("ol", { class: "runs" }, [...data.runs].reverse().slice(0, 50).map((run) => h("li", {},
    h("span", { class: `badge ${howOf(run)[0]}` }, h("i", { "aria-hidden": "true" }, howOf(run)[1]), howOf(run)[2]),
    h("code", {}, cut(run.run, 40)), h("span", { class: "num" }, clock(run.began), run.ended ? ` – ${clock(run.ended)}` : ""), recovered(run) && h("span", { class: "faint" }, `recovered: ${recovered(run)}`)))),
  data.marks.length > 0 && [h("h2", {}, "Marks"), h("ol", { class: "story" }, [...data.marks].reverse().slice(0, 100).map((mark) => h("li", { class: kindOf(mark).tone },
    h("time", { class: "num", title: at(mark.at) }, clock(mark.at)), h("span", {}, h("b", {}, `${kindOf(mark).sign} ${kindOf(mark).name}`), " ", mark.task && [h("a", { href: taskLink(mark.task) }, cut(mark.task, 40)), " "], cut(mark.plain || readable(mark.words), 300)))))]];
}
