// Positions of the nodes of a graph: in layers from left to right, with few crossings. An edge that passes a
// layer has a slot of its own there, between the nodes, so that it runs behind none of them.

export const NODE = { width: 210, height: 44, gapX: 70, gapY: 16 };
const SLOT = 12;
const SWEEPS = 4;

// `nodes`: ids; `edges`: [from, to], from comes first. Returns a Map of id → {x, y}, the size of it all, and for each edge
// its points: from point to point either straight along a layer or through the gap between two.
export function layered(nodes, edges) {
  const ids = new Set(nodes);
  const known = edges.map(([from, to]) => from !== to && ids.has(from) && ids.has(to));
  const [next, before] = linked(nodes, edges.filter((_, place) => known[place]));
  const rank = ranks(nodes, next, before);
  const connected = nodes.filter((id) => next.get(id).length || before.get(id).length);
  const layers = [];
  for (const id of connected) (layers[rank.get(id)] ||= []).push(id);
  const chains = edges.map((ends, place) => (known[place] ? slots(ends, place, rank, layers) : []));
  const filled = layers.filter(Boolean);
  untangle(filled, ...linked(filled.flat(), chains.flatMap((chain) => chain.slice(1).map((id, at) => [chain[at], id]))));
  const [places, tallest] = stacked(filled, ids);
  loose(nodes.filter((id) => !places.has(id)), places, tallest + (tallest ? 40 : 0), filled.length);
  const routes = chains.map((chain, place) => route(chain, edges[place], places));
  for (const id of places.keys()) if (!ids.has(id)) places.delete(id);
  const all = [...places.values()];
  return { places, routes, width: Math.max(0, ...all.map((p) => p.x)) + NODE.width, height: Math.max(tallest, ...all.map((p) => p.y + NODE.height)) };
}

function linked(nodes, edges) {
  const next = new Map(nodes.map((id) => [id, []]));
  const before = new Map(nodes.map((id) => [id, []]));
  for (const [from, to] of edges) {
    next.get(from).push(to);
    before.get(to).push(from);
  }
  return [next, before];
}

// The edge as a chain from the left to the right, with a slot in each layer between its ends. One that leads back, as in
// a circle, is a chain from its end.
function slots([from, to], number, rank, layers) {
  const [left, right] = rank.get(from) <= rank.get(to) ? [from, to] : [to, from];
  const chain = [left];
  for (let layer = rank.get(left) + 1; layer < rank.get(right); layer += 1) {
    // No task has such a name.
    const id = `\n${number} ${layer}`;
    if (!layers[layer]) continue;
    layers[layer].push(id);
    chain.push(id);
  }
  return [...chain, right];
}

// Each layer is as high as its content, and centred.
function stacked(layers, ids) {
  const high = (id) => (ids.has(id) ? NODE.height + NODE.gapY : SLOT);
  const heights = layers.map((layer) => layer.reduce((sum, id) => sum + high(id), 0));
  const tallest = Math.max(0, ...heights);
  const places = new Map();
  layers.forEach((layer, column) => {
    let y = (tallest - heights[column]) / 2;
    for (const id of layer) {
      places.set(id, { x: column * (NODE.width + NODE.gapX), y });
      y += high(id);
    }
  });
  return [places, tallest];
}

// Through the middle of the free space: each box has its gap below it, and none above.
function route(chain, [from], places) {
  if (chain.length < 2) return [];
  const found = [];
  const own = (id) => places.get(id);
  const middle = (id) => own(id).y + NODE.height / 2;
  const first = chain[0];
  const last = chain[chain.length - 1];
  if (own(first).x === own(last).x) {
    // Both in one layer: out into the gap and back.
    const right = own(first).x + NODE.width;
    return [[right, middle(first)], [right, middle(last)]];
  }
  found.push([own(first).x + NODE.width, middle(first)]);
  for (const id of chain.slice(1, -1)) {
    const { x, y } = own(id);
    const level = y + (SLOT - NODE.gapY) / 2;
    found.push([x, level], [x + NODE.width, level]);
  }
  found.push([own(last).x, middle(last)]);
  return from === first ? found : found.reverse();
}

// The longest path to each node; a node in a cycle counts from where it was met first.
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

// Nodes without a neighbour are in a block below.
function loose(ids, places, top, columns) {
  const wide = Math.max(columns, Math.min(6, Math.ceil(Math.sqrt(ids.length / 2))), 1);
  ids.forEach((id, place) => places.set(id, {
    x: (place % wide) * (NODE.width + 24), y: top + Math.floor(place / wide) * (NODE.height + NODE.gapY),
  }));
}
