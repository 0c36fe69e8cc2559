// Costs by day, agent, model and task, and those that were higher than expected.

import { get } from "./api.js";
import { cut, failed, h, nothing, paced, put } from "./dom.js";
import { bars, ranking } from "./plot.js";
import { store } from "./store.js";
import { count, money, span, taskLink } from "./words.js";

const DAYS = 30;

export function costs(root, query, signal) {
  const parts = { tiles: h("div", { class: "tiles" }), anomalies: h("section", { "aria-label": "Anomalies" }), plots: h("div", { class: "plots" }) };
  put(root, h("div", { class: "page-head" }, h("h1", {}, "Costs")), parts.tiles, parts.anomalies, parts.plots);

  async function read() {
    const answers = await Promise.allSettled([get("/costs/history", { days: DAYS }, signal), get("/costs", { by: "agent" }, signal),
      get("/costs", { by: "model" }, signal), get("/costs", { by: "task" }, signal), get("/costs/anomalies", {}, signal)]);
    if (signal.aborted) return;
    const [days, byAgent, byModel, byTask, odd] = answers;
    paintTiles(parts.tiles, days.value, byAgent.value);
    paintAnomalies(parts.anomalies, odd);
    // An open table stays open.
    const opened = [...parts.plots.querySelectorAll("details")].map((each) => each.open);
    const spent = (byAgent.value && byAgent.value.rows.length) || (days.value && days.value.days.some((day) => day.usd > 0 || day.turns > 0));
    if (!spent && answers.slice(0, 4).every((each) => each.status === "fulfilled")) {
      put(parts.plots, nothing("Nothing spent yet", "What agents spend is here as soon as they have completed a turn."));
      return;
    }
    put(parts.plots, daily(days), ranked("By agent", byAgent, "Agent"), ranked("By model", byModel, "Model"), ranked("By task", byTask, "Task"));
    [...parts.plots.querySelectorAll("details")].forEach((each, place) => { each.open = opened[place] || false; });
  }

  const soon = paced(read, 4000);
  store.on("event", (entry) => { if (entry.kind === "turn_completed" || entry.kind === "task_closed") soon(); }, signal);
  store.on("again", soon, signal);
  read();
}

function paintTiles(node, days, total) {
  const list = (days && days.days) || [];
  const week = list.slice(-7).reduce((sum, day) => sum + day.usd, 0);
  const status = store.status || {};
  put(node, [["Today", money(status.usd_today ?? (list.length ? list[list.length - 1].usd : 0))], ["Seven days", money(week)],
    ["All in all", money(total ? total.usd : 0)], ["Tokens", count(total ? total.tokens : 0)]].map(([label, value]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, label))));
}

function paintAnomalies(node, answer) {
  if (answer.status === "rejected") {
    put(node, failed(answer.reason, "anomalies"));
    return;
  }
  const found = answer.value.anomalies || [];
  put(node, found.length > 0 && h("div", { class: "notice warn" }, h("b", {}, found.length === 1 ? "One cost more than was to be expected" : `${found.length} cost more than was to be expected`),
    h("ul", {}, found.slice(0, 8).map((each) => h("li", {}, each.task && h("a", { href: taskLink(each.task) }, cut(each.task, 60)), each.task && ": ",
      each.words || `${money(each.usd)}, where ${money(each.expected_usd)} is usual`)))));
}

function daily(answer) {
  if (answer.status === "rejected") return failed(answer.reason, "costs by day");
  const known = new Map((answer.value.days || []).map((day) => [day.day, day]));
  const names = [...known.keys()].sort();
  const end = new Date(`${names[names.length - 1] || new Date().toISOString().slice(0, 10)}T00:00:00Z`);
  const rows = [];
  for (let back = DAYS - 1; back >= 0; back -= 1) {
    const day = new Date(end - back * 86400000).toISOString().slice(0, 10);
    const is = known.get(day) || { usd: 0, tokens: 0, turns: 0 };
    rows.push({ key: day, label: day.slice(5), value: is.usd, more: [count(is.tokens), count(is.turns)] });
  }
  return h("div", { class: "wide" }, bars(`The last ${DAYS} days`, rows, money, ["Day", "Dollars", "Tokens", "Turns"]));
}

function ranked(title, answer, name) {
  if (answer.status === "rejected") return failed(answer.reason, `costs ${title.toLowerCase()}`);
  const rows = answer.value.rows.map((row) => ({ key: row.key, value: row.usd, more: [count(row.tokens), count(row.turns), span(row.seconds)] }));
  if (!rows.length) return h("figure", { class: "plot" }, h("figcaption", {}, title), h("p", { class: "faint" }, "Nothing yet."));
  return ranking(title, rows, money, [name, "Dollars", "Tokens", "Turns", "Time"]);
}
