// What the page knows: the tasks, who works, where the stream is. Views listen; one worker keeps it up to date.

import { get, part } from "./api.js";
import { follow } from "./stream.js";

const PAGE = 1000;
// Above so many changed tasks the list is cheaper than each of them.
const SINGLE_MAX = 12;
const REST_MS = 200;
const FULL_REST_MS = 1500;
const HIDDEN_MS = 60000;
const AGAIN_MS = 3000;

const EMPTY = { title: "", role: "", priority: 5, labels: [], agent: "", model: "", attempt: "", attempts: 0, turns: 0,
  usd: 0, tokens: 0, parked: "", progress: "", added_at: 0, changed_at: 0, parent: "", depends_on: [] };
// Entries that change no task.
const QUIET = new Set(["request_answered", "tasks_filed", "wal_replay_completed", "run_started"]);

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
  #place = [0, -1];
  #hidden = 0;
  #statusAt = 0;
  #paused = "";

  get operates() { return this.me.role === "operator"; }

  on(kind, work, signal) { this.addEventListener(kind, (event) => work(event.detail), { signal }); }

  tell(kind, detail) { this.dispatchEvent(new CustomEvent(kind, { detail })); }

  async begin() {
    const me = get("/auth/me").catch((error) => {
      if (error.status === 401) throw error;
      return { role: "operator" };
    });
    [this.me] = await Promise.all([me, this.readStatus()]);
    // The place is read before the lists: what happens in between is told by the stream, and read again.
    this.#follow((this.status && this.status.cursor) || "");
    document.addEventListener("visibilitychange", () => this.#seen());
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

  #follow(cursor) {
    this.#connection("waiting", "connecting");
    this.#stream = follow("/events", {}, {
      open: (again) => {
        this.#connection("live", "live");
        if (again) {
          this.#full = true;
          this.readStatus().catch(() => {});
          this.tell("again");
          this.#work();
        }
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
    }, cursor);
  }

  #connection(state, words) {
    this.connection = { state, words };
    this.tell("connection", this.connection);
  }

  // Nobody looks: the follower's place is given to somebody else until they do.
  #seen() {
    clearTimeout(this.#hidden);
    if (document.hidden) {
      this.#hidden = setTimeout(() => {
        if (this.#stream) this.#paused = this.#stream.cursor;
        if (this.#stream) this.#stream.close();
        this.#stream = null;
        this.#connection("off", "paused while hidden");
      }, HIDDEN_MS);
    } else if (!this.#stream && this.loaded) {
      this.#full = true;
      this.#follow(this.#paused);
      this.#work();
    }
  }

  #heard(event) {
    if (!event.id) return undefined;
    const [run, seq] = [event.id.slice(0, event.id.lastIndexOf(":")), Number(event.id.slice(event.id.lastIndexOf(":") + 1))];
    const place = [parseInt(run, 10), seq];
    if (place[0] < this.#place[0] || (place[0] === this.#place[0] && place[1] <= this.#place[1])) return undefined;
    this.#place = place;
    const entry = JSON.parse(event.data);
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

  // The only one who writes to `tasks`, and one step at a time: an older answer never covers a newer one.
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
      if (Date.now() - this.#statusAt > 2000) this.readStatus().catch(() => {});
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
