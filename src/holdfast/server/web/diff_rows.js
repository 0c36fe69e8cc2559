// A diff of one file as rows, unified or side by side. Every line that can be commented on has its number as a button.

import { add, cut, h } from "./dom.js";
import { differing, family, marked, pieces } from "./highlight.js";
import { plural } from "./words.js";

const LINES = 600;
const LINE_MAX = 2000;
const HEADER = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)/;

// Rows of a patch: { hunk } or { old, new }, each side a line { number, text, kind, other } or null.
export function rowsOf(patch) {
  const rows = [];
  let removed = [];
  let added = [];
  let oldLine = 0;
  let newLine = 0;
  const settle = () => {
    for (let place = 0; place < Math.max(removed.length, added.length); place += 1) {
      const [one, two] = [removed[place] || null, added[place] || null];
      if (one && two) [one.other, two.other] = [two.text, one.text];
      rows.push({ old: one, new: two });
    }
    [removed, added] = [[], []];
  };
  for (const line of patch.replace(/\n$/, "").split("\n")) {
    const head = HEADER.exec(line);
    if (head) {
      settle();
      [oldLine, newLine] = [Number(head[1]), Number(head[2])];
      rows.push({ hunk: cut(line, 200) });
    } else if (line[0] === "-") {
      if (added.length) settle();
      removed.push({ number: oldLine++, text: line.slice(1), kind: "cut" });
    } else if (line[0] === "+") added.push({ number: newLine++, text: line.slice(1), kind: "add" });
    else if (line[0] === "\\") {
      settle();
      rows.push({ note: line.slice(2) });
    } else if (patch) {
      settle();
      rows.push({ old: { number: oldLine++, text: line.slice(1), kind: "" }, new: { number: newLine++, text: line.slice(1), kind: "" } });
    }
  }
  settle();
  return rows;
}

function code(line, kind) {
  const text = cut(line.text.replace(/\r$/, "␍"), LINE_MAX);
  const range = line.other === undefined ? null : differing(text, line.other);
  return add(h("td", { class: `code ${line.kind}` }), marked(pieces(text, kind), range).map(([name, words, isMarked]) =>
    name || isMarked ? h("span", { class: [name, isMarked && "changed"].filter(Boolean).join(" ") }, words) : words));
}

function number(line, side, allowed) {
  if (!line) return h("td", { class: "ln" });
  const words = `${side === "old" ? "Old line" : "Line"} ${line.number}`;
  const told = { class: `ln ${line.kind}` };
  if (!allowed[side]) return h("td", told, String(line.number));
  return h("td", told, h("button", { type: "button", "data-side": side, "data-line": line.number, "aria-label": `Comment on ${words.toLowerCase()}`, tabindex: "-1" }, String(line.number)));
}

// One table row, or two where a unified view shows a removed line above an added one.
function cells(row, isSplit, kind, allowed) {
  if (row.hunk) return [h("tr", { class: "hunk" }, h("td", { colspan: "4" }, row.hunk))];
  if (row.note) return [h("tr", { class: "note" }, h("td", { colspan: "4" }, row.note))];
  const blank = () => h("td", { class: "code none" });
  if (isSplit) {
    return [h("tr", {}, number(row.old, "old", allowed), row.old ? code(row.old, kind) : blank(),
      number(row.new, "new", allowed), row.new ? code(row.new, kind) : blank())];
  }
  const wide = (line) => {
    const cell = code(line, kind);
    cell.setAttribute("colspan", "2");
    return cell;
  };
  if (row.old && row.new && !row.old.kind) return [h("tr", {}, number(row.old, "old", {}), number(row.new, "new", allowed), wide(row.new))];
  return [row.old && h("tr", {}, number(row.old, "old", allowed), number(null, "new", allowed), wide(row.old)),
    row.new && h("tr", {}, number(null, "old", allowed), number(row.new, "new", allowed), wide(row.new))].filter(Boolean);
}

// Removed lines of a block above the added ones, as people read a unified diff.
function inOrder(rows) {
  const found = [];
  for (let at = 0; at < rows.length;) {
    let end = at;
    const isPair = (row) => !row.hunk && !row.note && (!row.old || !row.new || row.old.kind);
    while (end < rows.length && isPair(rows[end])) end += 1;
    if (end === at) {
      found.push(rows[at]);
      at += 1;
      continue;
    }
    const block = rows.slice(at, end);
    found.push(...block.filter((row) => row.old).map((row) => ({ old: row.old, new: null })), ...block.filter((row) => row.new).map((row) => ({ old: null, new: row.new })));
    at = end;
  }
  return found;
}

// `allowed`: the sides whose lines can be commented on.
export function table(patch, path, isSplit, allowed) {
  const body = h("tbody", {});
  const kind = family(path);
  const rows = isSplit ? rowsOf(patch) : inOrder(rowsOf(patch));
  const fill = (from) => {
    for (const row of rows.slice(from, from + LINES)) body.append(...cells(row, isSplit, kind, allowed));
    if (from + LINES >= rows.length) return;
    const more = h("tr", { class: "note" }, h("td", { colspan: "4" }, h("button", { type: "button", class: "quiet", onclick: () => {
      more.remove();
      fill(from + LINES);
      body.dispatchEvent(new CustomEvent("filled", { bubbles: true }));
    } }, `Show ${plural(rows.length - from - LINES, "more line")}`)));
    body.append(more);
  };
  fill(0);
  const first = body.querySelector("button[data-line]");
  if (first) first.tabIndex = 0;
  return h("table", { class: `diff-table ${isSplit ? "split" : "unified"}`, "aria-label": `Diff of ${cut(path, 100)}` },
    h("colgroup", {}, (isSplit ? ["of-ln", "", "of-ln", ""] : ["of-ln", "of-ln", "", ""]).map((name) => h("col", { class: name }))), body);
}

// Picks a line or a range: by a click, with Shift from the last one, by dragging over the numbers, or by keys.
export function picking(node, pick) {
  let anchor = null;
  let dragged = false;
  const of = (event) => event.target.closest("button[data-line]");
  const range = (button) => {
    const isRange = anchor && anchor.dataset.side === button.dataset.side && anchor.isConnected;
    const lines = [Number(button.dataset.line), Number((isRange ? anchor : button).dataset.line)];
    return { side: button.dataset.side, line: Math.min(...lines), last: Math.max(...lines) };
  };
  const mark = (found) => {
    for (const each of node.querySelectorAll("tr.picked")) each.classList.remove("picked");
    if (!found) return;
    for (const each of node.querySelectorAll(`button[data-side="${found.side}"]`)) {
      if (Number(each.dataset.line) >= found.line && Number(each.dataset.line) <= found.last) each.closest("tr").classList.add("picked");
    }
  };
  node.addEventListener("pointerdown", (event) => {
    const button = of(event);
    if (!button || event.button) return;
    if (!event.shiftKey) anchor = button;
    dragged = false;
    mark(range(button));
  });
  node.addEventListener("pointerover", (event) => {
    const button = of(event);
    if (!button || !(event.buttons & 1) || !anchor || event.pointerType === "touch") return;
    dragged = dragged || button !== anchor;
    if (button.dataset.side === anchor.dataset.side) {
      mark(range(button));
    }
  });
  node.addEventListener("pointerup", (event) => {
    const button = of(event);
    if (button && dragged && anchor && button.dataset.side === anchor.dataset.side) {
      event.preventDefault();
      pick(range(button));
    }
  });
  node.addEventListener("click", (event) => {
    const button = of(event);
    if (!button || dragged) {
      dragged = false;
      return;
    }
    // Enter on a range that was made by keys is about all of it.
    const isByKeys = event.detail === 0 && button.closest("tr").classList.contains("picked");
    if (!event.shiftKey && !isByKeys) anchor = button;
    pick(range(button));
  });
  node.addEventListener("keydown", (event) => {
    const button = of(event);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!button || !step) return;
    const all = [...node.querySelectorAll(`button[data-side="${button.dataset.side}"]`)];
    const next = all[all.indexOf(button) + step];
    event.preventDefault();
    if (!next) return;
    if (!event.shiftKey) anchor = next;
    else if (!anchor || !button.closest("tr").classList.contains("picked")) anchor = button;
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    mark(event.shiftKey ? range(next) : null);
  });
}
