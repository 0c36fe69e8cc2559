// Review: the change file by file, comments on its lines, and the verdict. A draft is in this browser at once, and in the journal
// a moment later, so that neither a closed tab nor a killed server loses a word.

import { change, get, part, post } from "./api.js";
import { picking, table } from "./diff_rows.js";
import { openDialog } from "./dialog.js";
import { announce, cut, debounce, failed, h, nothing, put, toast } from "./dom.js";
import { store } from "./store.js";
import { ago, plural } from "./words.js";

const SAVE_MS = 700;
const WIDE = 1100;
const KEY = "holdfast-review";
const VIEWS = { whole: "The whole change", since: "Since my last review", turn: "Turn", resolution: "How the conflict was resolved", landing: "What was approved, and what lands" };

const keyOf = (each) => `${each.path}\0${each.side}\0${each.line}\0${each.last}`;
const bare = ({ path, side, line, last, words }) => ({ path, side, line, last, words });

export function review(panel, state, signal) {
  const view = { name: "whole", turn: 0, isSplit: window.innerWidth >= WIDE, told: null, comments: [], summary: "", dirty: false, files: new Map(), blobs: new Map() };
  const local = `${KEY}:${state.id}`;
  const nodes = { notices: h("div", { class: "review-notices" }), bar: h("div", { class: "review-bar" }), tree: h("div", { class: "file-tree", role: "navigation", "aria-label": "Files" }),
    files: h("div", { class: "review-files" }), loose: h("div", { class: "review-loose" }), verdict: h("div", { class: "verdict" }), kept: h("span", { class: "faint kept", role: "status" }) };
  const canComment = () => store.operates && view.told && view.told.waits;

  // -- the draft ------------------------------------------------------------------------------------------------------

  function remember() {
    view.dirty = true;
    try {
      localStorage.setItem(local, JSON.stringify({ candidate: view.told.candidate, summary: view.summary, comments: view.comments.map(bare) }));
    } catch { /* Full or forbidden: the journal has to do. */ }
    nodes.kept.textContent = "Saving…";
    save();
    paintVerdict();
  }

  let saving = Promise.resolve();
  const save = debounce(() => { saving = saving.then(send); }, SAVE_MS);

  async function send() {
    if (!view.dirty || !canComment()) return;
    view.dirty = false;
    try {
      await change("PUT", `/tasks/${part(state.id)}/review/draft`, { candidate: view.told.candidate, summary: view.summary, comments: view.comments.map(bare) });
      if (view.dirty) return;
      localStorage.removeItem(local);
      nodes.kept.textContent = view.comments.length || view.summary ? "Draft kept" : "";
    } catch (error) {
      view.dirty = true;
      nodes.kept.textContent = `Kept in this browser only: ${error.message}`;
    }
  }

  // What this browser could not save is newer than what the journal has.
  function takeDraft(told) {
    let own = null;
    try {
      own = JSON.parse(localStorage.getItem(local) || "null");
    } catch { /* Not ours. */ }
    const draft = own || told.draft;
    view.summary = draft ? draft.summary : "";
    view.comments = draft ? draft.comments.map(bare) : [];
    nodes.kept.textContent = draft ? own ? "Kept in this browser" : `Draft kept${draft.candidate === told.candidate ? "" : ", of an earlier result"}` : "";
    if (own && canComment()) remember();
  }

  // -- reading --------------------------------------------------------------------------------------------------------

  async function read() {
    const chosen = () => `${view.name}:${view.turn}`;
    const asked = chosen();
    try {
      const told = await get(`/tasks/${part(state.id)}/review`, { view: view.name, turn: view.turn || "" }, signal);
      // Another change was chosen meanwhile: its own answer comes.
      if (asked !== chosen()) return;
      const isNew = !view.told || view.told.candidate !== told.candidate || view.told.state !== told.state || view.asked !== asked;
      const isOther = !view.dirty && JSON.stringify((told.draft || {}).at) !== JSON.stringify(view.told && (view.told.draft || {}).at);
      view.told = told;
      view.asked = asked;
      if (isOther && !panel.querySelector(".comment-form")) {
        takeDraft(told);
        if (!isNew) {
          paintComments();
          paintVerdict(true);
        }
      }
      if (isNew) paint();
      else paintNotices();
      // What could not be saved before, because there was no server.
      if (view.dirty) save();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 422 && view.name === "whole") put(panel, nothing("Nothing to review yet", "When the agent has made a result, what it would change is here."));
      else put(panel, failed(error, "reviews"));
    }
  }

  function show(name, turn = 0) {
    [view.name, view.turn] = [name, turn];
    read();
  }

  // -- painting -------------------------------------------------------------------------------------------------------

  function paint() {
    put(panel, h("div", { class: "review", "data-candidate": view.told.candidate }, nodes.notices, nodes.bar, nodes.loose, h("div", { class: "review-body" }, nodes.tree, nodes.files), nodes.verdict));
    paintNotices();
    paintBar();
    paintFiles();
    paintComments();
    paintVerdict(true);
  }

  function paintNotices() {
    const { resolved, conflicts, relanding, last, since } = view.told;
    const link = (words, name) => h("button", { type: "button", class: "quiet", onclick: () => show(name) }, words);
    put(nodes.notices,
      resolved.length > 0 && h("p", { class: "notice warn", "data-resolved": "" }, `The agent has resolved a merge conflict in ${cut(resolved.join(", "), 300)}. `, link("Show how", "resolution")),
      conflicts.length > 0 && h("p", { class: "notice" }, `What you reviewed conflicts with the newer target in ${cut(conflicts.join(", "), 300)}; it is compared with the conflict markers in it.`),
      relanding && h("p", { class: `notice ${relanding.differs.length ? "warn" : ""}`, "data-relanding": "" }, relanding.differs.length
        ? `The target has moved since it was approved, and the change itself is another now in ${cut(relanding.differs.join(", "), 300)}. ` : "The target has moved since it was approved; the change itself is the same, only what stands around it is newer.",
      relanding.differs.length > 0 && link("Show the difference", "landing")),
      last && since && h("details", { class: "last-review", open: true }, h("summary", {}, `${last.verdict === "approve" ? "Approved" : "Sent back"} by ${last.by} `, ago(last.at), `, ${plural(last.comments.length, "comment")}`),
        last.summary && h("p", {}, cut(last.summary, 2000)),
        h("ul", {}, last.comments.map((each) => h("li", { class: each.touched ? "touched" : "untouched" }, h("span", { class: `badge ${each.touched ? "good" : "wait"}` }, each.touched ? "changed since" : "not changed"),
          h("code", {}, h("bdi", {}, cut(placeOf(each), 120))), each.quote && h("pre", {}, cut(each.quote, 400)), h("span", {}, cut(each.words, 1000)))))));
  }

  function paintBar() {
    const { since, resolved, relanding, turns, files_total: total } = view.told;
    const names = ["whole", since && "since", resolved.length && "resolution", relanding && relanding.differs.length && "landing"].filter(Boolean);
    const options = names.map((name) => h("option", { value: name, selected: view.name === name }, VIEWS[name]));
    for (let turn = 1; turn <= Math.min(turns, 200); turn += 1) options.push(h("option", { value: `turn:${turn}`, selected: view.name === "turn" && view.turn === turn }, `Turn ${turn}`));
    put(nodes.bar, h("label", { class: "inline" }, "Show ", h("select", { "aria-label": "Which change", onchange: (event) => {
      const [name, turn] = event.target.value.split(":");
      show(name, Number(turn || 0));
    } }, options)),
    h("span", { class: "choice" }, [["Unified", false], ["Side by side", true]].map(([label, isSplit]) => h("button", { type: "button", "aria-pressed": String(view.isSplit === isSplit), onclick: () => {
      view.isSplit = isSplit;
      paintBar();
      for (const file of view.files.values()) file.paint();
      paintComments();
    } }, label))),
    h("span", { class: "faint num" }, plural(total, "file")), canComment() && view.name !== "landing" && h("span", { class: "faint hint" }, "Click a line's number to comment; Shift-click or drag for several"),
    view.name === "landing" && h("span", { class: "faint" }, "Removed: what the change did when it was approved. Added: what it does instead on the newer target."));
  }

  function paintFiles() {
    const { files, files_total: total } = view.told;
    view.files = new Map();
    if (view.name === "whole") view.blobs = new Map(files.map((file) => [file.path, { old: file.old_blob, new: file.new_blob }]));
    const watch = new IntersectionObserver((seen) => seen.filter((each) => each.isIntersecting).forEach((each) => {
      watch.unobserve(each.target);
      each.target.dispatchEvent(new CustomEvent("near"));
    }), { rootMargin: "600px" });
    signal.addEventListener("abort", () => watch.disconnect());
    put(nodes.files, files.length ? files.map((file) => fileNode(file, watch)) : h("p", { class: "faint" }, "Nothing differs."),
      total > files.length && h("p", { class: "notice warn" }, `${plural(total - files.length, "more file")}: \`holdfast diff ${state.id}\` shows them.`));
    put(nodes.tree, h("details", { open: window.innerWidth > 760 }, h("summary", {}, plural(total, "file")), treeOf(files)));
  }

  function treeOf(files) {
    const list = h("ul", {});
    let folder = null;
    for (const file of [...files].sort((one, other) => one.path < other.path ? -1 : 1)) {
      const at = file.path.lastIndexOf("/") + 1;
      if (at && file.path.slice(0, at) !== folder) list.append(h("li", { class: "folder" }, h("bdi", {}, cut(file.path.slice(0, at), 120))));
      folder = file.path.slice(0, at);
      const mark = view.files.get(file.path).mark = h("span", { class: "mark" });
      list.append(h("li", { class: at ? "inner" : "" }, h("button", { type: "button", class: "quiet", title: file.path, onclick: () => {
        const found = view.files.get(file.path);
        found.node.open = true;
        found.node.scrollIntoView({ block: "start" });
        found.node.querySelector("summary").focus({ preventScroll: true });
      } }, h("span", { class: `sign ${file.status}`, "aria-hidden": "true" }, { added: "+", removed: "−", renamed: "→" }[file.status] || "·"), h("bdi", {}, cut(file.path.slice(at), 80)), counts(file), mark)));
    }
    return list;
  }

  function fileNode(file, watch) {
    const body = h("div", { class: "file-body" }, h("p", { class: "faint" }, "Reading…"));
    const name = file.old_path ? `${file.old_path} → ${file.path}` : file.path;
    const node = h("details", { class: "file review-file", open: true, "data-path": file.path }, h("summary", {}, h("code", {}, h("bdi", {}, cut(name, 200))), counts(file),
      !["changed", "renamed"].includes(file.status) && h("span", { class: "badge" }, { mode: "mode changed", type: "type changed" }[file.status] || file.status),
      canComment() && view.blobs.has(file.path) && h("button", { type: "button", class: "quiet on-file", onclick: (event) => {
        event.preventDefault();
        node.open = true;
        write({ path: file.path, side: "new", line: 0, last: 0, words: "" });
      } }, "Comment on the file")), h("div", { class: "file-comments" }), body);
    const known = { node, body, told: null, paint: () => {
      if (!known.told) return;
      const { patch, truncated, binary, old_blob: old, new_blob: fresh } = known.told;
      // Lines are counted in the whole change: those of another version of the file would be other lines.
      const allowed = { old: canComment() && old === (view.blobs.get(file.path) || {}).old, new: canComment() && fresh === (view.blobs.get(file.path) || {}).new };
      const drawn = patch ? table(patch, file.path, view.isSplit, view.name === "landing" ? {} : allowed) : null;
      put(body, drawn && h("div", { class: "diff-scroll" }, drawn), !patch && h("p", { class: "faint" }, binary ? "It is not text, and cannot be shown." : "Its content is the same."),
        truncated && h("p", { class: "notice warn" }, `It is longer than this. \`holdfast diff ${state.id}\` shows all of it.`));
      if (drawn) picking(drawn, (range) => write({ path: file.path, ...range, words: "" }));
    } };
    node.addEventListener("near", () => load(file, known));
    node.addEventListener("filled", () => paintComments());
    view.files.set(file.path, known);
    watch.observe(node);
    return node;
  }

  async function load(file, known) {
    try {
      known.told = await get(`/tasks/${part(state.id)}/review/diff`, { path: file.path, view: view.name, turn: view.turn || "" }, signal);
      known.paint();
      paintComments(file.path);
    } catch (error) {
      if (error.name !== "AbortError") put(known.body, failed(error, "diffs"));
    }
  }

  // -- comments -------------------------------------------------------------------------------------------------------

  // The row behind which a comment stands, or where its file's comments are.
  function placeIn(known, each) {
    const button = each.line && known.body.querySelector(`button[data-side="${each.side}"][data-line="${each.last}"]`);
    if (button) return (node) => button.closest("tr").after(h("tr", { class: "comment-row" }, h("td", { colspan: "4" }, node)));
    return (node) => known.node.querySelector(".file-comments").append(node);
  }

  function paintComments(path = "") {
    const isOf = (each) => !path || each.path === path;
    for (const [name, known] of view.files) {
      if (path && name !== path) continue;
      for (const each of known.node.querySelectorAll(".comment-row:has(.comment), .comment")) if (!each.querySelector(".comment-form")) each.remove();
      const own = view.comments.filter((each) => each.path === name);
      for (const each of own) placeIn(known, each)(commentNode(each));
      if (known.mark) known.mark.textContent = own.length ? String(own.length) : "";
    }
    if (view.comments.some((each) => !view.files.has(each.path)) || !path) {
      const lost = view.comments.filter((each) => isOf(each) && !view.files.has(each.path));
      put(nodes.loose, lost.length > 0 && h("p", { class: "faint" }, "Comments on files that are not shown here:"), lost.map(commentNode));
    }
  }

  function commentNode(each) {
    const node = h("div", { class: "comment", "data-comment": each.line }, h("div", { class: "comment-head" }, h("span", { class: "faint" }, placeOf(each, true)),
      canComment() && [h("button", { type: "button", class: "quiet", onclick: () => {
        const row = node.closest(".comment-row");
        node.remove();
        if (row) row.remove();
        write(each);
      } }, "Edit"), h("button", { type: "button", class: "quiet", onclick: () => {
        view.comments = view.comments.filter((other) => other !== each);
        remember();
        paintComments();
      } }, "Remove")]), h("p", {}, each.words.split("\n").map((line, place) => [place > 0 && h("br"), line])));
    return node;
  }

  function write(each) {
    if (!canComment()) return;
    const open = [...panel.querySelectorAll(".comment-form")].find((form) => form.dataset.key === keyOf(each));
    if (open) {
      open.querySelector("textarea").focus();
      return;
    }
    if (view.form && view.form.isConnected && !view.form.querySelector("textarea").value.trim()) view.form.dispatchEvent(new CustomEvent("leave"));
    const known = view.files.get(each.path);
    const area = h("textarea", { rows: "3", "aria-label": `Comment on ${placeOf(each)}`, value: each.words, maxlength: "8000" });
    const isThere = view.comments.includes(each);
    const close = () => {
      const row = form.closest(".comment-row");
      (row || form).remove();
      for (const picked of known ? known.node.querySelectorAll(".picked") : []) picked.classList.remove("picked");
      paintComments(each.path);
    };
    const keep = () => {
      const words = area.value.trim();
      if (!words) return;
      const made = { ...each, words };
      view.comments = isThere ? view.comments.map((other) => other === each ? made : other) : [...view.comments, made];
      remember();
      close();
      announce("The comment is kept as a draft.");
    };
    const form = h("div", { class: "comment-form", "data-key": keyOf(each) }, h("span", { class: "faint" }, placeOf(each, true)), area, h("div", { class: "buttons" },
      h("button", { type: "button", class: "primary", onclick: keep }, "Keep comment"), h("button", { type: "button", onclick: close }, "Cancel"), h("span", { class: "faint hint" }, "Ctrl+Enter keeps it, Esc closes")));
    view.form = form;
    form.addEventListener("leave", close);
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) keep();
      if (event.key === "Escape" && (!area.value.trim() || area.value === each.words)) close();
    });
    if (known) placeIn(known, each)(form);
    else nodes.loose.append(form);
    area.focus({ preventScroll: true });
    form.scrollIntoView({ block: "nearest" });
  }

  // -- the verdict ----------------------------------------------------------------------------------------------------

  function paintVerdict(isWhole = false) {
    if (!canComment()) {
      put(nodes.verdict);
      return;
    }
    const count = view.comments.length;
    const words = h("span", { class: "num" }, plural(count, "comment"));
    if (!isWhole && nodes.verdict.querySelector("textarea")) {
      nodes.verdict.querySelector(".num").replaceWith(words);
      nodes.verdict.querySelector("[data-verdict=send_back]").disabled = !count && !view.summary.trim();
      return;
    }
    const area = h("textarea", { rows: "1", "aria-label": "Words about the whole", placeholder: "Words about the whole", value: view.summary, maxlength: "8000", oninput: () => {
      view.summary = area.value;
      remember();
    } });
    const button = (verdict, label, kind) => h("button", { type: "button", class: kind, "data-verdict": verdict, onclick: () => submit(verdict) }, label);
    put(nodes.verdict, area, h("div", { class: "buttons" }, words, nodes.kept, button("send_back", "Send back", ""), button("approve", "Approve", "primary")));
    nodes.verdict.querySelector("[data-verdict=send_back]").disabled = !count && !view.summary.trim();
  }

  async function submit(verdict) {
    const open = panel.querySelector(".comment-form textarea");
    if (open && open.value.trim()) {
      toast("A comment is not kept yet: keep or cancel it first.", "bad");
      open.focus();
      return;
    }
    const body = { candidate: view.told.candidate, verdict, summary: view.summary, comments: view.comments.map(bare) };
    try {
      await saving;
      const answer = await openDialog({
        title: verdict === "approve" ? `Approve ${state.id}?` : `Send ${state.id} back?`,
        words: verdict === "approve" ? view.comments.length ? `What was verified lands. Your ${plural(view.comments.length, "comment")} are kept in the journal, and the agent does not get them.` : "What was verified lands on the branch."
          : "The same conversation goes on with your comments. No attempt is spent.",
        yes: verdict === "approve" ? "Approve" : "Send back",
        act: () => post(`/tasks/${part(state.id)}/review`, body),
      });
      if (!answer) {
        read();
        return;
      }
      view.dirty = false;
      localStorage.removeItem(local);
      [view.summary, view.comments] = ["", []];
      toast(verdict === "approve" ? `${state.id}: approved.` : `${state.id}: sent back.`);
      view.told = null;
      read();
    } catch (error) {
      toast(error.message, "bad");
      read();
    }
  }

  function placeOf(each, isShort = false) {
    const lines = !each.line ? "the whole file" : each.last > each.line ? `lines ${each.line}–${each.last}` : `line ${each.line}`;
    const where = each.side === "old" && each.line ? `${lines}, before the change` : lines;
    return isShort && view.files.has(each.path) ? where[0].toUpperCase() + where.slice(1) : `${each.path}, ${where}`;
  }

  window.addEventListener("pagehide", () => { if (view.dirty) send(); }, { signal });
  put(panel, h("p", { class: "faint" }, "Reading…"));
  let busy = read();
  return () => { busy = busy.then(read); };
}

function counts({ added, removed }) {
  if (added === null || removed === null) return h("span", { class: "faint counts" }, "not text");
  return h("span", { class: "num counts" }, h("ins", {}, `+${added}`), " ", h("del", {}, `−${removed}`));
}
