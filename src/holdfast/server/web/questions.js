// What agents ask a person: a panel at the top of the board and of the task's page, with the answers as buttons.

import { get, part, post } from "./api.js";
import { openDialog } from "./dialog.js";
import { announce, cut, h, put, toast } from "./dom.js";
import { store } from "./store.js";
import { ago, sentence, taskLink } from "./words.js";

// Looks again whenever the status is read anew, which follows each event. With a task, only what its agent asks.
export function questionPanel(signal, task = "") {
  const node = h("section", { class: "questions", "aria-label": "Open questions", hidden: true });
  let shown = "[]";
  let known = 0;
  async function look() {
    if (!store.operates) return;
    const all = (store.status || {}).asking ? await get("/questions").catch(() => null) : [];
    const rows = all && all.filter((row) => !task || row.task === task);
    if (!rows || signal.aborted || JSON.stringify(rows) === shown) return;
    shown = JSON.stringify(rows);
    node.hidden = !rows.length;
    if (rows.length > known) announce(`${rows[rows.length - 1].task} asks you something`);
    known = rows.length;
    put(node, h("h2", {}, rows.length === 1 ? "An agent asks you" : `Agents ask you ${rows.length} questions`), rows.slice(0, 20).map(question));
  }
  store.on("status", look, signal);
  look();
  return node;
}

function question(row) {
  const isWords = row.kind === "words";
  const send = (values, said) => async (event) => {
    event.target.disabled = true;
    await answer(row, values, said).catch((error) => toast(error.message, "bad"));
    event.target.disabled = false;
  };
  return h("article", { class: "question", "data-question": row.id },
    h("p", {}, h("a", { href: taskLink(row.task) }, h("bdi", {}, row.task)), ` ${isWords ? "asks" : `wants to call ${cut(row.tool, 60)}`} `,
      h("span", { class: "faint" }, `${row.agent}, `, ago(row.asked_at))),
    h("pre", { class: "preview" }, row.preview),
    h("div", { class: "card-buttons" },
      !isWords && h("button", { type: "button", class: "primary", "data-action": "allow", onclick: send({ answer: "allow" }, "allowed") }, "Allow"),
      !isWords && h("button", { type: "button", "data-action": "always", title: "Writes a rule into the settings",
        onclick: send({ answer: "allow", always: true }, "allowed from now on") }, "Always"),
      isWords && h("button", { type: "button", class: "primary", "data-action": "say", onclick: () => inWords(row, "say", "Answer") }, "Answer"),
      h("button", { type: "button", "data-action": "deny", onclick: () => inWords(row, "deny", "Deny") }, "Deny")));
}

async function answer(row, values, said) {
  const answered = await post(`/tasks/${part(row.task)}/answer`, { question: row.id, ...values });
  toast(`${row.task}: ${said}. ${sentence(answered.note)}`);
  store.refresh(row.task);
  await store.readStatus();
  return answered;
}

const inWords = (row, kind, verb) => openDialog({
  title: `${verb}: ${row.task}`,
  words: cut(row.preview, 400),
  yes: verb, danger: kind === "deny",
  fields: [{ name: "words", label: kind === "deny" ? "Reason, for the agent" : "Your answer", kind: "area", required: kind === "say" }],
  act: (values) => answer(row, { answer: kind, words: values.words || "" }, kind === "deny" ? "denied" : "answered"),
});
