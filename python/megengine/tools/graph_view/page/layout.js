// Layered drawing of a graph whose modules may be folded. A module is laid out by itself, as a box; its parent sees the
// box. Within one box: longest-path layers, order by barycentres, positions by isotonic regression (least squares under
// "no two overlap"), so everything is linear but for the sweeps.
'use strict';

const GAP_X = 22, GAP_Y = 34, PAD = 16, HEADER = 26;
const LONG = 10;  // an edge over more layers gets no lane of its own: it would push everything apart

// ---- modules

// scope 'net.layer1.0' of a node puts it into a tree of groups. Groups of one node, and of one group, say nothing.
function buildTree(graph) {
  const root = newGroup('', '', null);
  graph.nodes.forEach((node, i) => {
    let at = root;
    for (const part of node.path) {
      let next = at.byName.get(part);
      if (!next) {
        next = newGroup(part, at.path ? at.path + '.' + part : part, at);
        at.byName.set(part, next);
        at.groups.push(next);
      }
      at = next;
    }
    at.nodes.push(i);
  });
  simplify(root);
  finish(root, graph, 0);
  return root;
}

function newGroup(name, path, parent) {
  return {group: true, name, path, parent, byName: new Map(), groups: [], nodes: [], folded: false, size: 0, depth: 0};
}

function simplify(group) {
  group.groups = group.groups.flatMap(g => {
    simplify(g);
    if (g.nodes.length + g.groups.length === 1) {
      if (g.nodes.length) {
        group.nodes.push(g.nodes[0]);
        return [];
      }
      const only = g.groups[0];
      only.name = g.name + '.' + only.name;
      only.parent = group;
      return [only];
    }
    return [g];
  });
  group.nodes.sort((a, b) => a - b);
}

function finish(group, graph, depth) {
  group.depth = depth;
  group.all = group.nodes.slice();
  group.sum = {flops: 0, bytes: 0, time: 0, est: 0};
  for (const g of group.groups) {
    finish(g, graph, depth + 1);
    for (const i of g.all) group.all.push(i);
  }
  group.first = group.all.reduce((a, b) => Math.min(a, b), Infinity);
  for (const i of group.all) {
    const n = graph.nodes[i];
    group.sum.flops += n.flops || 0;
    group.sum.bytes += n.bytes || 0;
    group.sum.time += n.time || 0;
    group.sum.est += n.est || 0;
  }
  for (const i of group.nodes) graph.nodes[i].group = group;
}

function eachGroup(group, visit) {
  for (const g of group.groups) {
    visit(g);
    eachGroup(g, visit);
  }
}

// How deep to unfold so that about `most` boxes are seen at first.
function foldToFit(root, most) {
  let depth = 0, all = [];
  eachGroup(root, g => all.push(g));
  const count = d => {
    let n = root.nodes.length;
    const walk = g => {
      for (const c of g.groups) {
        if (c.depth > d) n += 1;
        else {
          n += c.nodes.length;
          walk(c);
        }
      }
    };
    walk(root);
    return n;
  };
  const deepest = all.reduce((a, g) => Math.max(a, g.depth), 0);
  while (depth < deepest && count(depth + 1) <= most) ++depth;
  for (const g of all) g.folded = g.depth > depth;
}

// ---- the whole drawing

// Gives {items, edges, w, h}: every visible box with its place, parents before children, and every visible edge.
function layoutGraph(graph, root, measure) {
  const items = new Map();  // 'n12' or a group -> its box
  const rootItem = makeItem(root, graph, measure, null, items);
  const seen = new Map();
  for (const [u, v] of graph.edges) {
    const a = shown(graph.nodes[u], u, items), b = shown(graph.nodes[v], v, items);
    if (a === b) continue;
    const key = a.id * 1e7 + b.id;
    const old = seen.get(key);
    if (old) old.n += 1;
    else seen.set(key, {a, b, n: 1, u, v, points: []});
  }
  for (const e of seen.values()) {
    let ca = e.a, cb = e.b;
    while (ca.depth > cb.depth) ca = ca.parent;
    while (cb.depth > ca.depth) cb = cb.parent;
    while (ca.parent !== cb.parent) {
      ca = ca.parent;
      cb = cb.parent;
    }
    const box = ca.parent, key = ca.id * 1e7 + cb.id;
    let lifted = box.lifted.get(key);
    if (!lifted) box.lifted.set(key, lifted = {from: ca, to: cb, via: []});
    e.lifted = lifted;
    e.box = box;
    e.out = climb(e.a, ca, 'leaving');
    e.into = climb(e.b, cb, 'entering');
  }
  arrange(rootItem);
  const list = [];
  settle(rootItem, 0, 0, list);
  const edges = [...seen.values()];
  for (const e of edges) route(e);
  return {items: list.slice(1), edges, w: rootItem.w, h: rootItem.h, byKey: items};
}

// Boxes between an end of an edge and the box both ends are in, from the inside out; each keeps a lane for it.
function climb(item, top, lane) {
  const out = [];
  for (let x = item; x !== top; x = x.parent) {
    x.parent[lane].add(x);
    out.push(x);
  }
  return out;
}

let nextId = 0;
function makeItem(ref, graph, measure, parent, items) {
  const item = {id: nextId++, ref, parent, depth: parent ? parent.depth + 1 : 0, children: [], lifted: new Map(), leaving: new Set(), entering: new Set(), x: 0, y: 0};
  if (ref.group) {
    items.set(ref, item);
    if (ref.folded && parent) {
      item.order = ref.first;
      [item.w, item.h] = measure(ref);
      return item;
    }
    item.order = ref.first;
    for (const g of ref.groups) item.children.push(makeItem(g, graph, measure, item, items));
    for (const i of ref.nodes) item.children.push(makeItem({node: i}, graph, measure, item, items));
    item.children.sort((a, b) => a.order - b.order);
  } else {
    items.set('n' + ref.node, item);
    item.order = ref.node;
    [item.w, item.h] = measure(graph.nodes[ref.node]);
  }
  return item;
}

// The box that stands for a node: its own, or that of the outermost folded module around it.
function shown(node, i, items) {
  let box = null;
  for (let g = node.group; g; g = g.parent) if (g.folded && g.parent) box = g;
  return box ? items.get(box) : items.get('n' + i);
}

function arrange(item) {
  if (!item.children.length) return;
  for (const c of item.children) arrange(c);
  const size = layered(item.children, [...item.lifted.values()], item.leaving, item.entering);
  const top = item.parent ? HEADER : 0, move = list => (list || []).map(([x, y]) => [x + PAD, y + PAD + top]);
  for (const c of item.children) {
    c.x += PAD;
    c.y += PAD + top;
    c.leave = move(c.leave);
    c.enter = move(c.enter);
  }
  for (const e of item.lifted.values()) e.via = move(e.via);
  item.w = size.w + 2 * PAD;
  item.h = size.h + 2 * PAD + top;
}

function settle(item, x, y, list) {
  item.ax = x + item.x;
  item.ay = y + item.y;
  list.push(item);
  for (const c of item.children) settle(c, item.ax, item.ay, list);
}

function route(e) {
  const from = [e.a.ax + e.a.w / 2, e.a.ay + e.a.h], to = [e.b.ax + e.b.w / 2, e.b.ay];
  const placed = (list, box) => list.map(([x, y]) => [x + box.ax, y + box.ay]), via = placed(e.lifted.via, e.box);
  if (e.lifted.flipped) e.points = [from, ...via.reverse(), to];
  else
    e.points = [from, ...e.out.flatMap(x => placed(x.leave, x.parent)), ...via,
                ...e.into.slice().reverse().flatMap(x => placed(x.enter, x.parent)), to];
  e.long = !!e.lifted.long || to[1] - from[1] > 1500;  // faint: it crosses much that it has nothing to do with
  let x0 = Infinity, y0 = Infinity, x1 = -Infinity, y1 = -Infinity;
  for (const [x, y] of e.points) {
    x0 = Math.min(x0, x); x1 = Math.max(x1, x);
    y0 = Math.min(y0, y); y1 = Math.max(y1, y);
  }
  e.box4 = [x0, y0, x1, y1];
}

// ---- one box

function layered(items, edges, leaving, entering) {
  for (const it of items) it.v = {item: it, w: it.w, up: [], down: [], layer: 0, weight: 1};
  const arcs = [];
  for (const e of edges) {
    e.flipped = e.from.order > e.to.order;  // against the order in which things run: a module that is come back to
    const a = e.flipped ? e.to.v : e.from.v, b = e.flipped ? e.from.v : e.to.v;
    arcs.push({a, b, e});
    a.down.push(b);
    b.up.push(a);
  }
  // items are in order of their first op, so every arc goes forward
  for (const it of items) for (const d of it.v.down) d.layer = Math.max(d.layer, it.v.layer + 1);
  for (let k = items.length - 1; k >= 0; --k) {  // what only feeds stands close to what it feeds
    const v = items[k].v;
    if (!v.up.length && v.down.length) v.layer = v.down.reduce((m, d) => Math.min(m, d.layer), Infinity) - 1;
  }
  wrapEnds(items);
  const layers = [];
  const put = v => {
    (layers[v.layer] ||= []).push(v);
  };
  for (const it of items) {
    it.v.up = [];
    it.v.down = [];
    put(it.v);
  }
  for (let l = 0; l < layers.length; ++l) layers[l] ||= [];
  for (const {a, b, e} of arcs) {
    const span = b.layer - a.layer;
    e.long = span > LONG;
    if (e.long) continue;
    let last = a;
    e.chain = [];
    for (let l = a.layer + 1; l < b.layer; ++l) {
      const d = {item: null, w: 6, up: [], down: [], layer: l, weight: 1};
      put(d);
      link(last, d);
      e.chain.push(d);
      last = d;
    }
    link(last, b);
  }
  const lane = (from, to, a, b) => {  // for edges that come from outside, or go there
    const chain = [];
    if (to - from >= LONG) return chain;
    for (let l = from; l <= to; ++l) {
      const d = {item: null, w: 6, up: [], down: [], layer: l, weight: 1};
      put(d);
      if (chain.length) link(chain[chain.length - 1], d);
      chain.push(d);
    }
    if (a && chain.length) link(a, chain[0]);
    if (b && chain.length) link(chain[chain.length - 1], b);
    return chain;
  };
  const bottom = layers.length - 1;
  for (const it of leaving) it.leave = lane(it.v.layer + 1, bottom, it.v, null);
  for (const it of entering) it.enter = lane(0, it.v.layer - 1, null, it.v);
  order(layers);
  positions(layers);
  let x0 = Infinity, x1 = -Infinity, y = 0;
  for (const layer of layers)
    for (const v of layer) {
      x0 = Math.min(x0, v.x - v.w / 2);
      x1 = Math.max(x1, v.x + v.w / 2);
    }
  const middle = [];
  for (const layer of layers) {
    const h = layer.reduce((m, v) => Math.max(m, v.item ? v.item.h : 0), 0);
    for (const v of layer)
      if (v.item) {
        v.item.x = v.x - v.w / 2 - x0;
        v.item.y = y + (h - v.item.h) / 2;
      }
    middle.push([y, h]);
    y += h + GAP_Y;
  }
  const points = chain => (chain || []).flatMap(d => {
    const [top, h] = middle[d.layer];
    return h > 60 ? [[d.x - x0, top], [d.x - x0, top + h]] : [[d.x - x0, top + h / 2]];
  });
  for (const {e} of arcs) e.via = points(e.chain);
  for (const it of leaving) it.leave = points(it.leave);
  for (const it of entering) it.enter = points(it.enter);
  return {w: x1 - x0, h: y - GAP_Y};
}

// Many that nothing reads (the updates of an optimizer) stand in rows, not in one line as wide as a street.
function wrapEnds(items) {
  const ends = new Map();
  for (const it of items) if (!it.v.down.length) (ends.get(it.v.layer) || ends.set(it.v.layer, []).get(it.v.layer)).push(it.v);
  for (const layer of [...ends.keys()].sort((a, b) => b - a)) {
    const list = ends.get(layer), wide = Math.max(12, Math.ceil(Math.sqrt(list.length) * 1.5)), more = Math.ceil(list.length / wide) - 1;
    if (more <= 0) continue;
    for (const it of items) if (it.v.layer > layer) it.v.layer += more;
    list.forEach((v, i) => v.layer += Math.floor(i / wide));
  }
}

function link(a, b) {
  a.down.push(b);
  b.up.push(a);
}

function order(layers) {
  const number = layer => layer.forEach((v, i) => v.pos = i);
  layers.forEach(number);
  const total = layers.reduce((n, l) => n + l.length, 0);
  const sweeps = total > 20000 ? 4 : total > 4000 ? 8 : 16;
  let best = null, fewest = Infinity;
  for (let s = 0; s < sweeps; ++s) {
    const down = s % 2 === 0, side = down ? 'up' : 'down';
    for (let k = 0; k < layers.length; ++k) {
      const layer = layers[down ? k : layers.length - 1 - k];
      for (const v of layer) {
        const n = v[side];
        v.key = n.length ? n.reduce((sum, o) => sum + o.pos, 0) / n.length : v.pos;
      }
      layer.sort((a, b) => a.key - b.key || a.pos - b.pos);
      number(layer);
    }
    if (total < 3000) {
      const c = crossings(layers);
      if (c < fewest) {
        fewest = c;
        best = layers.map(l => l.slice());
        if (!c) break;
      }
    }
  }
  if (best) best.forEach((l, i) => {
    layers[i].splice(0, l.length, ...l);
    number(layers[i]);
  });
}

function crossings(layers) {
  let sum = 0;
  for (const layer of layers) {
    const ends = [];
    for (const v of layer) for (const p of v.down.map(d => d.pos).sort((a, b) => a - b)) ends.push(p);
    for (let i = 1; i < ends.length; ++i) for (let k = i - 1; k >= 0 && k > i - 60; --k) if (ends[k] > ends[i]) ++sum;
  }
  return sum;
}

function positions(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const v of layer) {
      v.x = x + v.w / 2;
      x += v.w + GAP_X;
    }
    for (const v of layer) v.x -= x / 2;
  }
  for (let pass = 0; pass < 24; ++pass) {
    const down = pass % 2 === 0;
    for (let k = 0; k < layers.length; ++k) {
      const layer = layers[down ? k : layers.length - 1 - k];
      fit(layer, layer.map(v => {
        const n = pass >= 16 ? v.up.concat(v.down) : down ? v.up : v.down;
        return n.length ? n.reduce((sum, o) => sum + o.x * o.weight, 0) / n.reduce((sum, o) => sum + o.weight, 0) : v.x;
      }));
    }
  }
}

// The places nearest to those wanted that keep order and distance: pool adjacent violators.
function fit(layer, want) {
  const blocks = [];
  let offset = 0;
  layer.forEach((v, i) => {
    if (i) offset += (layer[i - 1].w + v.w) / 2 + (v.item && layer[i - 1].item ? GAP_X : 10);
    v.offset = offset;
    blocks.push({sum: (want[i] - offset) * v.weight, weight: v.weight, from: i, to: i});
    while (blocks.length > 1) {
      const b = blocks[blocks.length - 1], a = blocks[blocks.length - 2];
      if (a.sum / a.weight <= b.sum / b.weight) break;
      blocks.pop();
      a.sum += b.sum;
      a.weight += b.weight;
      a.to = b.to;
    }
  });
  for (const b of blocks) for (let i = b.from; i <= b.to; ++i) layer[i].x = b.sum / b.weight + layer[i].offset;
}
