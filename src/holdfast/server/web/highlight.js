// Colours program text, line by line: comments, strings, numbers, keywords and calls. It knows families of languages, not their
// grammars, and a line alone: enough to read a diff by. It gives pieces of text with a class, and never markup.

const WORDS = {
  c: "abstract async await bool boolean break byte case catch char class const constexpr continue default defer delete do double else enum explicit export extends extern false final finally float fn for from func function go goto if impl implements import in instanceof int interface internal let long loop match mod move mut namespace new nil null nullptr operator override package private protected pub public range readonly ref return select self short signed sizeof static string struct super switch template this throw throws trait true try type typedef typename typeof undefined union unsafe unsigned use using var virtual void volatile where while with yield",
  hash: "False None True and as assert async await begin break case class continue def del do done elif else elsif end ensure esac except export fi finally for from function global if import in is lambda let local match module nil nonlocal not or pass raise rescue return self set then try unless until when while with yield true false null",
  sql: "add all alter and as asc begin between by case check column commit constraint create default delete desc distinct drop else end exists false foreign from group having if in index inner insert into is join key left like limit not null on or order outer primary references rollback select set table then true union unique update values view when where with",
  none: "",
};
const FAMILIES = {
  c: "c h cc cpp cxx hpp cs java js jsx mjs cjs ts tsx go rs swift kt kts scala dart php css scss less proto groovy zig",
  hash: "py pyi rb sh bash zsh fish yaml yml toml ini cfg conf r pl pm ex exs jl nix make mk cmake dockerfile makefile tf",
  sql: "sql lua hs elm",
};
const COMMENT = { c: "\\/\\/.*|\\/\\*.*?(?:\\*\\/|$)", hash: "(?<=^|\\s)#.*", sql: "--.*", none: "(?!)" };
const STRING = "\"(?:\\\\.|[^\"\\\\])*(?:\"|$)|'(?:\\\\.|[^'\\\\])*(?:'|$)|`(?:\\\\.|[^`\\\\])*(?:`|$)";
const LINE_MAX = 1000;

const known = new Map();
for (const [family, endings] of Object.entries(FAMILIES)) for (const ending of endings.split(" ")) known.set(ending, family);
const made = new Map();

export function family(path) {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  return known.get(name.slice(name.lastIndexOf(".") + 1)) || "none";
}

function rules(kind) {
  if (!made.has(kind)) {
    const words = new Set(WORDS[kind].split(" "));
    const pattern = new RegExp(`(${COMMENT[kind]})|(${STRING})|(\\b\\d[\\w.]*)|([A-Za-z_$][\\w$]*)(?=(\\s*\\()?)`, kind === "sql" ? "gi" : "g");
    made.set(kind, { words, pattern });
  }
  return made.get(kind);
}

// Pieces of a line: [class or "", text]. A very long line is one piece.
export function pieces(text, kind) {
  if (kind === "none" || text.length > LINE_MAX) return [["", text]];
  const { words, pattern } = rules(kind);
  const found = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    const [whole, comment, string, number, word, call] = match;
    if (!whole) continue;
    const name = comment ? "t-comment" : string ? "t-string" : number ? "t-number"
      : words.has(kind === "sql" ? word.toLowerCase() : word) ? "t-word" : call ? "t-call" : "";
    if (!name) continue;
    if (match.index > at) found.push(["", text.slice(at, match.index)]);
    found.push([name, whole]);
    at = match.index + whole.length;
  }
  if (at < text.length) found.push(["", text.slice(at)]);
  return found;
}

// The part of a line that differs from its other version: [from, to); null where nothing, or nearly all, does.
export function differing(one, other) {
  const most = Math.min(one.length, other.length);
  let head = 0;
  while (head < most && one[head] === other[head]) head += 1;
  let tail = 0;
  while (tail < most - head && one[one.length - 1 - tail] === other[other.length - 1 - tail]) tail += 1;
  if (head + tail < 3 || head + tail < one.length / 4) return null;
  return [head, one.length - tail];
}

// The pieces with a mark on [from, to).
export function marked(found, range) {
  if (!range || range[0] >= range[1]) return found.map(([name, text]) => [name, text, false]);
  const parts = [];
  let at = 0;
  for (const [name, text] of found) {
    const cuts = [0, ...range.map((each) => each - at).filter((each) => each > 0 && each < text.length), text.length];
    for (let place = 1; place < cuts.length; place += 1) {
      const from = at + cuts[place - 1];
      parts.push([name, text.slice(cuts[place - 1], cuts[place]), from >= range[0] && from < range[1]]);
    }
    at += text.length;
  }
  return parts;
}
