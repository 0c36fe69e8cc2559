// Makes elements. Text only ever becomes text: nothing here, or elsewhere in the page, parses markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function" && name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("on")) throw new Error("handlers are functions");
    else if (name === "href" && !/^[#/]/.test(value)) throw new Error("links stay in this page");
    else if (name === "text") node.textContent = plain(value);
    else if (name === "vars") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : plain(value));
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  }
  return node;
}

export function put(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

// Control characters, and those that turn the direction of what follows, are shown by their number instead of obeyed.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]/g;

export function plain(text) {
  const given = String(text);
  if (given.search(UNSEEN) < 0) return given;
  return given.replace(UNSEEN, (each) => `‹${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

export function cut(text, most) {
  const given = String(text || "");
  return given.length > most ? given.slice(0, most - 1) + "…" : given;
}

export function debounce(work, wait) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}

// Runs at most once per frame, and never more often than `wait`.
export function paced(work, wait = 0) {
  let planned = false;
  let last = 0;
  return () => {
    if (planned) return;
    planned = true;
    const rest = Math.max(0, wait - (performance.now() - last));
    setTimeout(() => requestAnimationFrame(() => {
      planned = false;
      last = performance.now();
      work();
    }), rest);
  };
}

export function announce(words) {
  document.getElementById("live").textContent = plain(words);
}

export function toast(words, kind = "") {
  const node = h("div", { class: `toast ${kind}` }, h("span", {}, words),
    h("button", { class: "quiet icon", type: "button", "aria-label": "Dismiss", onclick: () => node.remove() }, "×"));
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), kind === "bad" ? 15000 : 5000);
}

// Shown while a part is empty: a sentence, and where it helps, what to type.
export function nothing(title, words, ...more) {
  return h("div", { class: "nothing" }, h("h2", {}, title), words && h("p", {}, words), ...more);
}

export function failed(error, what) {
  const missing = error.status === 404 && error.code === "no_such_path";
  const words = missing ? `This server does not provide ${what}.` : error.message;
  return h("p", { class: missing ? "faint" : "notice bad", role: missing ? undefined : "alert" }, words);
}
