// The state of the page: the tasks, the agents, the stream's cursor. Views listen; one worker keeps it up to date.

import { get, part } from "./api.js";
import { canShare, isBefore, placeOf, shared } from "./shared.js";
import { follow } from "./stream.js";

const PAGE = 1000;
// Above this number of changed tasks the list is cheaper than each of them.
const SINGLE_MAX = 12;
const REST_MS = 200;
const FULL_REST_MS = 1500;
// A stream of its own is one of six connections that all tabs have; the shared one is no hurry.
const HIDDEN_MS = canShare ? 60000 : 2000;
const AGAIN_MS = 3000;
const STATUS_MS = 2000;
// No event reports what a person does to the repository by hand.
const IDLE_STATUS_MS = 15000;

const EMPTY = { title: "", role: "", priority: 5, labels: [], agent: "", model: "", attempt: "", attempts: 0, turns: 0,
  usd: 0, tokens: 0, parked: "", progress: "", added_at: 0, changed_at: 0, parent: "", depends_on: [] };
// Entries that change no task.
const QUIET = new Set(["request_answered", "tasks_filed", "wal_replay_completed", "audit_noted", "run_started", "run_ended"]);

class Store extends EventTarget {
  tasks = new Map();
  status = null;
  me = { role: "operator" };
  connection = { state: "off", words: "not connected" };
  loaded = false;
  error = null;
  #dirty = new Set();
  #full = true;
  #busy = false;
  #stream = null;
  #shared = null;
  #place = [0, -1];
  #hidden = 0;
  #statusAt = 0;
  #statusTimer = 0;
  #paused = "";

  // The agent of each known attempt.
  #workers = new Map();

  get operates() { return this.me.role === "operator"; }

  // The agent of a task, now or last: the list has only those at work.
  agentOf(task) { return task.agent || this.#workers.get(task.attempt) || ""; }

  // A task's lost landing, if it is no longer on its branch.
  lostOf(id) { return ((this.status || {}).lost || []).find((each) => each.task === id); }

  on(kind, work, signal) { this.addEventListener(kind, (event) => work(event.detail), { signal }); }

  tell(kind, detail) { this.dispatchEvent(new CustomEvent(kind, { detail })); }

  async begin() {
    this.me = await get("/auth/me").catch((error) => {
      if (error.status === 401) throw error;
      return { role: "operator" };
    });
    // Tabs with the same rights share a stream. It is opened before the cursor is read, and the cursor is read before the
    // lists: events in between arrive, and are read again.
    if (canShare) this.#shared = shared(`holdfast-events-${this.me.role}-${this.me.task || ""}`, this.#told());
    await this.readStatus();
    const cursor = (this.status && this.status.cursor) || "";
    if (cursor) this.#place = placeOf(cursor);
    if (canShare || !document.hidden) this.#follow(cursor);
    else this.#pause(cursor);
    document.addEventListener("visibilitychange", () => this.#seen());
    this.#seen();
    setInterval(() => { if (!document.hidden && this.#stream) this.#statusSoon(); }, IDLE_STATUS_MS);
    addEventListener("online", () => this.#stream && this.#stream.nudge());
    this.#work();
  }

  async readStatus() {
    this.#statusAt = Date.now();
    try {
      this.status = await get("/status");
      this.tell("status", this.status);
    } catch (error) {
      if (error.status === 401) throw error;
    }
  }

  // Not more often than every two seconds, and always once more after the last change.
  #statusSoon() {
    if (this.#statusTimer) return;
    this.#statusTimer = setTimeout(() => {
      this.#statusTimer = 0;
      this.readStatus().catch(() => {});
    }, Math.max(0, STATUS_MS - (Date.now() - this.#statusAt)));
  }

  #follow(cursor) {
    this.#connection("waiting", "connecting");
    if (this.#shared) this.#shared.join(cursor);
    this.#stream = this.#shared || follow("/events", {}, this.#told(), cursor);
  }

  #told() {
    return {
      open: (again) => {
        this.#connection("live", "live");
        if (again) this.#again();
      },
      event: (event) => this.#heard(event),
      closed: (words, wait) => this.#connection("lost", `reconnecting${wait > 4000 ? `, next try in ${Math.round(wait / 1000)} s` : ""}`),
      refused: (error) => {
        // A cursor that the journal does not know any more: begin with now, and read all lists again.
        if (error.status === 422) this.#stream.restart("");
        if (error.status === 401) this.#connection("off", "signed out");
        return error.status !== 401;
      },
      stuck: () => { this.#place = [0, -1]; },
      gap: () => this.#again(),
    };
  }

  // Events may have been missed: everything is read again.
  async #again() {
    this.#full = true;
    this.tell("again");
    this.#work();
    await this.readStatus().catch(() => {});
    const cursor = this.status && this.status.cursor;
    // Another journal under the same address: its events would always seem old.
    if (cursor && isBefore(placeOf(cursor), [this.#place[0], 0])) {
      this.#place = placeOf(cursor);
      if (this.#stream) this.#stream.restart(cursor);
    }
  }

  #connection(state, words) {
    this.connection = { state, words };
    this.tell("connection", this.connection);
  }

  // The page is hidden: another tab may follow until it is visible again.
  #seen() {
    clearTimeout(this.#hidden);
    if (document.hidden) {
      this.#hidden = setTimeout(() => { if (this.#stream) this.#pause(this.#stream.cursor); }, HIDDEN_MS);
    } else if (!this.#stream && this.loaded) {
      this.#full = true;
      this.#follow(this.#paused);
      this.#work();
    }
  }

  #pause(cursor) {
    this.#paused = cursor;
    if (this.#stream) this.#stream.close();
    this.#stream = null;
    this.#connection("off", "paused while hidden");
  }

  #heard(event) {
    if (!event.id) return undefined;
    const place = placeOf(event.id);
    if (!isBefore(this.#place, place)) return undefined;
    this.#place = place;
    const entry = JSON.parse(event.data);
    if (entry.kind === "task_claimed") this.#workers.set(entry.attempt, (entry.data || {}).agent || "");
    if (entry.task && !QUIET.has(entry.kind)) this.#dirty.add(entry.task);
    this.tell("event", entry);
    document.dispatchEvent(new CustomEvent("holdfast:event", { detail: { id: event.id, kind: entry.kind, task: entry.task || "" } }));
    this.#work();
    return undefined;
  }

  refresh(id) {
    if (id) this.#dirty.add(id);
    else this.#full = true;
    this.#work();
  }

  // The only writer of `tasks`, one step at a time: an older answer never replaces a newer one.
  async #work() {
    if (this.#busy) return;
    this.#busy = true;
    while (this.#full || this.#dirty.size) {
      const full = this.#full || this.#dirty.size > SINGLE_MAX;
      try {
        await (full ? this.#readAll() : this.#readSome());
        this.error = null;
      } catch (error) {
        this.error = error;
        this.tell("tasks");
        this.#busy = false;
        if (error.status !== 401) setTimeout(() => this.refresh(), AGAIN_MS);
        return;
      }
      this.tell("tasks");
      this.#statusSoon();
      await new Promise((done) => setTimeout(done, full ? FULL_REST_MS : REST_MS));
    }
    this.#busy = false;
  }

  async #readAll() {
    this.#full = false;
    this.#dirty.clear();
    const found = new Map();
    let after = "";
    do {
      const page = await get("/tasks", { limit: PAGE, after });
      for (const row of page.tasks) found.set(row.id, { ...EMPTY, ...row });
      after = page.next;
    } while (after);
    this.tasks = found;
    this.loaded = true;
    await this.#readWorkers();
  }

  async #readWorkers() {
    // A board without them is still a board.
    const { sessions } = await get("/sessions", { limit: PAGE }).catch(() => ({ sessions: [] }));
    for (const each of sessions) this.#workers.set(each.attempt, each.agent);
  }

  async #readSome() {
    const names = [...this.#dirty];
    this.#dirty.clear();
    const read = await Promise.all(names.map((name) => get(`/tasks/${part(name)}`).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    })));
    for (const view of read) if (view) this.tasks.set(view.task.id, { ...EMPTY, ...view.task });
  }
}

export const store = new Store();
