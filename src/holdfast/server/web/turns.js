// The turns of an attempt, each with its diff, which is loaded when it is opened.

import { buttonsFor, forkAt, STOPPED, undoTo } from "./actions.js";
import { get, part } from "./api.js";
import { cut, failed, h, nothing, put, toast } from "./dom.js";
import { store } from "./store.js";
import { ago, count, money, plural, span } from "./words.js";

const LINES = 800;

export function turns(panel, state, signal) {
  const list = h("ol", { class: "turns" });
  const nodes = new Map();
  const whole = change(state, signal);
  put(panel, whole.node, list);
  const over = () => ["CLOSED", "CANCELLED"].includes(state.view.task.state);
  // Only while no agent works, and where the next start continues with the worktree as it is.
  const undoable = () => {
    const { state: now, attempt, parked } = state.view.task;
    return ["FAILED", "OPEN"].includes(now) && state.attempt === attempt && (!parked || parked === STOPPED);
  };
  // A decision about a task may change known turns; while it only continues, the new ones are enough.
  let last = 0;
  let stale = true;
  store.on("event", (entry) => { if (entry.task === state.id && entry.kind !== "turn_completed") stale = true; }, signal);
  store.on("again", () => { stale = true; }, signal);

  async function all() {
    let after = stale ? 0 : last;
    stale = false;
    const found = [];
    do {
      const page = await get(`/attempts/${part(state.attempt)}/turns`, { after }, signal);
      found.push(...page.turns);
      after = page.next;
    } while (after);
    return found;
  }

  async function read() {
    if (!state.attempt) {
      put(panel, nothing("No turns yet", "A turn ends with each tool that the agent has used; its diff is here then."));
      return;
    }
    try {
      const told = await all();
      if (!told.length && !last) {
        put(panel, nothing("No turns yet", "A turn ends with each tool that the agent has used; its diff is here then."));
        return;
      }
      if (!list.isConnected) put(panel, whole.node, list);
      whole.update();
      for (const each of told) {
        const words = JSON.stringify([each, state.attempt, over(), undoable()]);
        const kept = nodes.get(each.turn);
        if (kept && kept.words === words) continue;
        const node = turn(each, state.attempt, over(), undoable(), signal);
        if (kept) {
          // Parts that a person has opened stay open.
          node.querySelector("details").open = kept.node.querySelector("details").open;
          kept.node.replaceWith(node);
        } else list.prepend(node);
        nodes.set(each.turn, { words, node });
        last = Math.max(last, each.turn);
      }
    } catch (error) {
      stale = true;
      if (error.name !== "AbortError") put(panel, failed(error, "turns"));
    }
  }

  let busy = read();
  return () => { busy = busy.then(read); };
}

function turn(each, attempt, isOver, isUndoable, signal) {
  const body = h("div", { class: "turn-body" });
  const files = each.files || [];
  const guard = (work) => () => work().catch((error) => toast(error.message, "bad"));
  return h("li", { class: each.undone ? "undone" : "", "data-turn": each.turn }, h("details", { ontoggle: (event) => {
    if (event.target.open && !body.children.length) diff(body, attempt, each.turn, signal);
  } },
  h("summary", {}, h("b", { class: "num" }, `Turn ${each.turn}`), each.undone && h("span", { class: "badge off" }, "undone"),
    each.tool && h("code", {}, cut(each.tool, 60)), h("span", { class: "faint" }, files.length ? `${cut(files.map((file) => file.path || file).slice(0, 3).join(", "), 80)}${files.length > 3 ? ` +${files.length - 3}` : ""}` : "no file changed"),
    h("span", { class: "turn-end num" }, each.usd > 0 && h("span", {}, money(each.usd)), each.tokens > 0 && h("span", {}, count(each.tokens)),
      each.seconds > 0 && h("span", {}, span(each.seconds)), ago(each.at))), body),
  store.operates && h("div", { class: "turn-buttons" },
    isUndoable && h("button", { type: "button", class: "quiet", "data-action": "undo", onclick: guard(() => undoTo(attempt, each.turn)) }, "Undo to here"),
    h("button", { type: "button", class: "quiet", "data-action": "fork", onclick: guard(() => forkAt(attempt, each.turn, isOver)) }, "Fork")));
}

// The whole change as it would land, with the decision beside it where the task waits for one.
function change(state, signal) {
  const body = h("div", { class: "turn-body" });
  const buttons = h("div", { class: "turn-buttons" });
  const details = h("details", { ontoggle: () => { if (details.open) read(); } }, h("summary", {}, h("b", {}, "The whole change, as it would land")), body);
  async function read() {
    put(body, h("p", { class: "faint" }, "Reading…"));
    try {
      const told = await get(`/tasks/${part(state.id)}/diff`, {}, signal);
      put(body, told.conflicts.length > 0 && h("p", { class: "notice warn" }, `It conflicts with the newest target in ${told.conflicts.slice(0, 5).join(", ")}.`),
        told.patch ? patch(told.patch, told.files || []) : h("p", { class: "faint" }, "It changes nothing."),
        told.truncated && h("p", { class: "notice warn" }, "It is longer than this. `holdfast diff` shows all of it."));
    } catch (error) {
      if (error.name !== "AbortError") put(body, failed(error, "diffs"));
    }
  }
  const update = () => put(buttons, state.view.task.state === "PENDING_APPROVAL" ? buttonsFor(state.view.task, ["Approve", "Reject"]) : []);
  update();
  return { node: h("div", { class: "whole", "data-part": "whole" }, details, buttons), update };
}

async function diff(body, attempt, number, signal) {
  put(body, h("p", { class: "faint" }, "Reading…"));
  try {
    const told = await get(`/attempts/${part(attempt)}/diff`, { to: number }, signal);
    put(body, told.patch ? patch(told.patch, told.files || []) : h("p", { class: "faint" }, "This turn has changed no file."),
      told.truncated && h("p", { class: "notice warn" }, "It is longer than this. `holdfast diff` shows all of it."));
  } catch (error) {
    if (error.name !== "AbortError") put(body, failed(error, "diffs"));
  }
}

// A patch, file by file. The names are those of the list, which is in the same order: in the patch they may be quoted.
function patch(text, files) {
  return text.split(/^(?=diff --git )/m).filter((each) => each.trim()).map((each, place) => {
    const lines = each.replace(/\n$/, "").split("\n");
    const file = files[place] || { path: (/^diff --git a\/.* b\/(.*)$/m.exec(each) || ["", "file"])[1] };
    const name = file.old_path ? `${file.old_path} → ${file.path}` : file.path;
    const start = lines.findIndex((line) => line.startsWith("@@"));
    const box = h("pre", { class: "diff", tabindex: "0", "aria-label": `Diff of ${cut(name, 100)}` });
    fill(box, start < 0 ? lines : lines.slice(start), 0);
    return h("details", { class: "file", open: true }, h("summary", {}, h("code", {}, h("bdi", {}, cut(name, 200))), counts(file)), box);
  });
}

function counts({ added, removed }) {
  if (added === undefined) return null;
  // Git counts the lines of text only.
  if (added === null || removed === null) return h("span", { class: "faint" }, "binary");
  return h("span", { class: "num" }, h("ins", {}, `+${added}`), " ", h("del", {}, `−${removed}`));
}

function fill(box, lines, from) {
  for (const line of lines.slice(from, from + LINES)) {
    const kind = { "+": "add", "-": "cut", "@": "hunk", "\\": "note" }[line[0]] || "";
    box.append(h("span", { class: kind }, `${cut(line, 2000)}\n`));
  }
  if (from + LINES < lines.length) {
    const more = h("button", { type: "button", class: "quiet", onclick: () => {
      more.remove();
      fill(box, lines, from + LINES);
    } }, `Show ${plural(lines.length - from - LINES, "more line")}`);
    box.append(more);
  }
}
