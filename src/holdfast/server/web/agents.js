// The agents at work: their tasks and progress.

import { stopAgent } from "./actions.js";
import { get } from "./api.js";
import { cut, failed, h, nothing, paced, put, toast } from "./dom.js";
import { store } from "./store.js";
import { ago, count, money, outageNotices, span, taskLink } from "./words.js";

const EVERY_MS = 3000;

export function agents(root, query, signal) {
  const list = h("div", { class: "agents" });
  const nodes = new Map();
  const notices = h("div", {});
  put(root, h("div", { class: "page-head" }, h("h1", {}, "Agents")), notices, list);
  const tellOutages = () => put(notices, outageNotices(store.status));
  store.on("status", tellOutages, signal);
  tellOutages();

  async function read() {
    try {
      const { agents: found } = await get("/agents", {}, signal);
      paint(found);
    } catch (error) {
      if (error.name !== "AbortError") {
        nodes.clear();
        put(list, failed(error, "the agents at work"));
      }
    }
  }

  // A card is replaced only when its content changes, so that its button keeps the focus.
  function paint(found) {
    if (!found.length) {
      nodes.clear();
      put(list, nothing("Nobody works now", store.status && store.status.works === false
        ? "This server only serves; `holdfast run --stay` starts agents." : "As soon as a task is ready, its agent is here: its tool, its turn, what it spends."));
      return;
    }
    if (!nodes.size) put(list);
    const now = new Set(found.map((each) => each.attempt));
    for (const [attempt, kept] of nodes) {
      if (!now.has(attempt)) {
        kept.node.remove();
        nodes.delete(attempt);
      }
    }
    for (const each of found) {
      const words = JSON.stringify(each);
      const kept = nodes.get(each.attempt);
      if (kept && kept.words === words) continue;
      if (kept) {
        update(kept.parts, each);
        kept.words = words;
      } else {
        const made = card(each);
        nodes.set(each.attempt, { ...made, words });
        list.append(made.node);
      }
    }
  }

  const soon = paced(read, 500);
  store.on("event", (entry) => { if (/turn_|claimed|started|spawn|done|failed|closed|orphaned|cancelled/.test(entry.kind)) soon(); }, signal);
  const timer = setInterval(() => { if (!document.hidden) read(); }, EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  read();
}

function card(agent) {
  const parts = { head: h("div", { class: "agent-head" }), facts: h("dl", { class: "facts" }) };
  const node = h("article", { class: "agent", "aria-label": `${agent.agent || agent.worker || "agent"} on ${agent.task}` },
    parts.head,
    h("a", { class: "card-title", href: taskLink(agent.task) }, h("bdi", {}, cut(agent.title || agent.task, 140))),
    parts.facts,
    h("div", { class: "card-buttons" }, h("a", { class: "button", href: `${taskLink(agent.task)}?part=output` }, "Output"),
      store.operates && !agent.remote && h("button", { type: "button", class: "danger", "data-action": "stop",
        onclick: () => stopAgent(agent).catch((error) => toast(error.message, "bad")) }, "Stop")));
  update(parts, agent);
  return { node, parts };
}

function update(parts, agent) {
  const quiet = agent.silent_s > 60;
  const [tone, sign] = { working: ["work", "◑"], asking: ["ask", "?"] }[agent.state] || ["wait", "○"];
  put(parts.head, h("span", { class: `badge ${tone}` }, h("i", { "aria-hidden": "true" }, sign), agent.state === "asking" ? "asks you" : agent.state || "working"),
  h("b", {}, cut(agent.agent || agent.worker || "", 40)), agent.model && h("span", { class: "faint" }, cut(agent.model, 40)),
  agent.remote && h("span", { class: "label" }, "remote"));
  const facts = [
    toolOf(agent),
    ["Turn", count(agent.turn)],
    ["Spent", money(agent.usd)],
    ["Tokens", count(agent.tokens)],
    ["Context", agent.context_tokens ? count(agent.context_tokens) : "–"],
    ["Since", ago(agent.since)],
    ["Heartbeat", agent.heartbeat_age_s === undefined || agent.heartbeat_age_s === null ? "–" : `${span(agent.heartbeat_age_s)} ago`],
    ["Last word", agent.silent_s === undefined || agent.silent_s === null ? "–" : h("span", { class: quiet ? "warn-text" : "" }, `${span(agent.silent_s)} ago`)],
    agent.until ? ["Lease", at(agent.until)] : null,
    agent.pid ? ["Process", String(agent.pid)] : null,
  ].filter(Boolean);
  put(parts.facts, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// A remote worker shows only what it reports. A tool of our agents is shown as running only while it runs.
function toolOf(agent) {
  if (agent.retrying) return ["Does not reach its model, and tries again", h("span", { class: "warn-text" }, cut(agent.retrying, 120))];
  if (agent.asks) return ["Waits for your answer to", h("code", {}, cut(agent.asks, 60))];
  if (agent.remote) return ["Says", cut(agent.tool, 60) || "–"];
  if (agent.tool) return ["Tool", h("code", {}, cut(agent.tool, 60))];
  return agent.last_tool ? ["No tool runs; the last was", h("code", { class: "faint" }, cut(agent.last_tool, 60))] : ["Tool", "none so far"];
}

const at = (seconds) => `for ${span(seconds - Date.now() / 1000)}`;
