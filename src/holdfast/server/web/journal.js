// The journal, newest first, and whether its chain is intact.

import { get } from "./api.js";
import { cut, debounce, failed, h, nothing, paced, put } from "./dom.js";
import { store } from "./store.js";
import { ago, at, clock, plural, span, taskLink } from "./words.js";

const PAGE = 60;
const AGAIN_MS = 2000;

export function journal(root, query, signal) {
  let next = "";
  let newest = "";
  const rows = h("ol", { class: "entries", "aria-label": "Entries, newest first" });
  const foot = h("div", {});
  const chain = h("p", { class: "chain", role: "status" });
  const fresh = h("button", { type: "button", class: "fresh", hidden: true, onclick: () => begin() }, "There is more: show it");
  const task = h("input", { type: "search", "aria-label": "Task", placeholder: "Task", list: "journal-tasks", value: query.get("task") || "", oninput: debounce(() => begin(), 250) });
  const kind = h("input", { type: "search", "aria-label": "Kind", placeholder: "Kind, as in turn_completed", list: "journal-kinds", value: query.get("kind") || "", oninput: debounce(() => begin(), 250) });
  const again = h("button", { type: "button", "data-action": "verify", onclick: verify }, "Verify the chain");
  const kinds = h("datalist", { id: "journal-kinds" });
  const seen = new Set();
  put(root, h("div", { class: "page-head" }, h("h1", {}, "Journal"), h("div", { class: "filters", role: "search" }, task, kind,
    h("datalist", { id: "journal-tasks" }, [...store.tasks.keys()].slice(0, 1000).map((id) => h("option", { value: id }))), kinds),
  again), chain, fresh, rows, foot);

  async function verify() {
    again.disabled = true;
    put(chain, h("span", { class: "badge wait" }, h("i", { "aria-hidden": "true" }, "◌"), "verifying…"), " every entry is read");
    try {
      const told = await verified();
      put(chain, h("span", { class: `badge ${told.ok ? "good" : "bad"}` }, h("i", { "aria-hidden": "true" }, told.ok ? "●" : "✕"), told.ok ? "the chain holds" : "the chain is broken"),
        ` ${plural(told.entries, "entry", "entries")} in ${plural(told.runs, "run")}, read in ${span(told.seconds)}, `, ago(Date.now() / 1000),
        told.torn ? `; ${told.torn} torn, never acknowledged` : "", told.problem ? `. ${told.problem}` : "");
    } catch (error) {
      if (error.name !== "AbortError") put(chain, failed(error, "whether the chain holds"));
    }
    again.disabled = false;
  }

  // One check at a time: while another one runs, the request is repeated.
  async function verified() {
    for (;;) {
      try {
        return await get("/journal/verify", {}, signal);
      } catch (error) {
        if (error.code !== "verifying" || signal.aborted) throw error;
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
    }
  }

  async function begin() {
    next = "";
    fresh.hidden = true;
    const values = [["task", task.value.trim()], ["kind", kind.value.trim()]].filter(([, value]) => value);
    history.replaceState(null, "", `#/journal${values.length ? `?${new URLSearchParams(values)}` : ""}`);
    await page(true);
  }

  let asked = 0;
  async function page(isFirst) {
    const mine = asked += 1;
    try {
      const found = await get("/journal", { newest: true, limit: PAGE, task: task.value.trim(), kind: kind.value.trim(), after: next }, signal);
      if (mine !== asked) return;
      if (isFirst) {
        put(rows);
        newest = found.entries.length ? `${found.entries[0].run}:${found.entries[0].seq}` : "";
      }
      rows.append(...found.entries.map(row));
      found.entries.forEach((entry) => seen.add(entry.decision_type));
      put(kinds, [...seen].sort().map((each) => h("option", { value: each })));
      next = found.next;
      put(foot, next ? h("button", { type: "button", class: "quiet show-more", onclick: () => page(false) }, "Older entries")
        : rows.children.length ? h("p", { class: "faint" }, "This is where it begins.")
          : nothing("No entry fits", newest || task.value || kind.value ? "Remove a filter." : "Every decision is written here before it is carried out."));
    } catch (error) {
      if (error.name !== "AbortError") put(foot, failed(error, "the journal"));
    }
  }

  const more = paced(() => { fresh.hidden = false; }, 300);
  store.on("event", (entry) => {
    if ((!task.value || entry.task === task.value.trim()) && (!kind.value || entry.kind === kind.value.trim()) && `${entry.run}:${entry.seq}` !== newest) more();
  }, signal);
  begin();
  verify();
}

function row(entry) {
  const inputs = entry.inputs || {};
  const body = h("div", { class: "entry-body" });
  const closing = /_(failed|abandoned|parked|orphaned|refused|cancelled)$/.exec(entry.decision_type);
  const about = inputs.reason || inputs.message || (inputs.turn !== undefined ? `turn ${inputs.turn}` : "");
  return h("li", {}, h("details", { class: entry.committed === false ? "intent" : "", ontoggle: (event) => {
    if (event.target.open && !body.children.length) put(body, whole(entry));
  } }, h("summary", {}, h("span", { class: "num seq" }, `${parseInt(entry.run, 10)}:${entry.seq}`),
    h("time", { class: "num", datetime: new Date(entry.timestamp * 1000).toISOString(), title: at(entry.timestamp) }, clock(entry.timestamp)),
    h("b", { class: closing ? "bad-text" : "" }, entry.decision_type), h("span", { class: "entry-task" }, cut(inputs.attempt || inputs.task || "", 48)),
    h("span", { class: "faint entry-about" }, cut(about, 90))), body));
}

function whole(entry) {
  const task = (entry.inputs || {}).task;
  return [task && h("p", {}, h("a", { href: taskLink(task) }, `To the task ${cut(task, 60)}`)),
    h("pre", { class: "json" }, cut(JSON.stringify(entry, null, 2), 40000))];
}
