// The decisions that a person can make, and when. Each is confirmed in a dialog before it is sent.

import { change, get, part, post } from "./api.js";
import { openDialog } from "./dialog.js";
import { h, toast } from "./dom.js";
import { store } from "./store.js";
import { sentence, taskLink, waitsToLand } from "./words.js";

const OVER = ["CLOSED", "CANCELLED"];
// The `parked` of a task whose agent a person has stopped.
export const STOPPED = "a person has stopped its agent";
// How the `parked` of a task begins that a person has taken.
export const TAKEN_BY = "taken by ";
const known = (key) => [...new Set([...store.tasks.values()].flatMap((task) => task[key]).filter(Boolean))].sort();

function done(answer, words) {
  if (!answer) return null;
  const row = answer.task || answer;
  toast(`${words} ${sentence(answer.note)}`);
  if (row && row.id) store.refresh(row.id);
  return answer;
}

function decision(verb, title, words, yes, past, danger = false) {
  return async (task) => done(await openDialog({ title: title(task), words, yes, danger,
    act: () => post(`/tasks/${part(task.id)}/${verb}`) }), `${task.id}: ${past}.`);
}

export async function addTask() {
  const answer = await openDialog({
    title: "Add a task",
    words: "It is on disk when this dialog closes, and is worked on when its turn comes.",
    yes: "Add",
    fields: [
      { name: "title", label: "Title", required: true, placeholder: "Fix the login page" },
      { name: "goal", label: "Goal", kind: "area", rows: 5, hint: "The agent's instructions. Without a goal it gets the title." },
      { name: "agent", label: "Agent", half: true, list: known("agent"), hint: "Empty: as the settings say." },
      { name: "priority", label: "Priority", kind: "number", half: true, value: 5, min: "0", max: "1000", hint: "The smaller, the sooner." },
      { name: "verify", label: "Verify with", kind: "lines", rows: 2, hint: "Commands, one a line; all must pass before it lands." },
      { name: "approve", label: "Ask me before it lands", kind: "check" },
      { name: "id", label: "Id", more: true, half: true, hint: "Empty: made from the title." },
      { name: "role", label: "Role", more: true, half: true, list: known("role") },
      { name: "labels", label: "Labels", kind: "names", more: true, half: true },
      { name: "depends_on", label: "Depends on", kind: "names", more: true, half: true, hint: "Ids of tasks that come first." },
      { name: "budget_usd", label: "Budget in $", kind: "number", step: "0.01", min: "0", more: true, half: true },
      { name: "model", label: "Model", more: true, half: true, list: known("model") },
      { name: "command", label: "Command", more: true, hint: "Runs this command in place of an agent." },
      { name: "script", label: "Script", kind: "area", more: true, hint: "Steps for the scripted agent." },
    ],
    act: (values) => {
      const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== false && !(Array.isArray(value) && !value.length));
      return post("/tasks", Object.fromEntries(given));
    },
  });
  if (answer) {
    toast(`${answer.id} is added.`);
    store.refresh(answer.id);
  }
  return answer;
}

async function editTask(task) {
  const view = await get(`/tasks/${part(task.id)}`);
  const is = view.definition;
  const before = { title: is.title || "", goal: is.goal || "", priority: is.priority ?? 5, labels: (is.labels || []).join(" "),
    budget_usd: is.budget_usd ?? null };
  return done(await openDialog({
    title: `Edit ${task.id}`,
    words: "An attempt at work continues as it began; the change counts from the next attempt.",
    yes: "Save",
    fields: [
      { name: "title", label: "Title", value: before.title },
      { name: "goal", label: "Goal", kind: "area", rows: 5, value: before.goal },
      { name: "priority", label: "Priority", kind: "number", half: true, value: before.priority, min: "0", hint: "The smaller, the sooner." },
      { name: "budget_usd", label: "Budget in $", kind: "number", step: "0.01", half: true, value: before.budget_usd },
      { name: "labels", label: "Labels", kind: "names", value: before.labels },
    ],
    act: async (values) => {
      const changes = {};
      for (const [name, value] of Object.entries(values)) {
        const same = name === "labels" ? value.join(" ") === before.labels : value === before[name];
        if (!same) changes[name] = value === "" || (Array.isArray(value) && !value.length) ? null : value;
      }
      if (!Object.keys(changes).length) return view;
      return change("PATCH", `/tasks/${part(task.id)}`, { changes }, view.etag ? { "If-Match": `"${view.etag}"` } : {});
    },
  }), `${task.id}: saved.`);
}

async function rejectTask(task) {
  return done(await openDialog({
    title: `Reject ${task.id}?`,
    words: "Nothing of it lands. The agent gets the reason if the task is tried again.",
    yes: "Reject", danger: true,
    fields: [{ name: "reason", label: "Reason", kind: "area", required: true }],
    act: (values) => post(`/tasks/${part(task.id)}/reject`, values),
  }), `${task.id}: rejected.`);
}

export const waitingWords = (task) => `Its landing waits: you have changed ${task.landing_waits.slice(0, 5).join(", ")} in your checkout. `
  + "Commit or put away your changes there, send it back, land it on a branch, or cancel it.";

async function sendBack(task) {
  return done(await openDialog({
    title: `Send ${task.id} back?`,
    words: "Nothing of it lands. The agent gets the reason in its next attempt.",
    yes: "Send back", danger: true,
    fields: [{ name: "reason", label: "Reason", kind: "area", required: true }],
    act: (values) => post(`/tasks/${part(task.id)}/retry`, values),
  }), `${task.id}: sent back.`);
}

async function landOnBranch(task) {
  return done(await openDialog({
    title: `Land ${task.id} on a branch?`,
    words: "What was verified becomes a new branch, and your checkout stays as it is.",
    yes: "Land",
    fields: [{ name: "branch", label: "New branch", required: true }],
    act: (values) => post(`/tasks/${part(task.id)}/promote`, values),
  }), `${task.id}:`);
}

async function resolveTask(task) {
  return done(await openDialog({
    title: `Resolve ${task.id}`,
    words: `It is parked, because only a person can know: ${task.parked}`,
    yes: "Decide",
    fields: [{ name: "decision", label: "Decision", kind: "choice", value: "retry", options: [
      ["happened", "It happened: continue as if it was done"], ["retry", "It did not happen: do it again"],
      ["abandon", "Give it up"]] }],
    act: (values) => post(`/tasks/${part(task.id)}/resolve`, values),
  }), `${task.id}: decided.`);
}

export async function undoTo(attempt, turn) {
  return done(await openDialog({
    title: turn ? `Undo back to turn ${turn}?` : "Undo everything?",
    words: `The worktree of ${attempt} is put back to ${turn ? `how turn ${turn} left it` : "where it began"}. Its present content is saved first.`,
    yes: "Undo", danger: true,
    act: () => post(`/attempts/${part(attempt)}/undo`, { turn }),
  }), `${attempt}: undone.`);
}

export async function forkAt(attempt, turn, isOver) {
  const answer = await openDialog({
    title: `Fork at turn ${turn}?`,
    words: isOver ? "The task has ended: a new task begins with the tree that this turn left."
      : "The task's next attempt begins with the tree that this turn left.",
    yes: "Fork",
    fields: isOver ? [{ name: "id", label: "Id of the new task", hint: "Empty: one is made." }] : [],
    act: (values) => post(`/attempts/${part(attempt)}/fork`, { turn, ...(values.id ? { id: values.id } : {}) }),
  });
  if (done(answer, `${attempt}: forked.`) && answer.task) location.hash = taskLink(answer.task.id);
}

export async function stopAgent(agent) {
  const answer = await openDialog({
    title: `Stop ${agent.attempt}?`,
    words: "Its process is ended. Completed turns are kept, and the attempt can be resumed.",
    yes: "Stop", danger: true,
    act: () => post(`/agents/${part(agent.attempt)}/stop`),
  });
  return done(answer, `${agent.attempt}: asked to stop.`);
}

async function tellTask(task) {
  return done(await openDialog({
    title: `Tell the agent of ${task.id}`,
    words: "An agent at work gets it at the end of its turn. Otherwise its conversation goes on with it, and no attempt is spent.",
    yes: "Tell",
    fields: [{ name: "message", label: "Message", kind: "area", rows: 4, required: true }],
    act: (values) => post(`/tasks/${part(task.id)}/tell`, values),
  }), `${task.id}: told.`);
}

// The buttons that a task's state allows: [label, work, kind].
export function actionsOf(task) {
  if (!store.operates) return [];
  const found = [];
  const asks = ["PENDING_APPROVAL", "PLANNED"].includes(task.state) && !task.parked;
  if (asks) {
    found.push(["Approve", decision("approve", (each) => `Approve ${each.id}?`,
      task.state === "PLANNED" ? "The plan is accepted, and work begins." : "What was verified lands on the branch.", "Approve", "approved"), "primary"]);
    found.push(["Reject", rejectTask, ""]);
  }
  if ((task.parked || "").startsWith(TAKEN_BY)) {
    found.push(["Give back", decision("give_back", (each) => `Give ${each.id} back?`,
      "Only where the session in that terminal is over. The worktree is saved as it is, and the agent goes on from there.", "Give back", "given back"), ""]);
  } else if (task.parked === STOPPED) {
    found.push(["Resume", decision("resume", (each) => `Resume ${each.id}?`, "Its attempt continues where it was stopped, or from the turn that it was put back to.", "Resume", "goes on"), "primary"]);
  } else if (task.parked) found.push(["Resolve", resolveTask, "primary"]);
  if (task.state === "FAILED" && !task.parked) {
    found.push(["Retry", decision("retry", (each) => `Retry ${each.id}?`, "It is opened again, and gets a new attempt.", "Retry", "opened again"), "primary"]);
    if (task.attempt) found.push(["Resume", decision("resume", (each) => `Resume ${each.id}?`, "Its last attempt continues where it ended.", "Resume", "goes on"), ""]);
  }
  if (waitsToLand(task)) {
    found.push(["Send back", sendBack, "primary"]);
    found.push(["Land on a branch", landOnBranch, ""]);
  }
  if (!OVER.includes(task.state)) found.push(["Tell", tellTask, ""], ["Edit", editTask, ""]);
  if (!OVER.includes(task.state)) {
    found.push(["Cancel", decision("cancel", (each) => `Cancel ${each.id}?`,
      "The agent that works on it is ended. This cannot be undone; the work so far is kept.", "Cancel the task", "cancelled", true), "danger"]);
  }
  return found;
}

export function buttonsFor(task, only) {
  return actionsOf(task).filter(([label]) => !only || only.includes(label)).map(([label, work, kind]) =>
    h("button", { type: "button", class: kind, "data-action": label.toLowerCase(),
      onclick: () => work(store.tasks.get(task.id) || task).catch((error) => toast(error.message, "bad")) }, label));
}
