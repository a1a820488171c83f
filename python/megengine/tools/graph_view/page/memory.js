// The memory plan: one rectangle for each buffer, from its first instruction to its last and over its addresses; below,
// the bytes that are alive at each instruction.
'use strict';

const BUFFER_KINDS = {arena: 'intermediate', workspace: 'workspace of a kernel'};

class MemoryPane {
  constructor(canvas, tip, onSelect) {
    this.canvas = canvas;
    this.ctx = canvas.getContext('2d');
    this.tip = tip;
    this.onSelect = onSelect;
    this.selected = this.hovered = null;
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.dark.addEventListener('change', () => this.paint());
    this.bind();
  }

  show(memory, graph) {
    this.memory = memory;
    this.graph = graph;
    this.n = Math.max(memory.steps.length, 1);
    this.bytes = Math.max(memory.arena, 1);
    const live = new Float64Array(this.n + 2);
    for (const b of memory.buffers) {
      live[Math.max(b.first, 0)] += b.bytes;
      live[Math.min(b.last, this.n - 1) + 1] -= b.bytes;
    }
    for (let i = 1; i <= this.n; ++i) live[i] += live[i - 1];
    this.live = live;
    this.home();
  }
  home() {
    this.x0 = 0;
    this.x1 = this.n;
    this.y0 = 0;
    this.y1 = this.bytes * 1.04;
    this.paint();
  }

  size() {
    const r = this.canvas.getBoundingClientRect(), d = devicePixelRatio || 1;
    this.canvas.width = Math.round(r.width * d);
    this.canvas.height = Math.round(r.height * d);
    this.w = r.width;
    this.h = r.height;
    this.left = 84;
    this.right = 18;
    this.bottom = Math.max(90, this.h * 0.2);  // the curve
    this.top = 22;
    this.base = this.h - this.bottom - 34;  // of the rectangles
    return d;
  }
  px(t) { return this.left + (t - this.x0) / (this.x1 - this.x0) * (this.w - this.left - this.right); }
  py(a) { return this.base - (a - this.y0) / (this.y1 - this.y0) * (this.base - this.top); }

  color(b, c) {
    if (b.kind === 'workspace') return c.border;
    const node = b.node >= 0 ? this.graph.nodes[b.node] : null;
    return node ? kindColor(node.kindName, c.dark) : c.soft;
  }

  paint() {
    if (!this.memory || !this.canvas.offsetParent) return;
    const d = this.size(), ctx = this.ctx, c = GraphPane.prototype.colors.call(this);
    ctx.setTransform(d, 0, 0, d, 0, 0);
    ctx.fillStyle = c.back;
    ctx.fillRect(0, 0, this.w, this.h);
    this.axes(c);
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.left, this.top, this.w - this.left - this.right, this.base - this.top);
    ctx.clip();
    for (const b of this.memory.buffers) this.rectangle(b, c);
    for (const b of [this.hovered, this.selected]) if (b) this.rectangle(b, c, true);
    ctx.setLineDash([6, 4]);
    for (const [bytes, label] of [[this.memory.lower, 'most alive at once (lower bound)'], [this.memory.arena, 'arena']]) {
      const y = this.py(bytes);
      ctx.strokeStyle = c.hit;
      ctx.lineWidth = 1;
      ctx.beginPath();
      ctx.moveTo(this.left, y);
      ctx.lineTo(this.w, y);
      ctx.stroke();
      if (label === 'arena' || this.memory.arena - this.memory.lower > (this.y1 - this.y0) * 0.05) {
        ctx.font = '11px system-ui, sans-serif';
        ctx.fillStyle = c.hit;
        ctx.textAlign = 'right';
        ctx.fillText(label, this.w - this.right - 4, y - 4);
      }
    }
    ctx.setLineDash([]);
    ctx.restore();
    this.curve(c);
  }

  axes(c) {
    const ctx = this.ctx;
    ctx.font = '11px system-ui, sans-serif';
    ctx.fillStyle = c.soft;
    ctx.strokeStyle = c.grid || c.groupLine;
    ctx.lineWidth = 1;
    ctx.textAlign = 'right';
    ctx.textBaseline = 'middle';
    const step = niceBytes((this.y1 - this.y0) / 6);
    for (let a = Math.ceil(this.y0 / step) * step; a <= this.y1; a += step) {
      const y = this.py(a);
      ctx.globalAlpha = 0.4;
      ctx.beginPath();
      ctx.moveTo(this.left, y);
      ctx.lineTo(this.w - this.right, y);
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.fillText(asBytes(a), this.left - 8, y);
    }
    ctx.textAlign = 'center';
    const jump = Math.max(1, niceNumber((this.x1 - this.x0) / 10));
    for (let t = Math.ceil(this.x0 / jump) * jump; t <= this.x1; t += jump) ctx.fillText(String(t), this.px(t), this.base + 14);
    ctx.textAlign = 'left';
    ctx.fillText('address', 10, this.top - 10);
    ctx.fillText('instruction →', this.left, this.h - 8);
  }

  rectangle(b, c, strong) {
    const x = this.px(Math.max(b.first, 0)), y = this.py(b.address + b.bytes);
    const w = Math.max(1.5, this.px(Math.min(b.last + 1, this.n)) - x), h = Math.max(1, this.py(b.address) - y);
    if (x > this.w || x + w < this.left || y > this.base || y + h < this.top) return;
    const ctx = this.ctx;
    ctx.globalAlpha = strong ? 1 : this.selected && this.selected !== b ? 0.35 : 0.78;
    ctx.fillStyle = this.color(b, c);
    ctx.fillRect(x, y, w, h);
    ctx.globalAlpha = 1;
    if (w > 3 && h > 3) {
      ctx.strokeStyle = strong ? c.text : c.back;
      ctx.lineWidth = strong ? 2 : 1;
      ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    }
    if (w > 54 && h > 14) {
      ctx.fillStyle = c.dark ? '#0d1117' : '#fff';
      ctx.font = '11px system-ui, sans-serif';
      ctx.textAlign = 'left';
      ctx.textBaseline = 'middle';
      ctx.fillText(clipped(ctx, b.label, w - 10), x + 6, y + h / 2 - (h > 30 ? 7 : 0));
      if (h > 30) ctx.fillText(clipped(ctx, asBytes(b.bytes), w - 10), x + 6, y + h / 2 + 8);
    }
  }

  curve(c) {
    const ctx = this.ctx, top = this.h - this.bottom, base = this.h - 22, most = Math.max(...this.live, 1);
    const y = v => base - v / most * (base - top - 8);
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.left, top - 4, this.w - this.left - this.right, this.bottom);
    ctx.clip();
    ctx.beginPath();
    ctx.moveTo(this.px(0), base);
    for (let t = 0; t < this.n; ++t) {
      ctx.lineTo(this.px(t), y(this.live[t]));
      ctx.lineTo(this.px(t + 1), y(this.live[t]));
    }
    ctx.lineTo(this.px(this.n), base);
    ctx.closePath();
    ctx.fillStyle = c.accent;
    ctx.globalAlpha = 0.25;
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.strokeStyle = c.accent;
    ctx.lineWidth = 1.5;
    ctx.stroke();
    ctx.restore();
    ctx.fillStyle = c.soft;
    ctx.font = '11px system-ui, sans-serif';
    ctx.textAlign = 'right';
    ctx.textBaseline = 'middle';
    ctx.fillText(asBytes(most), this.left - 8, top + 8);
    ctx.fillText('alive', this.left - 8, base - 4);
  }

  at(x, y) {
    if (y > this.base || y < this.top || x < this.left) return null;
    const t = this.x0 + (x - this.left) / (this.w - this.left - this.right) * (this.x1 - this.x0);
    const a = this.y0 + (this.base - y) / (this.base - this.top) * (this.y1 - this.y0);
    let best = null;
    for (const b of this.memory.buffers)
      if (t >= Math.max(b.first, 0) && t < b.last + 1 && a >= b.address && a < b.address + b.bytes)
        if (!best || b.bytes < best.bytes) best = b;
    return best;
  }
  select(b) {
    this.selected = b;
    this.paint();
    this.onSelect(b);
  }
  place(k) {  // of a buffer, on the page
    const b = this.memory.buffers[k], r = this.canvas.getBoundingClientRect();
    return [r.left + (this.px(Math.max(b.first, 0)) + this.px(Math.min(b.last + 1, this.n))) / 2,
            r.top + (this.py(b.address) + this.py(b.address + b.bytes)) / 2];
  }

  bind() {
    const el = this.canvas, local = e => {
      const r = el.getBoundingClientRect();
      return [e.clientX - r.left, e.clientY - r.top];
    };
    let drag = null;
    const limit = () => {
      const w = Math.min(this.x1 - this.x0, this.n), h = Math.min(this.y1 - this.y0, this.bytes * 1.04);
      this.x0 = Math.max(0, Math.min(this.x0, this.n - w));
      this.x1 = this.x0 + w;
      this.y0 = Math.max(0, Math.min(this.y0, this.bytes * 1.04 - h));
      this.y1 = this.y0 + h;
    };
    el.addEventListener('wheel', e => {
      e.preventDefault();
      const [x, y] = local(e), k = Math.exp(e.deltaY * 0.0015);
      const fx = (x - this.left) / (this.w - this.left - this.right), fy = (this.base - y) / (this.base - this.top);
      const t = this.x0 + fx * (this.x1 - this.x0), a = this.y0 + fy * (this.y1 - this.y0);
      const w = Math.max(4, (this.x1 - this.x0) * k), h = Math.max(256, (this.y1 - this.y0) * k);
      this.x0 = t - fx * w;
      this.x1 = this.x0 + w;
      if (e.shiftKey || this.y1 - this.y0 < this.bytes * 1.04 || k < 1) {
        this.y0 = a - fy * h;
        this.y1 = this.y0 + h;
      }
      limit();
      this.paint();
    }, {passive: false});
    el.addEventListener('pointerdown', e => {
      drag = {at: local(e), x0: this.x0, y0: this.y0, moved: false};
      el.setPointerCapture(e.pointerId);
    });
    el.addEventListener('pointermove', e => {
      const [x, y] = local(e);
      if (drag) {
        const dx = x - drag.at[0], dy = y - drag.at[1], w = this.x1 - this.x0, h = this.y1 - this.y0;
        if (Math.hypot(dx, dy) > 3) drag.moved = true;
        this.x0 = drag.x0 - dx / (this.w - this.left - this.right) * w;
        this.y0 = drag.y0 + dy / (this.base - this.top) * h;
        this.x1 = this.x0 + w;
        this.y1 = this.y0 + h;
        limit();
        return this.paint();
      }
      const b = this.at(x, y);
      if (b !== this.hovered) {
        this.hovered = b;
        this.paint();
      }
      this.tip.hidden = !b;
      if (b) {
        this.tip.innerHTML = `<b>${escapeHtml(b.label)}</b><br>${asBytes(b.bytes)} at ${asBytes(b.address)}<br>` +
          `instructions ${Math.max(b.first, 0)} to ${Math.min(b.last, this.n - 1)}<br>${BUFFER_KINDS[b.kind] || b.kind}`;
        this.tip.style.left = Math.min(x + 14, this.w - 220) + 'px';
        this.tip.style.top = Math.min(y + 14, this.h - 90) + 'px';
      }
    });
    el.addEventListener('pointerleave', () => {
      this.tip.hidden = true;
      this.hovered = null;
      this.paint();
    });
    el.addEventListener('pointerup', e => {
      const was = drag;
      drag = null;
      if (was && !was.moved) this.select(this.at(...local(e)));
    });
    el.addEventListener('dblclick', () => this.home());
    new ResizeObserver(() => this.paint()).observe(el);
  }
}

function niceNumber(n) {
  const p = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 5, 10].map(k => k * p).find(k => k >= n) || 10 * p;
}
function niceBytes(n) {
  const p = 1024 ** Math.floor(Math.log(Math.max(n, 1)) / Math.log(1024));
  return [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].map(k => k * p).find(k => k >= n) || n;
}
