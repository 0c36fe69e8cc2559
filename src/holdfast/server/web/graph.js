// The graph of dependencies and subtasks.

import { get } from "./api.js";
import { cut, debounce, failed, h, nothing, paced, put, s } from "./dom.js";
import { layered, NODE } from "./layout.js";
import { store } from "./store.js";
import { plural, STATES, taskLink, toneOf } from "./words.js";

const NODES_MAX = 300;
// Units of the drawing for each pixel: beyond it the boxes are not readable.
const READABLE = 1.5;
const WORKING = ["CLAIMED", "IN_PROGRESS", "DONE"];
const PLAIN = ["CLOSED", "CANCELLED", "OPEN"];
const SHAPES = { wait: 22, work: 6, judge: 6, ask: 6, warn: 6, bad: 0, good: 14, off: 14 };

export function graph(root, query, signal) {
  const stage = h("div", { class: "graph-stage" });
  const said = h("p", { class: "faint", role: "status" });
  const search = h("input", { type: "search", "aria-label": "Show the neighbourhood of a task", placeholder: "Neighbourhood of…  /",
    list: "graph-names", value: query.get("of") || "", oninput: debounce(() => draw(), 150) });
  const names = h("datalist", { id: "graph-names" });
  const closed = h("input", { type: "checkbox", id: "graph-closed", checked: true, onchange: () => draw() });
  let data = null;
  let camera = null;
  put(root, h("div", { class: "page-head" }, h("h1", {}, "Graph"),
    h("div", { class: "filters", role: "search" }, search, names, h("label", { class: "inline", for: "graph-closed" }, closed, "closed ones, too")),
    h("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
      h("button", { type: "button", "aria-label": "Zoom out", onclick: () => camera && camera.zoom(1 / 1.25) }, "−"),
      h("button", { type: "button", "aria-label": "Zoom in", onclick: () => camera && camera.zoom(1.25) }, "+"),
      h("button", { type: "button", onclick: () => camera && camera.fit() }, "Fit"))),
  said, stage);

  async function read() {
    try {
      data = await get("/tasks/graph", { limit: 2000 }, signal).catch((error) => {
        if (error.status === 404 || error.status === 422) return fromTasks();
        throw error;
      });
      put(names, data.nodes.slice(0, 1000).map((node) => h("option", { value: node.id })));
      draw();
    } catch (error) {
      if (error.name !== "AbortError") put(stage, failed(error, "the graph"));
    }
  }

  function draw() {
    if (!data) return;
    if (!data.nodes.length) {
      camera = null;
      put(stage, nothing("No tasks, no graph", "Tasks that depend on one another, or are part of one, are drawn here."));
      return;
    }
    const part = choose(data, search.value.trim(), closed.checked);
    said.textContent = part.words;
    const kept = camera && camera.view;
    camera = paint(stage, part, signal);
    if (kept && camera && kept.key === part.key) camera.restore(kept);
    else if (camera) camera.fit(READABLE);
    if (camera) camera.key(part.key);
  }

  // The shape of the graph changes seldom: mostly only states do.
  const states = paced(() => {
    if (!data) return;
    for (const node of data.nodes) node.state = (store.tasks.get(node.id) || node).state;
    if (store.tasks.size > data.nodes.length && data.nodes.length === (data.total || data.nodes.length)) read();
    else draw();
  }, 1000);
  store.on("tasks", states, signal);
  read();
}

function fromTasks() {
  const nodes = [...store.tasks.values()].map(({ id, state, title, priority, parent }) => ({ id, state, title, priority, parent }));
  const edges = [...store.tasks.values()].flatMap((task) => [...task.depends_on.map((to) => ({ from: task.id, to, kind: "depends_on" })),
    ...(task.parent ? [{ from: task.id, to: task.parent, kind: "parent" }] : [])]);
  return { nodes, edges, total: nodes.length };
}

// An edge leads from a task to its dependency, and from a subtask to its parent: its target is on the left.
function choose(data, wanted, withClosed) {
  const all = new Map(data.nodes.map((node) => [node.id, node]));
  const edges = data.edges.filter((edge) => all.has(edge.from) && all.has(edge.to)).map((edge) => ({ kind: edge.kind, ends: [edge.to, edge.from] }));
  const total = data.total || all.size;
  let ids = [...all.keys()];
  let words = `${plural(ids.length, "task")}, ${plural(edges.length, "link")}`;
  const start = wanted && (all.has(wanted) ? [wanted] : ids.filter((id) => `${id} ${all.get(id).title || ""}`.toLowerCase().includes(wanted.toLowerCase())).slice(0, 20));
  if (start && start.length) {
    ids = around(start, edges, 120);
    words = `${ids.length} of ${plural(total, "task")}: the neighbourhood of ${start.length === 1 ? cut(start[0], 60) : `${start.length} that fit`}`;
  } else {
    if (!withClosed) ids = ids.filter((id) => !["CLOSED", "CANCELLED"].includes(all.get(id).state));
    if (ids.length > NODES_MAX) {
      const fit = new Set(ids);
      const [first, rest] = [new Set(ids.filter((id) => WORKING.includes(all.get(id).state))), ids.filter((id) => !PLAIN.includes(all.get(id).state))];
      const linked = edges.flatMap((edge) => edge.ends);
      const begin = [...new Set([...first, ...rest, ...linked, ...ids])].filter((id) => fit.has(id)).slice(0, 40);
      ids = around(begin, edges, NODES_MAX / 2);
      const what = first.size ? "what is at work, and what is around it"
        : rest.length ? "nothing is at work; these have begun, failed, or wait, with what is around them"
          : linked.length ? "nothing is at work; these are some that are linked" : "nothing is at work, and nothing is linked; these are the first";
      words = `${ids.length} of ${plural(total, "task")}: ${what}. Name a task to see its neighbourhood.`;
    }
  }
  const chosen = new Set(ids);
  const kept = edges.filter((edge) => chosen.has(edge.ends[0]) && chosen.has(edge.ends[1]));
  return { nodes: ids.map((id) => all.get(id)), edges: kept, words, key: ids.join("\n") };
}

function around(start, edges, most) {
  const beside = new Map();
  for (const { ends: [a, b] } of edges) {
    (beside.get(a) || beside.set(a, []).get(a)).push(b);
    (beside.get(b) || beside.set(b, []).get(b)).push(a);
  }
  const found = new Set(start);
  for (const id of found) {
    for (const each of beside.get(id) || []) {
      if (found.size >= most) return [...found];
      found.add(each);
    }
  }
  return [...found];
}

function paint(stage, part, signal) {
  const { places, routes, width, height } = layered(part.nodes.map((node) => node.id), part.edges.map((edge) => edge.ends));
  const lines = part.edges.map(({ kind, ends }, place) => line(routes[place], kind, ends));
  const boxes = part.nodes.map((node) => box(node, places.get(node.id)));
  const svg = s("svg", { class: "graph", role: "group", tabindex: "0",
    "aria-label": `${part.words}. Arrow keys move, plus and minus zoom, 0 fits.` },
  s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto" },
    s("path", { d: "M0 0 8 4 0 8z", class: "tip" }))), lines, boxes);
  const focused = document.activeElement && stage.contains(document.activeElement) && document.activeElement.getAttribute("data-id");
  const had = document.activeElement && stage.contains(document.activeElement);
  put(stage, svg);
  if (had) ([...svg.querySelectorAll("a")].find((each) => each.getAttribute("data-id") === focused) || svg).focus({ preventScroll: true });
  return cameraOf(svg, width, height, signal);
}

// Curves lie in the gaps between the layers; along a layer an edge is straight.
function line(points, kind, ends) {
  if (!points.length) return null;
  // Room for the tip.
  const [[x1, y1], ...rest] = points;
  const last = rest.pop();
  const isBack = last[0] <= x1;
  rest.push([last[0] + (isBack ? 2 : -2), last[1]]);
  let [x, y] = [x1, y1];
  const parts = rest.map(([toX, toY]) => {
    const bend = Math.abs(toX - x) < 3 ? NODE.gapX / 2 : (toX - x) / 2;
    const part = y === toY ? `L${toX} ${toY}` : Math.abs(toX - x) < 3 ? `C${x + bend} ${y} ${toX + bend} ${toY} ${toX} ${toY}` : `C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}`;
    [x, y] = [toX, toY];
    return part;
  });
  return s("path", { class: `edge ${kind}`, "data-from": ends[0], "data-to": ends[1], d: `M${x1} ${y1}${parts.join("")}`, "marker-end": "url(#tip)" });
}

function box(node, place) {
  const task = { ...node, parked: (store.tasks.get(node.id) || {}).parked || "" };
  const tone = toneOf(task);
  const [, sign, word] = STATES[node.state] || ["", "○", node.state];
  const title = node.title || node.id;
  return s("a", { href: taskLink(node.id), class: `node ${tone}`, transform: `translate(${place.x} ${place.y})`, "data-id": node.id,
    "aria-label": `${cut(title, 100)}: ${word}` },
  s("title", {}, `${cut(title, 200)}\n${node.id} · ${word}`),
  s("rect", { width: String(NODE.width), height: String(NODE.height), rx: String(SHAPES[tone] ?? 6) }),
  // An inner svg cuts off what is too long for the box.
  s("svg", { x: "14", width: String(NODE.width - 26), height: String(NODE.height) },
    s("text", { x: "0", y: "18", class: "node-title" }, cut(title, 28)),
    s("text", { x: "0", y: "34", class: "node-state" }, `${sign} ${word} · ${cut(node.id, 24)}`)));
}

function cameraOf(svg, width, height, signal) {
  let view = { x: 0, y: 0, w: width, h: height };
  let held = null;
  const apply = () => svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
  const fit = (most = Infinity) => {
    const box = svg.getBoundingClientRect();
    let scale = Math.max((width + 40) / Math.max(box.width, 1), (height + 40) / Math.max(box.height, 1), 0.8);
    scale = Math.min(scale, most);
    const place = (has, shown) => (has + 40 > shown ? -20 : (has - shown) / 2);
    view = { x: place(width, box.width * scale), y: place(height, box.height * scale), w: box.width * scale, h: box.height * scale, key: view.key };
    apply();
  };
  const zoom = (factor, at = [0.5, 0.5]) => {
    const w = Math.min(Math.max(view.w / factor, 200), 40000);
    const ratio = w / view.w;
    view = { ...view, x: view.x + view.w * at[0] * (1 - ratio), y: view.y + view.h * at[1] * (1 - ratio), w, h: view.h * ratio };
    apply();
  };
  const move = (dx, dy) => {
    view = { ...view, x: view.x + dx, y: view.y + dy };
    apply();
  };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.12 : 1 / 1.12, [(event.clientX - box.x) / box.width, (event.clientY - box.y) / box.height]);
  }, { passive: false, signal });
  svg.addEventListener("pointerdown", (event) => { held = { x: event.clientX, y: event.clientY, moved: false }; });
  addEventListener("pointermove", (event) => {
    if (!held || !svg.isConnected) return;
    const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
    if (!held.moved && Math.hypot(dx, dy) < 4) return;
    const scale = view.w / svg.getBoundingClientRect().width;
    held = { x: event.clientX, y: event.clientY, moved: true };
    move(-dx * scale, -dy * scale);
  }, { signal });
  const drop = (event) => {
    if (held && held.moved && event.target instanceof Node && svg.contains(event.target)) {
      svg.addEventListener("click", (click) => click.preventDefault(), { once: true, capture: true });
    }
    held = null;
  };
  addEventListener("pointerup", drop, { signal });
  addEventListener("pointercancel", () => { held = null; }, { signal });
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("keydown", (event) => {
    const step = view.w / 12;
    const act = { ArrowLeft: () => move(-step, 0), ArrowRight: () => move(step, 0), ArrowUp: () => move(0, -step), ArrowDown: () => move(0, step),
      "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit() }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  }, { signal });
  return { fit, zoom, get view() { return view; }, restore(kept) { view = kept; apply(); }, key(text) { view.key = text; } };
}
