// Where the nodes of a graph stand: in layers, what comes first to the left, with few crossings.

export const NODE = { width: 210, height: 44, gapX: 70, gapY: 16 };
const SWEEPS = 4;

// `nodes`: ids; `edges`: [from, to], from comes first. Returns a Map of id → {x, y} and the size of it all.
export function layered(nodes, edges) {
  const ids = new Set(nodes);
  const next = new Map(nodes.map((id) => [id, []]));
  const before = new Map(nodes.map((id) => [id, []]));
  for (const [from, to] of edges) {
    if (from === to || !ids.has(from) || !ids.has(to)) continue;
    next.get(from).push(to);
    before.get(to).push(from);
  }
  const rank = ranks(nodes, next, before);
  const connected = nodes.filter((id) => next.get(id).length || before.get(id).length);
  const layers = [];
  for (const id of connected) (layers[rank.get(id)] ||= []).push(id);
  const filled = layers.filter(Boolean);
  untangle(filled, next, before);
  const places = new Map();
  const step = NODE.height + NODE.gapY;
  const tallest = Math.max(0, ...filled.map((layer) => layer.length));
  filled.forEach((layer, column) => layer.forEach((id, row) => {
    places.set(id, { x: column * (NODE.width + NODE.gapX), y: (row + (tallest - layer.length) / 2) * step });
  }));
  loose(nodes.filter((id) => !places.has(id)), places, tallest * step + (tallest ? 40 : 0), filled.length);
  const all = [...places.values()];
  return { places, width: Math.max(0, ...all.map((p) => p.x)) + NODE.width, height: Math.max(0, ...all.map((p) => p.y)) + NODE.height };
}

// The longest way to each node; what is in a circle counts from where it was met first.
function ranks(nodes, next, before) {
  const rank = new Map(nodes.map((id) => [id, 0]));
  const missing = new Map(nodes.map((id) => [id, before.get(id).length]));
  const ready = nodes.filter((id) => !missing.get(id));
  const left = new Set(nodes);
  while (left.size) {
    if (!ready.length) ready.push(left.values().next().value);
    const id = ready.shift();
    if (!left.delete(id)) continue;
    for (const to of next.get(id)) {
      if (!left.has(to)) continue;
      rank.set(to, Math.max(rank.get(to), rank.get(id) + 1));
      missing.set(to, missing.get(to) - 1);
      if (!missing.get(to)) ready.push(to);
    }
  }
  return rank;
}

// Each node to the middle of its neighbours in the layer beside it, there and back.
function untangle(layers, next, before) {
  const place = new Map();
  const note = (layer) => layer.forEach((id, row) => place.set(id, row));
  layers.forEach(note);
  const middle = (id, beside) => {
    const rows = beside.get(id).map((each) => place.get(each)).filter((row) => row !== undefined);
    return rows.length ? rows.reduce((a, b) => a + b, 0) / rows.length : place.get(id);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const [order, beside] = sweep % 2 ? [[...layers].reverse(), next] : [layers, before];
    for (const layer of order) {
      const at = new Map(layer.map((id) => [id, middle(id, beside)]));
      layer.sort((a, b) => at.get(a) - at.get(b));
      note(layer);
    }
  }
}

// What has no neighbour stands in a block below.
function loose(ids, places, top, columns) {
  const wide = Math.max(columns, Math.min(6, Math.ceil(Math.sqrt(ids.length / 2))), 1);
  ids.forEach((id, place) => places.set(id, {
    x: (place % wide) * (NODE.width + 24), y: top + Math.floor(place / wide) * (NODE.height + NODE.gapY),
  }));
}
