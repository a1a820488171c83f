// The graph on a canvas: only what is in sight is drawn, and less of it the smaller it is.
'use strict';

class GraphPane {
  constructor(canvas, onSelect) {
    this.canvas = canvas;
    this.ctx = canvas.getContext('2d');
    this.onSelect = onSelect;
    this.scale = 1;
    this.tx = this.ty = 0;
    this.selected = this.hovered = null;
    this.matches = new Set();
    this.mode = 'kind';
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.dark.addEventListener('change', () => this.draw());
    this.bind();
  }

  show(graph, root) {
    this.graph = graph;
    this.root = root;
    this.selected = this.hovered = null;
    this.matches = new Set();
    this.relayout();
    this.fit();
  }

  relayout(keep) {
    const was = keep && this.layout && this.layout.byKey.get(keep);
    const at = was && [was.ax + was.w / 2, was.ay];
    const begin = performance.now();
    this.layout = layoutGraph(this.graph, this.root, ref => this.measure(ref));
    this.layoutMs = performance.now() - begin;
    const heaviest = key => this.layout.items.reduce((m, it) => Math.max(m, this.amount(it, key)), 0);
    this.most = {time: heaviest('time'), flops: heaviest('flops'), bytes: heaviest('bytes')};
    const now = keep && this.layout.byKey.get(keep);
    if (at && now) {  // what was clicked stays where it was
      this.tx += (at[0] - now.ax - now.w / 2) * this.scale;
      this.ty += (at[1] - now.ay) * this.scale;
    }
    this.draw();
  }

  measure(ref) {
    const c = this.ctx;
    if (ref.group) {
      c.font = '600 12px system-ui, sans-serif';
      return [Math.min(280, Math.max(130, c.measureText(ref.name).width + 60)), 48];
    }
    c.font = '600 12px system-ui, sans-serif';
    const a = c.measureText(this.title(ref)).width;
    c.font = '11px system-ui, sans-serif';
    const b = c.measureText(this.subtitle(ref)).width;
    return [Math.min(250, Math.max(84, Math.max(a + 12, b) + 28)), ref.kind === 'input' || ref.kind === 'output' ? 38 : 42];
  }
  title(n) { return n.kind === 'input' || n.kind === 'output' ? n.name : n.op; }
  subtitle(n) {
    const v = n.outs.length ? n.outs[0] : n.ins[0];
    return v == null ? '' : asTensor(this.graph.values[v]);
  }
  amount(item, key) { return item.ref.group ? item.ref.sum[key] : this.graph.nodes[item.ref.node][key] || 0; }

  // ---- colours

  colors() {
    const s = getComputedStyle(document.documentElement), v = name => s.getPropertyValue(name).trim();
    return {back: v('--canvas'), box: v('--box'), text: v('--text'), soft: v('--soft'), line: v('--edge'), border: v('--border'),
            accent: v('--accent'), hit: v('--hit'), group: v('--group'), groupLine: v('--group-line'), dark: this.dark.matches};
  }
  fill(item, c) {
    const node = item.ref.group ? null : this.graph.nodes[item.ref.node];
    if (this.mode === 'kind') return node ? kindColor(node.kindName, c.dark) : c.groupLine;
    if (this.mode === 'cluster') return node && node.cluster >= 0 ? clusterColor(node.cluster, c.dark) : c.border;
    const most = this.most[this.mode];
    return most ? heat(Math.sqrt(this.amount(item, this.mode) / most), c.dark) : c.border;
  }

  // ---- drawing

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  resize() {
    const r = this.canvas.getBoundingClientRect(), d = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(r.width * d) || this.canvas.height !== Math.round(r.height * d)) {
      this.canvas.width = Math.round(r.width * d);
      this.canvas.height = Math.round(r.height * d);
    }
    this.w = r.width;
    this.h = r.height;
    return d;
  }

  paint() {
    if (!this.layout) return;
    const d = this.resize(), ctx = this.ctx, c = this.colors(), s = this.scale;
    const begin = performance.now();
    ctx.setTransform(d, 0, 0, d, 0, 0);
    ctx.fillStyle = c.back;
    ctx.fillRect(0, 0, this.w, this.h);
    ctx.setTransform(d * s, 0, 0, d * s, d * this.tx, d * this.ty);
    const sight = [-this.tx / s, -this.ty / s, (this.w - this.tx) / s, (this.h - this.ty) / s];
    const inSight = it => it.ax < sight[2] && it.ax + it.w > sight[0] && it.ay < sight[3] && it.ay + it.h > sight[1];
    const focus = this.focusSet();
    for (const it of this.layout.items) if (it.children.length && inSight(it)) this.paintGroup(it, c, s);
    this.paintEdges(c, s, sight, focus);
    for (const it of this.layout.items) if (!it.children.length && inSight(it)) this.paintBox(it, c, s, focus);
    this.paintMs = performance.now() - begin;
    this.paintMap(c, d);
  }

  // What is not dimmed: the selected box and its neighbours.
  focusSet() {
    if (!this.selected) return null;
    const set = new Set([this.selected]);
    for (const e of this.layout.edges) {
      if (e.a === this.selected) set.add(e.b);
      if (e.b === this.selected) set.add(e.a);
    }
    const node = !this.selected.ref.group && this.graph.nodes[this.selected.ref.node];
    if (node && node.cluster >= 0)
      for (const i of this.graph.clusters[node.cluster].nodes) set.add(shown(this.graph.nodes[i], i, this.layout.byKey));
    return set;
  }

  paintGroup(it, c, s) {
    const ctx = this.ctx;
    ctx.globalAlpha = 1;
    rounded(ctx, it.ax, it.ay, it.w, it.h, 10);
    ctx.fillStyle = c.group;
    ctx.fill();
    ctx.lineWidth = it === this.selected ? 2 / Math.min(s, 1) : 1 / Math.max(s, 0.4);
    ctx.strokeStyle = it === this.selected ? c.accent : c.groupLine;
    ctx.stroke();
    const size = Math.min(34, Math.max(12, 11 / s));
    if (size * s < 7 || it.w * s < 40) return;
    ctx.font = `600 ${size}px system-ui, sans-serif`;
    ctx.fillStyle = c.soft;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'alphabetic';
    ctx.fillText(clipped(ctx, it.ref.name, it.w - 40), it.ax + 28, it.ay + Math.max(18, size + 4));
    this.paintToggle(it.ax + 8, it.ay + 7, false, c);
  }

  paintToggle(x, y, folded, c) {
    const ctx = this.ctx;
    rounded(ctx, x, y, 14, 14, 4);
    ctx.fillStyle = c.box;
    ctx.fill();
    ctx.lineWidth = 1;
    ctx.strokeStyle = c.groupLine;
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x + 4, y + 7);
    ctx.lineTo(x + 10, y + 7);
    if (folded) {
      ctx.moveTo(x + 7, y + 4);
      ctx.lineTo(x + 7, y + 10);
    }
    ctx.strokeStyle = c.soft;
    ctx.lineWidth = 1.4;
    ctx.stroke();
  }

  paintBox(it, c, s, focus) {
    const ctx = this.ctx, group = it.ref.group, node = group ? null : this.graph.nodes[it.ref.node];
    const hit = this.matches.has(it), dim = (focus && !focus.has(it)) || (this.matches.size && !hit && it !== this.selected);
    const color = this.fill(it, c), heatMode = this.mode === 'time' || this.mode === 'flops' || this.mode === 'bytes';
    ctx.globalAlpha = dim ? 0.38 : 1;
    const small = s < 0.22;
    if (small && !hit && it !== this.selected) {
      ctx.fillStyle = color;
      ctx.fillRect(it.ax, it.ay, it.w, it.h);
      ctx.globalAlpha = 1;
      return;
    }
    const radius = node && (node.kind === 'input' || node.kind === 'output') ? it.h / 2 : 8;
    if (group) {  // a pile
      rounded(ctx, it.ax + 4, it.ay + 4, it.w, it.h, radius);
      ctx.fillStyle = c.group;
      ctx.fill();
      ctx.strokeStyle = c.groupLine;
      ctx.lineWidth = 1;
      ctx.stroke();
    }
    rounded(ctx, it.ax, it.ay, it.w, it.h, radius);
    ctx.fillStyle = heatMode ? color : c.box;
    ctx.fill();
    if (!heatMode && !group && radius === 8) {
      ctx.save();
      ctx.clip();
      ctx.fillStyle = color;
      ctx.fillRect(it.ax, it.ay, 5, it.h);
      ctx.restore();
    }
    const strong = it === this.selected || it === this.hovered || hit;
    rounded(ctx, it.ax, it.ay, it.w, it.h, radius);
    if (hit || it === this.selected) {
      ctx.lineWidth = Math.max(3, 4 / s);
      ctx.strokeStyle = hit && it !== this.selected ? c.hit : c.accent;
    } else {
      ctx.lineWidth = strong ? 2 : 1;
      ctx.strokeStyle = strong ? c.accent : radius === 8 && !group ? c.border : color;
      if (node && node.kind === 'view') ctx.setLineDash([4, 3]);
    }
    ctx.stroke();
    ctx.setLineDash([]);
    if (s > 0.3) {
      const left = it.ax + (group ? 28 : 13), room = it.w - (group ? 36 : 20);
      ctx.textAlign = 'left';
      ctx.textBaseline = 'middle';
      ctx.fillStyle = c.text;
      ctx.font = '600 12px system-ui, sans-serif';
      const two = s > 0.45;
      const first = group ? it.ref.name : this.title(node);
      const second = group ? `${asCount(it.ref.all.length)} ops · ${asFlops(it.ref.sum.flops)}` : this.subtitle(node);
      ctx.fillText(clipped(ctx, first, room), left, it.ay + (two ? it.h / 2 - 8 : it.h / 2));
      if (two) {
        ctx.font = '11px system-ui, sans-serif';
        ctx.fillStyle = heatMode ? c.text : c.soft;
        ctx.fillText(clipped(ctx, second, room), left, it.ay + it.h / 2 + 9);
      }
      if (group) this.paintToggle(it.ax + 8, it.ay + it.h / 2 - 7, true, c);
      if (node && node.cluster >= 0 && this.mode !== 'cluster' && two) {
        ctx.beginPath();
        ctx.arc(it.ax + it.w - 10, it.ay + 10, 4, 0, 7);
        ctx.fillStyle = clusterColor(node.cluster, c.dark);
        ctx.fill();
      }
    }
    ctx.globalAlpha = 1;
  }

  paintEdges(c, s, sight, focus) {
    const ctx = this.ctx, far = s < 0.12;
    const path = e => {
      const p = e.points;
      ctx.moveTo(p[0][0], p[0][1]);
      for (let i = 1; i < p.length; ++i) {
        const [ax, ay] = p[i - 1], [bx, by] = p[i];
        if (far) ctx.lineTo(bx, by);
        else {
          const k = by > ay ? (by - ay) / 2 : Math.min(60, 20 + Math.abs(bx - ax) / 3);
          ctx.bezierCurveTo(ax, ay + k, bx, by - k, bx, by);
        }
      }
    };
    const batches = {plain: [], far: [], in: [], out: []};
    for (const e of this.layout.edges) {
      const b = e.box4;
      if (b[0] > sight[2] || b[2] < sight[0] || b[1] > sight[3] || b[3] < sight[1]) continue;
      const sel = this.selected, hov = this.hovered;
      if (e.b === sel || e.b === hov) batches.in.push(e);
      else if (e.a === sel || e.a === hov) batches.out.push(e);
      else (e.long ? batches.far : batches.plain).push(e);
    }
    const stroke = (list, color, width, alpha) => {
      if (!list.length) return;
      ctx.beginPath();
      for (const e of list) path(e);
      ctx.strokeStyle = color;
      ctx.lineWidth = width;
      ctx.globalAlpha = alpha;
      ctx.stroke();
      if (s < 0.3) return;
      ctx.fillStyle = color;
      ctx.beginPath();
      for (const e of list) {
        const [x, y] = e.points[e.points.length - 1];
        ctx.moveTo(x, y);
        ctx.lineTo(x - 3.5, y - 7);
        ctx.lineTo(x + 3.5, y - 7);
      }
      ctx.fill();
    };
    const thin = Math.max(1.1, 0.7 / s);
    stroke(batches.far, c.line, thin, focus || this.matches.size ? 0.08 : 0.22);
    stroke(batches.plain, c.line, thin, focus || this.matches.size ? 0.35 : 0.8);
    stroke(batches.in, c.accent, thin * 1.8, 1);
    stroke(batches.out, c.hit, thin * 1.8, 1);
    ctx.globalAlpha = 1;
  }

  // The whole drawing in a corner, with a frame around what is in sight.
  paintMap(c, d) {
    const L = this.layout, ctx = this.ctx;
    this.map = null;
    if (L.w * this.scale <= this.w * 1.02 && L.h * this.scale <= this.h * 1.02) return;
    const k = Math.min(150 / L.w, 210 / L.h), w = Math.max(L.w * k, 8), h = Math.max(L.h * k, 8);
    const x = this.w - w - 18, y = this.h - h - 18;
    this.map = {x, y, w, h, k};
    ctx.setTransform(d, 0, 0, d, 0, 0);
    ctx.globalAlpha = 0.93;
    rounded(ctx, x - 6, y - 6, w + 12, h + 12, 8);
    ctx.fillStyle = c.box;
    ctx.fill();
    ctx.strokeStyle = c.border;
    ctx.lineWidth = 1;
    ctx.stroke();
    ctx.globalAlpha = 1;
    for (const it of L.items) {
      if (it.children.length) continue;
      ctx.fillStyle = this.matches.has(it) ? c.hit : this.fill(it, c);
      ctx.fillRect(x + it.ax * k, y + it.ay * k, Math.max(1, it.w * k), Math.max(1, it.h * k));
    }
    const s = this.scale;
    ctx.strokeStyle = c.accent;
    ctx.lineWidth = 1.5;
    const fx = Math.max(x - 4, x - this.tx / s * k), fy = Math.max(y - 4, y - this.ty / s * k);
    const gx = Math.min(x + w + 4, x + (this.w - this.tx) / s * k), gy = Math.min(y + h + 4, y + (this.h - this.ty) / s * k);
    if (gx > fx && gy > fy) ctx.strokeRect(fx, fy, gx - fx, gy - fy);
  }

  // ---- moving about

  fit() {
    this.resize();
    const L = this.layout, s = Math.min(this.w / (L.w + 40), this.h / (L.h + 40), 1.15);
    this.scale = s;
    this.tx = (this.w - L.w * s) / 2;
    this.ty = (this.h - L.h * s) / 2;
    if (s < 0.3) {  // too much to read: begin where it begins
      this.scale = Math.max(s, Math.min(0.8, Math.max(0.45, this.w / (L.w + 60))));
      const first = this.layout.items.find(it => !it.children.length);
      this.tx = this.w / 2 - (first.ax + first.w / 2) * this.scale;
      this.ty = 40 - first.ay * this.scale;
    }
    this.draw();
  }
  whole() {
    this.resize();
    const L = this.layout, s = Math.min(this.w / (L.w + 40), this.h / (L.h + 40), 1.15);
    this.scale = s;
    this.tx = (this.w - L.w * s) / 2;
    this.ty = (this.h - L.h * s) / 2;
    this.draw();
  }
  zoom(factor, x = this.w / 2, y = this.h / 2) {
    const s = Math.min(4, Math.max(0.01, this.scale * factor)), k = s / this.scale;
    this.tx = x - (x - this.tx) * k;
    this.ty = y - (y - this.ty) * k;
    this.scale = s;
    this.draw();
  }
  center(item) {
    if (this.scale < 0.6) this.scale = 0.9;
    this.tx = this.w / 2 - (item.ax + item.w / 2) * this.scale;
    this.ty = this.h / 2 - (item.ay + item.h / 2) * this.scale;
    this.draw();
  }

  // Unfolds what is around the node, selects it and brings it into sight.
  goTo(i) {
    let changed = false;
    for (let g = this.graph.nodes[i].group; g; g = g.parent)
      if (g.folded && g.parent) {
        g.folded = false;
        changed = true;
      }
    if (changed) {
      this.relayout();
      this.remark();
    }
    this.select(this.layout.byKey.get('n' + i));
    this.center(this.selected);
  }
  mark(indices) {
    this.marked = indices;
    this.remark();
    this.draw();
  }
  remark() {
    this.matches = new Set((this.marked || []).map(i => shown(this.graph.nodes[i], i, this.layout.byKey)));
  }
  select(item) {
    this.selected = item;
    this.onSelect(item);
    this.draw();
  }
  toggle(group) {
    group.folded = !group.folded;
    const sel = this.selected && (this.selected.ref.group ? this.selected.ref : 'n' + this.selected.ref.node);
    this.selected = this.hovered = null;
    this.relayout(group);
    this.remark();
    const again = sel && this.layout.byKey.get(sel);
    if (again) this.select(again);
    if (this.onFold) this.onFold();
  }
  at(x, y) {
    const gx = (x - this.tx) / this.scale, gy = (y - this.ty) / this.scale, L = this.layout.items;
    for (let i = L.length - 1; i >= 0; --i) {
      const it = L[i];
      if (gx < it.ax || gx > it.ax + it.w || gy < it.ay || gy > it.ay + it.h) continue;
      const fold = it.ref.group && gx < it.ax + 26 && (!it.children.length || gy < it.ay + 26);
      return {item: it, fold};
    }
    return null;
  }
  // Where a node is on the page.
  place(i) {
    const it = shown(this.graph.nodes[i], i, this.layout.byKey), r = this.canvas.getBoundingClientRect();
    return [r.left + this.tx + (it.ax + it.w / 2) * this.scale, r.top + this.ty + (it.ay + it.h / 2) * this.scale];
  }

  bind() {
    const el = this.canvas;
    let drag = null;
    const local = e => {
      const r = el.getBoundingClientRect();
      return [e.clientX - r.left, e.clientY - r.top];
    };
    el.addEventListener('wheel', e => {
      e.preventDefault();
      const [x, y] = local(e);
      if (e.ctrlKey || !e.shiftKey) this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), x, y);
      else {
        this.tx -= e.deltaY;
        this.draw();
      }
    }, {passive: false});
    el.addEventListener('pointerdown', e => {
      const [x, y] = local(e);
      const m = this.map, inMap = m && x >= m.x - 6 && y >= m.y - 6 && x <= m.x + m.w + 6 && y <= m.y + m.h + 6;
      drag = {x, y, moved: false, map: inMap};
      if (inMap) this.mapTo(x, y);
      el.setPointerCapture(e.pointerId);
    });
    el.addEventListener('pointermove', e => {
      const [x, y] = local(e);
      if (drag && drag.map) return this.mapTo(x, y);
      if (drag) {
        if (Math.hypot(x - drag.x, y - drag.y) > 3) drag.moved = true;
        if (drag.moved) {
          this.tx += e.movementX;
          this.ty += e.movementY;
          el.style.cursor = 'grabbing';
          this.draw();
        }
        return;
      }
      const hit = this.layout && this.at(x, y), item = hit && !hit.item.children.length ? hit.item : null;
      el.style.cursor = item || (hit && hit.fold) ? 'pointer' : 'grab';
      if (item !== this.hovered) {
        this.hovered = item;
        this.draw();
      }
    });
    el.addEventListener('pointerup', e => {
      const [x, y] = local(e), was = drag;
      drag = null;
      if (!was || was.moved || was.map) return;
      const hit = this.at(x, y);
      if (!hit) return this.select(null);
      if (hit.fold) return this.toggle(hit.item.ref);
      this.select(hit.item);
    });
    el.addEventListener('dblclick', e => {
      const hit = this.at(...local(e));
      if (hit && hit.item.ref.group) this.toggle(hit.item.ref);
    });
    new ResizeObserver(() => this.draw()).observe(el);
  }
  mapTo(x, y) {
    const m = this.map;
    if (!m) return;
    this.tx = this.w / 2 - (x - m.x) / m.k * this.scale;
    this.ty = this.h / 2 - (y - m.y) / m.k * this.scale;
    this.draw();
  }
}

function rounded(ctx, x, y, w, h, r) {
  ctx.beginPath();
  ctx.roundRect(x, y, w, h, Math.min(r, h / 2, w / 2));
}
const clips = new Map();
function clipped(ctx, text, room) {
  const key = ctx.font + '|' + Math.round(room) + '|' + text;
  let out = clips.get(key);
  if (out != null) return out;
  out = text;
  if (ctx.measureText(text).width > room) {
    let n = text.length;
    while (n > 1 && ctx.measureText(text.slice(0, n) + '…').width > room) --n;
    out = text.slice(0, n) + '…';
  }
  if (clips.size > 20000) clips.clear();
  clips.set(key, out);
  return out;
}
