// The board: a column for each kind of state. Only the visible cards are in the page.

import { addTask, buttonsFor, waitingWords } from "./actions.js";
import { announce, cut, debounce, h, nothing, paced, put } from "./dom.js";
import { questionPanel } from "./questions.js";
import { store } from "./store.js";
import { COLUMNS, ago, columnOf, count, faultWords, lostWords, money, outageNotices, repositoryNotices, STATES, stateBadge, taskLink, toneOf, untilWhen, waitsToLand } from "./words.js";

const CARDS = 40;

export function board(root, query, signal) {
  const shown = Object.fromEntries(COLUMNS.map(([name]) => [name, CARDS]));
  const filter = Object.fromEntries(["text", "state", "role", "label", "agent"].map((name) => [name, query.get(name) || ""]));
  let column = query.get("column") || "";
  const cards = new Map();
  const tiles = h("div", { class: "tiles" });
  const notices = h("div", {});
  const bar = filters(filter, () => {
    remember(filter);
    paint();
  });
  const tabs = h("div", { class: "column-tabs", role: "group", "aria-label": "Column" });
  const columns = h("div", { class: "columns" });
  const lists = Object.fromEntries(COLUMNS.map(([name, label]) => {
    const list = h("ul", { class: "cards" });
    const number = h("span", { class: "number" }, "0");
    const more = h("button", { type: "button", class: "quiet show-more", hidden: true, onclick: () => {
      shown[name] += CARDS * 2;
      paint();
    } }, "Show more");
    columns.append(h("section", { class: `column ${name}`, "data-column": name, "aria-label": label }, h("h2", {}, label, number), list, more));
    return [name, { list, number, more }];
  }));
  const empty = h("div", {});
  put(root, h("div", { class: "page-head" }, h("h1", {}, "Board"), bar.node,
    store.operates && h("button", { type: "button", class: "primary", "data-action": "add", onclick: addTask, title: "n" }, "Add a task")),
  questionPanel(signal), tiles, notices, empty, tabs, columns);

  function paint() {
    const all = [...store.tasks.values()];
    bar.update(all);
    paintTiles(tiles, all);
    paintNotices(notices);
    const isBare = store.loaded && all.length === 0;
    columns.hidden = tabs.hidden = isBare || !store.loaded;
    bar.node.hidden = isBare;
    put(empty, isBare ? welcome() : !store.loaded && (store.error ? h("p", { class: "notice bad" }, store.error.message) : h("p", { class: "faint" }, "Reading…")));
    if (isBare || !store.loaded) return;
    const sorted = Object.fromEntries(COLUMNS.map(([name]) => [name, []]));
    let found = 0;
    for (const task of all) {
      if (!fits(task, filter)) continue;
      found += 1;
      sorted[columnOf(task)].push(task);
    }
    for (const [name] of COLUMNS) {
      sorted[name].sort(name === "wait" ? byTurn : byChange);
      fill(lists[name], sorted[name], shown[name]);
    }
    paintTabs(sorted);
    if (bar.isUsed()) bar.say(`${found.toLocaleString("en")} of ${all.length.toLocaleString("en")}`);
    else bar.say("");
  }

  function paintTabs(sorted) {
    const now = column || (COLUMNS.find(([name]) => sorted[name].length && name !== "good") || COLUMNS.find(([name]) => sorted[name].length) || COLUMNS[0])[0];
    columns.dataset.column = now;
    for (const section of columns.children) section.classList.toggle("chosen", section.dataset.column === now);
    const words = COLUMNS.map(([name, label]) => `${label} ${sorted[name].length}`).join();
    if (tabs.dataset.words === words + now) return;
    tabs.dataset.words = words + now;
    const focused = tabs.contains(document.activeElement);
    put(tabs, COLUMNS.map(([name, label]) => h("button", { type: "button", class: name, "aria-pressed": String(name === now), onclick: () => {
      column = name;
      paint();
    } }, h("b", {}, sorted[name].length.toLocaleString("en")), h("span", {}, label.replace("Failed or parked", "Failed")))));
    if (focused) tabs.querySelector("[aria-pressed=true]").focus();
  }

  // Cards are kept while their content stays, and moved only when their order changes: focus and hover stay.
  function fill({ list, number, more }, tasks, most) {
    const nodes = tasks.slice(0, most).map(cardOf);
    const same = nodes.length === list.children.length && nodes.every((node, place) => list.children[place] === node);
    if (!same) {
      const focused = list.contains(document.activeElement) ? document.activeElement : null;
      list.replaceChildren(...nodes);
      if (focused && focused.isConnected) focused.focus({ preventScroll: true });
    }
    number.textContent = tasks.length.toLocaleString("en");
    more.hidden = tasks.length <= most;
    more.textContent = `Show more (${(tasks.length - most).toLocaleString("en")})`;
  }

  function cardOf(task) {
    const waits = whyItWaits(task);
    const words = JSON.stringify([task, waits, store.agentOf(task)]);
    const kept = cards.get(task.id);
    if (kept && kept.words === words) return kept.node;
    const node = card(task, waits);
    if (kept && kept.task.state !== task.state && !matchMedia("(prefers-reduced-motion: reduce)").matches) node.classList.add("changed");
    if (kept && kept.task.state !== task.state) announce(`${cut(task.title || task.id, 80)}: ${(STATES[task.state] || [])[2] || task.state}`);
    cards.set(task.id, { words, node, task });
    return node;
  }

  const soon = paced(paint, 120);
  store.on("tasks", soon, signal);
  store.on("status", soon, signal);
  paint();
}

function remember(filter) {
  const words = new URLSearchParams(Object.entries(filter).filter(([, value]) => value)).toString();
  history.replaceState(null, "", `#/board${words ? `?${words}` : ""}`);
}

const byTurn = (a, b) => a.priority - b.priority || a.added_at - b.added_at;
const byChange = (a, b) => b.changed_at - a.changed_at;

function fits(task, filter) {
  if (filter.state && (filter.state === "parked" ? !task.parked : task.state !== filter.state)) return false;
  if (filter.role && task.role !== filter.role) return false;
  if (filter.agent && store.agentOf(task) !== filter.agent) return false;
  if (filter.label && !task.labels.includes(filter.label)) return false;
  return !filter.text || `${task.id} ${task.title}`.toLowerCase().includes(filter.text.toLowerCase());
}

export function whyItWaits(task) {
  if (task.parked) return task.parked;
  if (task.asks) return task.asks;
  if (waitsToLand(task)) return waitingWords(task);
  if (store.lostOf(task.id)) return lostWords(store.lostOf(task.id));
  if (faultWords(task)) return faultWords(task);
  if (task.state === "PENDING_APPROVAL") return "waits for your word";
  if (task.judging) return `judged as ${task.judging}`;
  if (task.state === "PLANNED") return "a plan: waits for your word";
  if (task.state === "FAILED") return task.reason || "";
  if (!["OPEN", "BLOCKED", "WAITING_FOR_SUBTASKS"].includes(task.state)) return "";
  const ended = task.depends_on.map((name) => store.tasks.get(name)).filter((other) => other && (other.state === "CANCELLED" || other.state === "FAILED"));
  if (ended.length) return `depends on ${ended.slice(0, 3).map((other) => `${other.id}, which is ${(STATES[other.state] || [])[2] || other.state}`).join("; ")}: ${ended[0].state === "FAILED" ? "retry that" : "take it out of depends_on"}, or cancel this`;
  if (task.held) return task.held;
  const open = task.depends_on.filter((name) => (store.tasks.get(name) || {}).state !== "CLOSED");
  if (open.length) return `waits for ${open.slice(0, 3).join(", ")}${open.length > 3 ? ` and ${open.length - 3} more` : ""}`;
  if (task.state === "WAITING_FOR_SUBTASKS") return "waits for its subtasks";
  return untilWhen(task);
}

function card(task, waits) {
  const who = store.agentOf(task);
  const spent = [task.turns > 0 && `turn ${task.turns}`, task.usd > 0 && money(task.usd), task.attempts > 1 && `attempt ${task.attempts}`].filter(Boolean);
  return h("li", { class: `card ${toneOf(task)}`, "data-task": task.id, "data-state": task.state },
    h("div", { class: "card-top" }, stateBadge(task), h("span", { class: "card-id", title: task.id }, h("bdi", {}, cut(task.id, 40))),
      task.priority !== 5 && h("span", { class: "prio", title: "priority: the smaller, the sooner" }, `P${task.priority}`)),
    h("a", { class: "card-title", href: taskLink(task.id) }, h("bdi", {}, cut(task.title || task.id, 160))),
    waits && h("p", { class: "card-why", title: waits }, cut(waits, 200)),
    task.progress && columnOf(task) === "work" && h("p", { class: "card-why" }, cut(task.progress, 120)),
    h("div", { class: "card-foot" }, who && h("span", { class: "who" }, cut(who, 24)), task.role && h("span", {}, cut(task.role, 24)),
      spent.map((each) => h("span", { class: "num" }, each)), task.labels.slice(0, 3).map((each) => h("span", { class: "label" }, cut(each, 20))),
      h("span", { class: "when" }, ago(task.changed_at || task.added_at))),
    actions(task));
}

function actions(task) {
  const made = buttonsFor(task, ["Approve", "Reject", "Resolve", "Retry", "Send back", "Land on a branch", ...(task.parked ? ["Resume"] : [])]);
  return made.length > 0 && h("div", { class: "card-buttons" }, made);
}

// `>` where there was too much to count, `<` where it is little.
function bytes(number, isWhole) {
  if (number == null) return "?";
  if (isWhole && number > 0 && number < 2 ** 20) return "<1 MB";
  return `${isWhole ? "" : ">"}${number < 2 ** 30 ? `${Math.round(number / 2 ** 20)} MB` : `${(number / 2 ** 30).toFixed(1)} GB`}`;
}

function paintTiles(node, all) {
  const status = store.status || {};
  const at = (test) => all.filter(test).length;
  const needs = (status.asking || 0) + at((task) => task.parked || waitsToLand(task) || store.lostOf(task.id) || task.state === "PENDING_APPROVAL" || task.state === "PLANNED");
  const tiles = [
    ["At work", String(at((task) => columnOf(task) === "work"))],
    ["Need you", String(needs), needs ? "ask" : ""],
    ["Landed", count(at((task) => task.state === "CLOSED"))],
    ["Today", money(status.usd_today ?? 0)],
    ["This run", money(status.usd_run ?? 0)],
    ["Turns", count(status.turns_run ?? 0)],
    ["Free memory", status.host?.memory_free == null ? "?" : `${(status.host.memory_free / 2 ** 30).toFixed(1)} GB`, status.held ? "ask" : ""],
    ["Worktrees", bytes(status.disk?.worktrees, status.disk?.is_whole)],
    ["Snapshots", bytes(status.disk?.snapshots, status.disk?.is_whole)],
  ];
  const words = tiles.join();
  if (node.dataset.words === words) return;
  node.dataset.words = words;
  put(node, tiles.map(([label, value, kind]) => h("div", { class: `tile ${kind || ""}` }, h("b", {}, value), h("span", {}, label))));
}

function paintNotices(node) {
  const status = store.status || {};
  const words = JSON.stringify([status.problems, status.stopping, status.outages, status.lost, status.locks, status.unconfined, status.held]);
  if (node.dataset.words === words) return;
  node.dataset.words = words;
  put(node, status.stopping && h("p", { class: "notice warn" }, `The run is ending: ${status.stopping}`),
    repositoryNotices(status),
    outageNotices(status),
    (status.problems || []).slice(0, 5).map((each) => h("p", { class: "notice warn" },
      `${String(each.file || "").split("/").pop()}${each.line ? `:${each.line}` : ""}: ${each.message}`)));
}

function filters(filter, changed) {
  const said = h("span", { class: "faint found", role: "status" });
  const search = h("input", { type: "search", "aria-label": "Search tasks", placeholder: "Search  /", value: filter.text,
    oninput: debounce(() => { filter.text = search.value; changed(); }, 80) });
  const selects = {};
  const choose = (name, label) => {
    selects[name] = h("select", { "aria-label": label, onchange: (event) => { filter[name] = event.target.value; changed(); } },
      h("option", { value: "" }, label));
    return selects[name];
  };
  const node = h("div", { class: "filters", role: "search" }, search, choose("state", "State"), choose("role", "Role"),
    choose("label", "Label"), choose("agent", "Agent"), said);
  return {
    node,
    say: (words) => { if (said.textContent !== words) said.textContent = words; },
    isUsed: () => Object.values(filter).some(Boolean),
    update(all) {
      const values = { state: new Set(), role: new Set(), label: new Set(), agent: new Set() };
      for (const task of all) {
        values.state.add(task.parked ? "parked" : task.state);
        if (task.role) values.role.add(task.role);
        if (store.agentOf(task)) values.agent.add(store.agentOf(task));
        task.labels.forEach((each) => values.label.add(each));
      }
      for (const [name, select] of Object.entries(selects)) {
        if (filter[name]) values[name].add(filter[name]);
        const wanted = [...values[name]].sort();
        select.hidden = !wanted.length;
        if (select.dataset.words === wanted.join("\n")) continue;
        select.dataset.words = wanted.join("\n");
        put(select, select.firstElementChild, wanted.map((each) => h("option", { value: each, selected: each === filter[name] },
          name === "state" && STATES[each] ? STATES[each][2] : cut(each, 40))));
      }
    },
  };
}

function welcome() {
  return nothing("Nothing to do yet",
    "Describe a piece of work. An agent does it in a worktree of its own, it is verified as it will land, and only then it lands.",
    store.operates && h("p", {}, h("button", { type: "button", class: "primary", "data-action": "add-first", onclick: addTask }, "Add the first task")),
    h("p", { class: "faint" }, "Or in a terminal:"),
    h("pre", { class: "typed" }, "holdfast add \"Fix the login page\"\nholdfast run --stay"));
}
