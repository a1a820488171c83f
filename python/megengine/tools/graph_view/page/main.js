// Puts the page together.
'use strict';

class App {
  constructor(data) {
    this.data = data;
    document.title = data.title;
    $('title').textContent = data.title;
    this.pane = new GraphPane($('graph'), item => this.onSelect(item));
    this.pane.onFold = () => this.tree();
    this.memory = new MemoryPane($('memory'), $('tip'), b => this.buffer(b));
    for (const [name, g] of Object.entries(data.views)) if (g) prepare(g, name === 'run');
    if (data.views.run) this.clusters();
    this.bind();
    this.facts();
    this.setTab('graph');
    this.setView('written');
    if (data.memory) this.memory.show(data.memory, data.views.run);
  }
  get graph() { return this.data.views[this.view]; }
  totals() { return this.pane.root.sum; }

  // Ops of the one graph that became one kernel of the other.
  clusters() {
    const {written, run} = this.data.views;
    written.clusters = [];
    run.clusters = [];
    for (const c of this.data.fused || []) {
      c.text = run.nodes[c.node].steps ? stepText(run.nodes[c.node]) : c.members.map(i => written.nodes[i].op).join(' → ');
      for (const [g, nodes] of [[written, c.members], [run, [c.node]]]) {
        for (const i of nodes) g.nodes[i].cluster = g.clusters.length;
        g.clusters.push({nodes});
      }
    }
  }

  facts() {
    const d = this.data, s = d.summary, list = [];
    const fact = (value, what) => list.push(`<span><b>${value}</b> ${what}</span>`);
    fact(asCount(s.ops), 'ops');
    if (s.params) fact(asCount(s.params), `parameters${s.state ? ' and state' : ''}, ${asBytes(s.param_bytes)}`);
    fact(asFlops(s.flops), 'a run');
    if (s.instructions) fact(asCount(s.instructions), 'instructions');
    if (d.memory) fact(asBytes(d.memory.arena), `arena${d.memory.lower ? `, ${(d.memory.arena / d.memory.lower).toFixed(2)}× the lower bound` : ''}`);
    if (s.time) fact(asTime(s.time), `measured${s.runs > 1 ? `, mean of ${s.runs} runs` : ''}`);
    if (s.source) list.push(`<span>${escapeHtml(s.source)}</span>`);
    $('facts').innerHTML = list.join('');
    const m = d.memory;
    $('memory-say').innerHTML = m ? `Everything a run computes lives in one arena of <b>${asBytes(m.arena)}</b>, laid out before it starts by <b>${escapeHtml(m.strategy || 'the planner')}</b>. ` +
      `Without sharing it would take <b>${asBytes(m.sum)}</b>; no plan can do with less than <b>${asBytes(m.lower)}</b>. Constants take ${asBytes(m.consts)}, results ${asBytes(m.outputs)}.` : '';
  }

  // ---- what is shown

  setTab(tab) {
    this.tab = tab;
    $('results').hidden = true;
    const tabs = [['graph', 'Graph'], ['memory', 'Memory'], ['ops', 'Operations'], ['fusion', 'Fusion']];
    $('tabs').innerHTML = tabs.map(([id, title]) => `<button role="tab" id="tab-${id}" aria-selected="${id === tab}" data-tab="${id}">${title}</button>`).join('');
    for (const [id] of tabs) $('pane-' + id).hidden = id !== tab;
    if (tab === 'memory') {
      if (this.data.memory) this.memory.paint();
      else $('memory-say').textContent = this.data.why || 'There is no compiled program, so there is no memory plan to show.';
    }
    if (tab === 'ops') $('pane-ops').innerHTML = opsTables(this, this.sort);
    if (tab === 'fusion') $('pane-fusion').innerHTML = fusionCards(this);
    if (tab === 'graph') this.pane.draw();
  }

  setView(view) {
    this.view = view;
    const g = this.graph;
    if (!g.tree) {
      g.tree = buildTree(g);
      g.groupList = [];
      eachGroup(g.tree, x => g.groupList.push(x));
      foldToFit(g.tree, 90);
    }
    document.body.classList.toggle('flat', !g.tree.groups.length);
    this.pane.show(g, g.tree);
    const has = this.data.views.run;
    $('views').innerHTML = has ? [['written', 'As written'], ['run', 'As it runs']].map(([id, t]) => `<button id="view-${id}" aria-pressed="${id === view}" data-view="${id}">${t}</button>`).join('') : '';
    $('folds').innerHTML = g.groupList.length ? '<button id="fold-all">Fold all</button><button id="fold-none">Unfold all</button>' : '';
    const t = this.totals(), modes = [['kind', 'kind of op'], ['time', 'measured time', t.time], ['flops', 'operations', t.flops], ['bytes', 'memory moved', t.bytes], ['cluster', 'fused clusters', g.clusters && g.clusters.length]];
    $('mode').innerHTML = modes.filter(m => m.length === 2 || m[2]).map(([id, text]) => `<option value="${id}">${text}</option>`).join('');
    $('mode').value = this.pane.mode = modes.some(m => m[0] === this.pane.mode && (m.length === 2 || m[2])) ? this.pane.mode : 'kind';
    this.legend();
    this.tree();
    this.onSelect(null);
    this.search($('search').value);
  }

  groupNumber(g) { return this.graph.groupList.indexOf(g); }
  tree() {
    $('outline').innerHTML = outline(this);
    document.body.classList.toggle('flat', !this.pane.root.groups.length);
  }

  foldAll(folded) {
    for (const g of this.graph.groupList) g.folded = folded;
    this.pane.selected = null;
    this.pane.relayout();
    this.pane.remark();
    this.pane.fit();
    this.tree();
  }

  legend() {
    const mode = this.pane.mode, dark = this.pane.dark.matches;
    if (mode === 'kind') {
      const seen = [...new Set(this.graph.nodes.map(n => n.kindName))];
      $('legend').innerHTML = seen.map(k => `<span><i style="background:${kindColor(k, dark)}"></i>${kindTitle(k)}</span>`).join('');
    } else if (mode === 'cluster') {
      $('legend').innerHTML = '<span>Boxes of one colour run as one kernel.</span>';
    } else {
      const stops = [0, 0.25, 0.5, 0.75, 1].map(t => heat(t, dark)).join(',');
      const f = {time: asTime, flops: asFlops, bytes: asBytes}[mode];
      $('legend').innerHTML = `<span class="ramp" style="background:linear-gradient(90deg,${stops})"></span><span>0 to ${f(this.pane.most[mode])}</span>`;
    }
  }

  onSelect(item) {
    $('details').innerHTML = !item ? overview(this) : item.ref.group ? groupDetails(this, item.ref) : nodeDetails(this, item.ref.node);
    $('details').scrollTop = 0;
    for (const el of document.querySelectorAll('#outline div.now')) el.classList.remove('now');
    if (item && item.ref.group) {
      const el = document.querySelector(`#outline div[data-group="${this.groupNumber(item.ref)}"]`);
      if (el) el.classList.add('now');
    }
  }
  buffer(b) { $('details').innerHTML = b ? bufferDetails(this, b) : overview(this); }

  goTo(i, view) {
    if (view && view !== this.view) this.setView(view);
    if (this.tab !== 'graph') this.setTab('graph');
    this.pane.goTo(i);
    this.tree();
  }

  // ---- search

  search(text) {
    text = text.trim().toLowerCase();
    const words = text.split(/\s+/).filter(Boolean), g = this.graph;
    this.found = !words.length ? [] : g.nodes.map((n, i) => i).filter(i => words.every(w => g.nodes[i].haystack.includes(w)));
    // An op of that very name comes first.
    this.found.sort((a, b) => (g.nodes[b].op === text) - (g.nodes[a].op === text) || a - b);
    this.at = -1;
    this.pane.mark(this.found);
    $('count').textContent = words.length ? this.found.length ? asCount(this.found.length) : 'none' : '';
    this.results(words.length > 0);
  }
  results(open) {
    const g = this.graph, dark = this.pane.dark.matches, from = Math.max(0, Math.min(this.at - 10, this.found.length - 60));
    $('results').hidden = !open || !this.found.length;
    $('results').innerHTML = this.found.slice(from, from + 60).map((i, k) => {
      const n = g.nodes[i];
      return `<li data-hit="${from + k}" class="${from + k === this.at ? 'now' : ''}"><i style="background:${kindColor(n.kindName, dark)}"></i><span>${escapeHtml(this.pane.title(n))} <span class="quiet">${escapeHtml(this.pane.subtitle(n))}</span></span>` +
        `<small>${escapeHtml([n.scope, n.name !== n.op && !unnamed(n.name) ? n.name : '', asLine(n)].filter(Boolean).join(' · '))}</small></li>`;
    }).join('');
    const now = $('results').querySelector('.now');
    if (now) now.scrollIntoView({block: 'nearest'});
  }
  hit(k) {
    if (!this.found.length) return;
    this.at = (k + this.found.length) % this.found.length;
    if (this.tab !== 'graph') this.setTab('graph');
    this.pane.goTo(this.found[this.at]);
    this.tree();
    $('count').textContent = `${this.at + 1} of ${asCount(this.found.length)}`;
    this.results(true);
  }

  // ---- events

  bind() {
    document.addEventListener('click', e => {
      const el = e.target.closest('[data-tab],[data-view],[data-node],[data-run],[data-buffer],[data-fold],[data-group],[data-twist],[data-sort],[data-search],[data-hit],[data-cluster]');
      if (!e.target.closest('#searchbox')) $('results').hidden = true;
      if (!el) return;
      const d = el.dataset;
      if (d.tab) this.setTab(d.tab);
      else if (d.view) this.setView(d.view);
      else if (d.twist) this.pane.toggle(this.graph.groupList[d.twist]);
      else if (d.group) this.showGroup(this.graph.groupList[d.group]);
      else if (d.node) this.goTo(+d.node);
      else if (d.run) this.goTo(+d.run, this.data.views.run ? 'run' : this.view);
      else if (d.fold) this.pane.toggle(this.pane.selected.ref);
      else if (d.buffer) {
        this.setTab('memory');
        this.memory.select(this.data.memory.buffers[d.buffer]);
      } else if (d.sort) {
        this.sort = d.sort;
        $('pane-ops').innerHTML = opsTables(this, this.sort);
      } else if (d.search) {
        $('search').value = d.search;
        this.setTab('graph');
        this.search(d.search);
      } else if (d.hit) this.hit(+d.hit);
      else if (d.cluster) {
        const c = this.data.fused[d.cluster];
        if (c.members.length) {
          this.goTo(c.members[0], 'written');
          this.pane.mode = $('mode').value = 'cluster';
          this.legend();
        } else this.goTo(c.node, 'run');
      }
    });
    $('search').addEventListener('input', e => this.search(e.target.value));
    $('search').addEventListener('focus', () => this.results($('search').value.trim() !== ''));
    $('search').addEventListener('keydown', e => {
      if (e.key === 'Enter' || e.key === 'ArrowDown') this.hit(this.at + (e.shiftKey ? -1 : 1));
      else if (e.key === 'ArrowUp') this.hit(this.at - 1);
      else if (e.key === 'Escape') {
        $('search').value = '';
        this.search('');
        $('graph').focus();
      } else return;
      e.preventDefault();
    });
    document.addEventListener('keydown', e => {
      if (e.target.matches('input, select') || e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.key === '/') $('search').focus();
      else if (e.key === 'f') this.pane.whole();
      else if (e.key === '+' || e.key === '=') this.pane.zoom(1.25);
      else if (e.key === '-') this.pane.zoom(0.8);
      else if (e.key === 'Escape') this.pane.select(null);
      else if (e.key.startsWith('Arrow')) {
        const k = 80;
        this.pane.tx += e.key === 'ArrowLeft' ? k : e.key === 'ArrowRight' ? -k : 0;
        this.pane.ty += e.key === 'ArrowUp' ? k : e.key === 'ArrowDown' ? -k : 0;
        this.pane.draw();
      } else return;
      e.preventDefault();
    });
    $('mode').addEventListener('change', e => {
      this.pane.mode = e.target.value;
      this.legend();
      this.pane.draw();
    });
    $('zoom-in').onclick = () => this.pane.zoom(1.3);
    $('zoom-out').onclick = () => this.pane.zoom(1 / 1.3);
    $('zoom-fit').onclick = () => this.pane.whole();
    $('folds').addEventListener('click', e => {
      if (e.target.id) this.foldAll(e.target.id === 'fold-all');
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.legend());
  }
  showGroup(g) {
    for (let p = g.parent; p && p.parent; p = p.parent) p.folded = false;
    this.pane.relayout();
    this.pane.remark();
    const item = this.pane.layout.byKey.get(g);
    this.pane.select(item);
    this.pane.center(item);
    this.tree();
  }
}

// What the drawing needs of a graph beside the data: edges, users, text to search in.
function prepare(g, kernels) {
  g.clusters = [];
  g.edges = [];
  for (const v of g.values) {
    v.users = [];
    v.producer = -1;
  }
  g.nodes.forEach((n, i) => {
    for (const v of n.outs) g.values[v].producer = i;
  });
  g.nodes.forEach((n, i) => {
    n.cluster = -1;
    n.kindName = kindOf(n);
    for (const v of new Set(n.ins)) {
      g.values[v].users.push(i);
      if (g.values[v].producer >= 0) g.edges.push([g.values[v].producer, i]);
    }
    const shapes = [...n.ins, ...n.outs].map(v => asTensor(g.values[v]) + ' ' + g.values[v].dtype + ' ' + g.values[v].name + ' ' + g.values[v].shape.join(','));
    n.haystack = [n.op, n.name, n.scope, n.file ? lastOf(n.file) + ':' + n.line : '', n.func, kernels ? n.kernel : '', n.back ? 'backward' : '', ...shapes].join(' ').toLowerCase();
  });
}

const $ = id => document.getElementById(id);
window.graphView = new App(JSON.parse($('data').textContent));
document.documentElement.dataset.ready = '1';
