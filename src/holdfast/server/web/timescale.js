// Time along a line, with long stretches in which nothing happened folded to a mark of fixed width.

const FOLD = 44;
const FOLDS_MAX = 12;
const IDLE_S_MIN = 120;
// A gap is long if it takes more than this share of the rest.
const PART = 0.2;

// `busy`: [from, to] of what happens; `left` and `right`: the ends of the line. Returns x(when), the folds, the parts
// between them, and how many seconds are drawn to scale.
export function timescale(from, to, busy, left, right) {
  const [gaps, seconds] = folded(gapsOf(from, to, busy), to - from);
  const width = Math.min(FOLD, (right - left) / 2 / Math.max(1, gaps.length));
  const scale = (right - left - gaps.length * width) / seconds;
  const pieces = [];
  let [at, x] = [from, left];
  const add = (until, wide, isFold) => {
    if (until <= at) return;
    pieces.push({ a: at, b: until, x, wide, isFold });
    [at, x] = [until, x + wide];
  };
  for (const [a, b] of gaps) {
    add(a, (a - at) * scale, false);
    add(b, width, true);
  }
  add(to, (to - at) * scale, false);
  return {
    x: (when) => {
      const place = Math.min(Math.max(when, from), to);
      const piece = pieces.find((each) => place <= each.b) || pieces[pieces.length - 1];
      return piece.x + ((place - piece.a) / (piece.b - piece.a)) * piece.wide;
    },
    folds: pieces.filter((each) => each.isFold),
    parts: pieces.filter((each) => !each.isFold),
    seconds,
  };
}

function gapsOf(from, to, busy) {
  const gaps = [];
  let end = from;
  for (const [a, b] of [...busy].sort((one, other) => one[0] - other[0])) {
    if (Math.min(a, to) > end) gaps.push([end, Math.min(a, to)]);
    end = Math.max(end, Math.min(b, to));
  }
  if (to > end) gaps.push([end, to]);
  return gaps;
}

// The longest first, while they are long beside the rest. Events are not drawn right at a fold.
function folded(gaps, total) {
  const chosen = [];
  let left = total;
  for (const gap of [...gaps].sort((one, other) => other[1] - other[0] - one[1] + one[0]).slice(0, FOLDS_MAX)) {
    const length = gap[1] - gap[0];
    if (length < IDLE_S_MIN || length < PART * (left - length)) break;
    chosen.push(gap);
    left -= length;
  }
  const pad = Math.max(1, left / 50);
  const kept = chosen.map(([a, b]) => [a + pad, b - pad]).filter(([a, b]) => a < b).sort((one, other) => one[0] - other[0]);
  return [kept, total - kept.reduce((sum, [a, b]) => sum + b - a, 0)];
}
