// A task's page: its definition, its history, its turns, and its output.

import { buttonsFor, waitingWords } from "./actions.js";
import { get, part } from "./api.js";
import { cut, failed, h, nothing, paced, put } from "./dom.js";
import { gates, NO_GATE } from "./gates.js";
import { output } from "./output.js";
import { rise } from "./plot.js";
import { questionPanel } from "./questions.js";
import { review } from "./review.js";
import { store } from "./store.js";
import { turns } from "./turns.js";
import { ago, at, clock, count, faultWords, isLanding, lostWords, money, readable, span, stateBadge, taskLink, untilWhen, waitsToLand } from "./words.js";

const HISTORY = 500;
const PARTS = [["story", "Story"], ["turns", "Turns"], ["review", "Review"], ["output", "Output"], ["gates", "Gates"], ["spend", "Spend"], ["definition", "Definition"]];

export async function task(root, id, signal, query) {
  const state = { id, signal, attempt: query.get("attempt") || "", attempts: [], view: null, leave: new AbortController() };
  const nodes = { head: h("header", { class: "task-head" }), tabs: h("div", { class: "tabs", role: "tablist", "aria-label": "Parts" }),
    attempts: h("div", { class: "attempts" }), panel: h("section", { class: "panel", role: "tabpanel", tabindex: "-1", id: "panel", "aria-labelledby": "" }) };
  put(root, h("p", { class: "crumb" }, h("a", { href: "#/board" }, "Board"), " / ", h("bdi", {}, cut(id, 60))), nodes.head, questionPanel(signal, id), nodes.tabs, nodes.attempts, nodes.panel);
  signal.addEventListener("abort", () => state.leave.abort());
  let chosen = PARTS.some(([name]) => name === query.get("part")) ? query.get("part") : "story";

  async function read() {
    try {
      state.view = await get(`/tasks/${part(id)}`, {}, signal);
      paintHead(nodes.head, state);
      return true;
    } catch (error) {
      if (error.name === "AbortError") return false;
      put(root, error.status === 404 ? nothing("There is no such task", error.message, h("p", {}, h("a", { href: "#/board" }, "To the board"))) : failed(error, "this task"));
      return false;
    }
  }

  async function readAttempts() {
    try {
      state.attempts = (await get(`/tasks/${part(id)}/attempts`, {}, signal)).attempts;
    } catch (error) {
      if (error.name === "AbortError") return;
      const row = state.view.task;
      state.attempts = row.attempt ? [{ id: row.attempt, agent: row.agent, model: row.model, turns: row.turns, usd: row.usd, state: row.state }] : [];
    }
    const last = state.attempts[state.attempts.length - 1];
    if (!state.picked && !query.get("attempt")) state.attempt = last ? last.id : "";
    paintHead(nodes.head, state);
    paintAttempts();
  }

  function paintAttempts() {
    const wanted = ["turns", "output", "spend"].includes(chosen) && state.attempts.length > 1;
    const words = wanted ? JSON.stringify([state.attempts.map((each) => [each.id, each.outcome]), state.attempt]) : "";
    if (nodes.attempts.dataset.words === words) return;
    nodes.attempts.dataset.words = words;
    put(nodes.attempts, wanted && h("label", {}, "Attempt ", h("select", { onchange: (event) => {
      state.attempt = event.target.value;
      state.picked = true;
      show();
    } }, state.attempts.map((each) => h("option", { value: each.id, selected: each.id === state.attempt }, `${cut(each.id, 40)} · ${each.agent || ""} · ${outcomeWords(each)}`)))));
  }

  function paintTabs() {
    put(nodes.tabs, PARTS.map(([name, label]) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", "data-part": name,
      "aria-selected": String(name === chosen), onclick: () => choose(name) }, label)));
    nodes.panel.setAttribute("aria-labelledby", `tab-${chosen}`);
  }

  function choose(name) {
    chosen = name;
    history.replaceState(null, "", `${taskLink(id)}?part=${name}`);
    paintTabs();
    document.getElementById(`tab-${name}`).focus();
    show();
  }

  // A part gets a signal of its own: its requests end when another one is shown.
  function show() {
    state.leave.abort();
    state.leave = new AbortController();
    paintAttempts();
    put(nodes.panel);
    state.update = { story, gates, spend, definition, turns, output, review }[chosen](nodes.panel, state, state.leave.signal);
  }

  if (!await read()) return;
  await readAttempts();
  if (signal.aborted) return;
  paintTabs();
  show();
  const soon = paced(async () => {
    if (signal.aborted || !await read()) return;
    const before = state.attempt;
    await readAttempts();
    if (before !== state.attempt) show();
    else if (state.update) state.update();
  }, 400);
  store.on("event", (entry) => { if (entry.task === id) soon(); }, signal);
  store.on("again", soon, signal);
  let lost = store.lostOf(id);
  store.on("status", () => {
    if (JSON.stringify(lost) !== JSON.stringify(store.lostOf(id))) soon();
    lost = store.lostOf(id);
  }, signal);
}

const outcomeWords = (attempt) => attempt.outcome && typeof attempt.outcome === "string" ? attempt.outcome : attempt.state || "";

function paintHead(node, { view, attempts }) {
  // The agent that worked on it last, even if none does now.
  const last = attempts[attempts.length - 1] || {};
  const row = { title: "", turns: 0, usd: 0, tokens: 0, attempts: 0, labels: [], depends_on: [], parked: "", priority: 5, ...view.task };
  // Why it went to its agent, and where its last start began another conversation, why that.
  const [, chosen, begun] = /^(.*?)(?:(?:^|; )begins another conversation: (.*))?$/s.exec(view.why || "");
  const facts = [
    (row.agent || last.agent) && ["Agent", [row.agent || last.agent, row.model || last.model].filter(Boolean).join(" · ")],
    chosen && ["Chosen because", cut(chosen, 120)],
    begun && ["New conversation", cut(begun, 200)],
    row.role && ["Role", row.role], ["Priority", String(row.priority)], ["Attempts", String(row.attempts)], ["Turns", count(row.turns)], ["Spent", money(row.usd)],
    row.tokens > 0 && ["Tokens", count(row.tokens)], row.added_at && ["Added", ago(row.added_at)], row.changed_at && ["Changed", ago(row.changed_at)],
    row.parent && ["Part of", link(row.parent)],
    row.depends_on.length > 0 && ["Depends on", links(row.depends_on)],
    (view.subtasks || []).length > 0 && ["Subtasks", links(view.subtasks)],
    view.pull_request && ["Pull request", /^https?:/.test(view.pull_request) ? h("a", { href: view.pull_request, rel: "noreferrer" }, cut(view.pull_request, 80)) : h("span", {}, cut(view.pull_request, 80))],
    view.landed && ["Landed", h("span", {}, h("code", {}, view.landed.slice(0, 10)), view.landed_on && ` on ${cut(view.landed_on.replace(/^refs\/heads\//, ""), 40)}`)],
    row.labels.length > 0 && ["Labels", row.labels.map((each) => h("span", { class: "label" }, cut(each, 30)))],
  ].filter(Boolean);
  const isWaiting = ["OPEN", "BLOCKED", "WAITING_FOR_SUBTASKS"].includes(row.state);
  // The time is shown with its cause.
  const others = (view.waits || []).filter((each) => each !== row.asks && !/^(it is|not before|held up by) /.test(each)).slice(0, 6);
  const waits = isWaiting ? [row.held, untilWhen(row), ...others].filter((each, place, all) => each && all.indexOf(each) === place) : [];
  const kept = node.querySelector("[data-action]:focus");
  put(node, h("div", { class: "task-title" }, stateBadge(row), h("h1", {}, h("bdi", {}, cut(row.title || row.id, 300)))),
    row.parked && h("p", { class: "notice warn" }, "Parked: ", row.parked),
    row.state === "PENDING_APPROVAL" && h("p", { class: "notice ask", "data-approval": "" }, "Waits for your approval", (view.outcome || {}).detail ? `: ${cut(view.outcome.detail, 400)}. ` : ". ",
      h("a", { href: `${taskLink(row.id)}?part=review` }, "Review it")),
    isLanding(row) && h("p", { class: "notice", "data-landing": "" }, "Approved, and landing. ", row.judging ? "The target has moved meanwhile, so its gates run once more on top of it." : "Nothing is left for you to do."),
    row.asks && !row.parked && !store.operates && h("p", { class: "notice ask", "data-asks": row.id }, row.asks),
    waitsToLand(row) && h("p", { class: "notice warn" }, waitingWords(row)),
    store.lostOf(row.id) && h("p", { class: "notice warn", "data-lost": row.id }, lostWords(store.lostOf(row.id))),
    row.judging && h("p", { class: "notice", "data-judging": row.id }, "Being judged: ", cut(row.judging, 200)),
    (view.told || []).length > 0 && h("div", { class: "notice", "data-told": "" }, "Its agent gets at its next turn or start:",
      h("ul", {}, view.told.slice(-5).map((each) => h("li", {}, cut(each.text, 400), " ", h("span", { class: "faint" }, `${each.by || "a person"}, `, ago(each.at)))))),
    faultWords(row) && !row.parked && h("p", { class: "notice warn" }, faultWords(row)),
    waits.length > 0 && !row.parked && h("p", { class: "notice" }, waits.join("; ")),
    row.reason && !waits.some((each) => each.includes(row.reason)) && h("p", { class: `notice ${row.state === "FAILED" ? "bad" : ""}`, "data-reason": row.state }, `${REASONS[row.state] || "Last try"}: `, cut(row.reason, 1000),
      /^gate_/.test((view.outcome || {}).kind) && [" ", h("a", { href: `${taskLink(row.id)}?part=gates` }, "What the gate printed")]),
    row.progress && h("p", { class: "notice" }, cut(row.progress, 300)),
    view.unchecked && !["CLOSED", "CANCELLED"].includes(row.state) && h("p", { class: "unchecked warn-text" }, NO_GATE),
    view.outcome && view.outcome.kind === "answer" && h("p", { class: "notice answer" }, String(view.outcome.answer || "").split("\n").map((line) => h("span", {}, line, h("br")))),
    h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("div", { class: "buttons" }, buttonsFor(row), h("a", { class: "button plain", href: `#/graph?of=${encodeURIComponent(row.id)}` }, "In the graph"),
      h("a", { class: "button plain", href: `#/journal?task=${encodeURIComponent(row.id)}` }, "In the journal")));
  if (kept) {
    const again = node.querySelector(`[data-action="${CSS.escape(kept.dataset.action)}"]`);
    if (again) again.focus();
  }
}

const REASONS = { FAILED: "Failed", CANCELLED: "Cancelled" };
const link = (id) => h("a", { href: taskLink(id) }, h("bdi", {}, cut(id, 40)));
const links = (ids) => ids.slice(0, 20).flatMap((id, place) => [place ? ", " : "", link(id)]);

function story(panel, { id }, signal) {
  const list = h("ol", { class: "story" });
  const said = h("span", { class: "faint" });
  const full = h("button", { type: "button", onclick: () => {
    isFull = !isFull;
    paint();
  } }, "In full");
  const paint = () => {
    full.setAttribute("aria-pressed", String(isFull));
    list.classList.toggle("full", isFull);
    said.textContent = isFull ? "Every entry of the journal, as on the command line" : "What happened, oldest first";
  };
  let after = "";
  paint();
  put(panel, h("div", { class: "output-bar" }, said, full), list);
  async function read() {
    try {
      do {
        const page = await get(`/tasks/${part(id)}/history`, { limit: HISTORY, after }, signal);
        if (page.events.length) {
          const last = page.events[page.events.length - 1];
          after = `${last.run}:${last.seq}`;
        }
        list.append(...page.events.flatMap(told));
        if (!page.next) break;
        after = page.next;
      } while (!signal.aborted);
      if (!list.children.length) put(panel, nothing("Nothing has happened yet", ""));
    } catch (error) {
      if (error.name !== "AbortError" && !list.children.length) put(panel, failed(error, "histories"));
    }
  }
  let busy = read();
  return () => { busy = busy.then(read); };
}

let isFull = false;

// Two versions: in plain words, where there are some, and as the journal has it. One of them is shown.
function told(event) {
  const bad = /failed|orphaned|parked|abandoned|refused/.test(event.kind);
  const good = /closed|land_confirmed/.test(event.kind);
  const tone = bad ? "bad" : good ? "good" : /turn_|_intent|_confirmed/.test(event.kind) ? "minor" : "";
  const line = (kind, words) => h("li", { class: `${tone} ${kind}` },
    h("time", { class: "num", datetime: new Date(event.at * 1000).toISOString(), title: at(event.at) }, clock(event.at)), h("span", {}, cut(words, 600)));
  return [event.plain && line("plain", event.plain), line("whole", readable(event.words || event.kind.replaceAll("_", " ")))].filter(Boolean);
}

function definition(panel, state) {
  const paint = () => {
    const rows = Object.entries(state.view.definition || {}).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length));
    put(panel, rows.length ? h("dl", { class: "definition" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name),
      h("dd", {}, h("pre", {}, cut(typeof value === "string" ? value : JSON.stringify(value, null, 1), 20000))))))
      : nothing("Its file cannot be read", "What was decided about it is in its story."));
  };
  paint();
  return paint;
}

function spend(panel, state, signal) {
  const read = async () => {
    if (!state.attempt) {
      put(panel, nothing("Nothing spent yet", ""));
      return;
    }
    try {
      const told = await get(`/attempts/${part(state.attempt)}/spend`, {}, signal);
      // Of a long attempt only the last lines are shown, but the whole sum.
      let sum = told.usd - told.lines.reduce((before, line) => before + line.usd, 0);
      const first = Math.max(0, sum);
      const points = told.lines.map((line) => ({ at: line.at, value: sum += line.usd }));
      if (points.length) points.unshift({ at: points[0].at, value: first });
      put(panel, h("div", { class: "tiles" }, [["Spent", money(told.usd)], ["Tokens", count(told.tokens)], ["Lines", count(told.lines.length)],
        ["Estimated", count(told.lines.filter((line) => line.estimated).length)]].map(([label, value]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, label)))),
      points.length ? rise("Spent by this attempt", points, money, clock) : h("p", { class: "faint" }, "This attempt has reported no spending."));
    } catch (error) {
      if (error.name !== "AbortError") put(panel, failed(error, "spending"));
    }
  };
  read();
  return read;
}
