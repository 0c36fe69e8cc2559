// One stream of events for all tabs of a browser, which has only six connections to a server.
//
// The tab that holds the lock follows the server, and forwards events to the others. Each tab knows its own cursor, so the
// next holder continues exactly there; `store` skips events that come twice.

import { follow } from "./stream.js";

const ALIVE_MS = 5000;
// A holder that is silent for this long is asleep, as tabs on a phone may be: the lock is taken from it.
const SILENT_MS_MAX = 20000;

// Over plain HTTP from another machine there are no locks: each tab follows for itself, and only while it is visible.
export const canShare = Boolean(navigator.locks);

export function placeOf(id) {
  const colon = id.lastIndexOf(":");
  return [parseInt(id, 10) || 0, Number(id.slice(colon + 1))];
}

export function isBefore([run, seq], [otherRun, otherSeq]) {
  return run < otherRun || (run === otherRun && seq < otherSeq);
}

// Receives events from here on; `join` begins to take part. `told` is that of `follow`, and gap().
export function shared(name, told) {
  const channel = new BroadcastChannel(name);
  let cursor = "";
  let stream = null;
  let leave = null;
  let state = null;
  let heard = 0;
  let timer = 0;
  // Events that arrive before this tab knows its cursor.
  let early = [];

  const say = (kind, ...given) => channel.postMessage({ kind, given });
  const both = (kind) => (...given) => {
    state = [kind, given];
    say(kind, ...given);
    return told[kind](...given);
  };
  const own = {
    open: both("open"),
    closed: both("closed"),
    stuck: () => {
      cursor = "";
      say("stuck");
      told.stuck();
    },
    event: (event) => {
      say("event", event, cursor);
      if (event.id) cursor = event.id;
      return told.event(event);
    },
  };

  function take({ kind, given }) {
    heard = Date.now();
    if (kind === "hello") {
      if (stream && state) say(state[0], ...(state[0] === "open" ? [false] : state[1]));
      return;
    }
    if (stream || !(kind in told)) return;
    if (kind === "event") {
      const [event, before] = given;
      const isBehind = (id) => Boolean(id) && isBefore(placeOf(cursor), placeOf(id));
      if (cursor && isBehind(before)) told.gap();
      if (!cursor || isBehind(event.id)) cursor = event.id;
    }
    if (kind === "stuck") cursor = "";
    told[kind](...given);
  }

  channel.addEventListener("message", ({ data }) => {
    if (leave) take(data);
    else if (early) early.push(data);
  });

  // Until it is refused, has to leave, or another tab has taken the lock.
  function lead(signal) {
    return new Promise((done) => {
      const end = () => {
        if (stream) stream.close();
        stream = null;
        done();
      };
      stream = follow("/events", {}, { ...own, refused: (error) => {
        const goesOn = told.refused(error);
        if (!goesOn) end();
        return goesOn;
      } }, cursor);
      signal.addEventListener("abort", end);
    });
  }

  async function queue(signal, steal) {
    const options = steal ? { steal } : { signal };
    try {
      await navigator.locks.request(name, options, () => (signal.aborted ? undefined : lead(signal)));
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      if (signal.aborted) return;
      // Another tab took the lock: this one has slept, and waits for its turn like the others.
      if (stream) stream.close();
      stream = null;
      queue(signal, false);
    }
  }

  return {
    join(at) {
      cursor = at || cursor;
      leave = new AbortController();
      heard = Date.now();
      (early || []).forEach(take);
      early = null;
      queue(leave.signal, false);
      say("hello");
      timer = setInterval(() => {
        if (stream) say("alive");
        else if (Date.now() - heard > SILENT_MS_MAX && !document.hidden) {
          leave.abort();
          leave = new AbortController();
          heard = Date.now();
          queue(leave.signal, true);
        }
      }, ALIVE_MS);
    },
    close() {
      clearInterval(timer);
      if (leave) leave.abort();
      leave = null;
    },
    nudge() { if (stream) stream.nudge(); },
    restart(at) {
      cursor = at;
      if (stream) stream.restart(at);
    },
    get cursor() { return cursor; },
  };
}
