// What stands beside the drawing: details of what is selected, the tree of modules, tables of costs, fused clusters.
'use strict';

const tag = (text, color) => `<span class="tag" style="background:${color}">${escapeHtml(text)}</span>`;
const row = (name, value) => value === '' || value == null ? '' : `<dt>${escapeHtml(name)}</dt><dd>${value}</dd>`;

function nodeLink(graph, i) {
  const n = graph.nodes[i];
  return `<a class="go" data-node="${i}">${escapeHtml(n.kind === 'input' || n.kind === 'output' ? n.name : n.op)}</a>`;
}

function valueItem(graph, v, role) {
  const x = graph.values[v];
  const from = role === 'in' ? (x.producer >= 0 ? 'from ' + nodeLink(graph, x.producer) : escapeHtml({const: 'constant', var: 'state'}[x.kind] || x.kind)) :
    x.users.length ? 'to ' + x.users.slice(0, 6).map(u => nodeLink(graph, u)).join(', ') + (x.users.length > 6 ? ' …' : '') : '<span class="quiet">not read</span>';
  return `<li><span class="mono">${escapeHtml(asTensor(x))}</span> <span class="quiet">${asBytes(x.bytes)}</span><br>` +
    `<span class="quiet">${unnamed(x.name) ? '' : escapeHtml(x.name)}</span> ${from}</li>`;
}

function costRows(sum, total, bytes) {
  const measured = sum.time > 0;
  const share = measured && total.time ? sum.time / total.time : total.est ? sum.est / total.est : 0;
  const seconds = measured ? sum.time : 0;
  return row('Measured', measured ? `<b>${asTime(sum.time)}</b> <span class="quiet">${asPercent(share)} of the run</span>` : '') +
    row('Estimated', sum.est ? asTime(sum.est) + (measured ? '' : ` <span class="quiet">${asPercent(share)}</span>`) : '') +
    row('Operations', asFlops(sum.flops) + (seconds ? ` <span class="quiet">${scaled(sum.flops / seconds, ['FLOP/s', 'kFLOP/s', 'MFLOP/s', 'GFLOP/s', 'TFLOP/s'], 1000)}</span>` : '')) +
    row('Memory moved', asBytes(sum.bytes) + (seconds ? ` <span class="quiet">${asBytes(sum.bytes / seconds)}/s</span>` : ''));
}

function nodeDetails(app, i) {
  const graph = app.graph, n = graph.nodes[i], dark = app.pane.dark.matches;
  let html = `<h2>${escapeHtml(n.kind === 'input' || n.kind === 'output' ? n.name : n.op)}</h2>` +
    `<p style="margin:4px 0 10px">${tag(kindTitle(n.kindName), kindColor(n.kindName, dark))}` +
    (n.kind === 'view' ? tag('view: no work', '#6b7785') : '') + (n.back ? tag('backward', '#8a5a00') : '') +
    (n.gone ? tag('not run: folded or merged', '#6b7785') : '') + '</p><dl>' +
    row('Name', n.name !== n.op && !unnamed(n.name) ? `<span class="mono">${escapeHtml(n.name)}</span>` : '') +
    row('Module', n.scope ? `<span class="mono">${escapeHtml(n.scope)}</span>` : '') +
    row('Line', n.file ? `<span class="mono" title="${escapeHtml(n.file)}">${escapeHtml(lastOf(n.file))}:${n.line}</span>` +
      (n.func ? ` <span class="quiet">in ${escapeHtml(n.func)}</span>` : '') : '<span class="quiet">not recorded</span>') +
    row('Kernel', n.kernel ? `<span class="mono">${escapeHtml(n.kernel)}</span>` : '') +
    row('Instruction', n.instr >= 0 ? String(n.instr) : '') + '</dl>';
  if (n.ins.length) html += `<h3>Inputs</h3><ul class="tensors">${n.ins.map(v => valueItem(graph, v, 'in')).join('')}</ul>`;
  if (n.outs.length) html += `<h3>Results</h3><ul class="tensors">${n.outs.map(v => valueItem(graph, v, 'out')).join('')}</ul>`;
  if (n.kind !== 'input' && n.kind !== 'output')
    html += `<h3>Cost</h3><dl>${costRows({time: n.time || 0, est: n.est || 0, flops: n.flops || 0, bytes: n.bytes || 0}, app.totals())}</dl>`;
  if (n.cluster >= 0) html += '<h3>Runs as one kernel with</h3>' + clusterMembers(app, n.cluster, i);
  if (n.steps) html += `<h3>Steps inside</h3><pre class="mono" style="margin:0;white-space:pre-wrap">${escapeHtml(stepText(n))}</pre>`;
  const attrs = Object.entries(n.attrs || {});
  if (attrs.length)
    html += `<h3>Attributes</h3><dl>${attrs.map(([k, v]) => row(k, `<span class="mono">${escapeHtml(Array.isArray(v) ? '[' + v.join(', ') + ']' : v)}</span>`)).join('')}</dl>`;
  const chunk = n.outs.map(v => graph.values[v].buffer).find(b => b != null && b >= 0);
  if (chunk != null) {
    const b = app.data.memory.buffers[chunk];
    html += `<h3>Memory</h3><dl>${row('Address', asBytes(b.address))}${row('Size', asBytes(b.bytes))}` +
      `${row('Alive', `instructions ${Math.max(b.first, 0)} to ${b.last}`)}</dl><p><a class="go" data-buffer="${chunk}">Show in the memory plan</a></p>`;
  }
  return html;
}

const stepText = n => n.steps.map((s, k) => `t${k} = ${s.op}(${s.args.join(', ')})`).join('\n') +
  (n.results && n.results.length ? '\n→ ' + n.results.join(', ') : '');

function clusterMembers(app, c, but) {
  const list = app.graph.clusters[c].nodes.filter(i => i !== but);
  return `<ul class="tensors">${list.slice(0, 40).map(i => `<li>${nodeLink(app.graph, i)} <span class="quiet">${escapeHtml(app.graph.nodes[i].scope || asLine(app.graph.nodes[i]))}</span></li>`).join('')}</ul>`;
}

function groupDetails(app, g) {
  const ops = new Map();
  for (const i of g.all) {
    const n = app.graph.nodes[i];
    const o = ops.get(n.op) || {op: n.op, n: 0, flops: 0};
    o.n += 1;
    o.flops += n.flops || 0;
    ops.set(n.op, o);
  }
  const list = [...ops.values()].sort((a, b) => b.flops - a.flops || b.n - a.n);
  return `<h2>${escapeHtml(g.name)}</h2><p class="quiet mono" style="margin:2px 0 8px">${escapeHtml(g.path)}</p>` +
    `<dl>${row('Ops', asCount(g.all.length))}${row('Modules inside', g.groups.length ? asCount(g.groups.length) : '')}</dl>` +
    `<h3>Cost</h3><dl>${costRows(g.sum, app.totals())}</dl><p><a class="go" data-fold="1">${g.folded ? 'Unfold' : 'Fold'}</a></p>` +
    `<h3>Ops</h3><table><tbody>${list.slice(0, 30).map(o => `<tr><td>${escapeHtml(o.op)}</td><td class="n">${o.n}</td><td class="n">${asFlops(o.flops)}</td></tr>`).join('')}</tbody></table>`;
}

function bufferDetails(app, b) {
  const n = b.node >= 0 ? app.data.views.run.nodes[b.node] : null;
  return `<h2>${escapeHtml(b.label)}</h2><p class="quiet" style="margin:2px 0 10px">${escapeHtml(BUFFER_KINDS[b.kind] || b.kind)}</p><dl>` +
    row('Size', asBytes(b.bytes)) + row('Address', `${asCount(b.address)} <span class="quiet">${asBytes(b.address)}</span>`) +
    row('Alive', `instructions ${Math.max(b.first, 0)} to ${b.last}`) + row('Steps', asCount(b.last - Math.max(b.first, 0) + 1)) + '</dl>' +
    (b.values.length ? `<h3>${b.values.length > 1 ? 'Values that lie in it, one after the other or as views' : 'Holds'}</h3><ul class="tensors">${b.values.slice(0, 30).map(v => `<li><span class="mono">${escapeHtml(v.type)}</span> <span class="quiet">${escapeHtml(v.name)}</span></li>`).join('')}</ul>` : '') +
    (n ? `<h3>Made by</h3><p>${escapeHtml(n.op)} <span class="quiet">${escapeHtml(n.scope || '')} ${escapeHtml(asLine(n))}</span></p><p><a class="go" data-run="${b.node}">Show in the graph</a></p>` : '');
}

function overview(app) {
  const g = app.graph, dark = app.pane.dark.matches, timed = app.totals().time > 0, kinds = new Map();
  for (const n of g.nodes) {
    const k = kinds.get(n.kindName) || {n: 0, flops: 0, time: 0};
    k.n += 1;
    k.flops += n.flops || 0;
    k.time += n.time || 0;
    kinds.set(n.kindName, k);
  }
  const io = kind => g.nodes.map((n, i) => [n, i]).filter(([n]) => n.kind === kind);
  const tensors = list => `<ul class="tensors">${list.slice(0, 20).map(([n, i]) => `<li>${nodeLink(g, i)} <span class="mono">${escapeHtml(app.pane.subtitle(n))}</span></li>`).join('')}${list.length > 20 ? `<li class="quiet">and ${list.length - 20} more</li>` : ''}</ul>`;
  return `<h2>${escapeHtml(app.data.title)}</h2><p class="quiet">Click a box for its shapes, cost and line; double-click a module to fold or unfold it. ` +
    'Drag to move, wheel to zoom, <kbd>/</kbd> to search, <kbd>f</kbd> to see all.</p>' +
    `<h3>Inputs</h3>${tensors(io('input'))}<h3>Outputs</h3>${tensors(io('output'))}` +
    `<h3>By kind</h3><table><tbody>${[...kinds].sort((a, b) => b[1].time - a[1].time || b[1].flops - a[1].flops || b[1].n - a[1].n).filter(([k]) => k !== 'io').map(([k, v]) => `<tr><td>${tag(kindTitle(k), kindColor(k, dark))}</td><td class="n">${v.n}</td><td class="n">${timed ? v.time ? asTime(v.time) : '–' : v.flops ? asFlops(v.flops) : '–'}</td></tr>`).join('')}</tbody></table>`;
}

// ---- the tree of modules

function outline(app) {
  const by = app.totals().time ? 'time' : app.totals().flops ? 'flops' : 'bytes', all = app.totals()[by] || 1;
  const tree = g => `<ul class="tree">${g.groups.map(c => {
    const k = app.groupNumber(c);
    return `<li><div data-group="${k}" class="${app.pane.selected && app.pane.selected.ref === c ? 'now' : ''}">` +
      `<button class="twist" data-twist="${k}" aria-label="${c.folded ? 'unfold' : 'fold'}">${c.folded ? '▸' : '▾'}</button>` +
      `<span class="name" title="${escapeHtml(c.path)}">${escapeHtml(c.name)}</span><span class="share">${asPercent(c.sum[by] / all)}</span></div>` +
      `${c.folded ? '' : tree(c)}</li>`;
  }).join('')}</ul>`;
  const root = app.pane.root;
  return root.groups.length ? `<h3 style="margin:2px 8px 6px">Modules <span style="text-transform:none;letter-spacing:0">· share of ${by === 'time' ? 'time' : by === 'flops' ? 'operations' : 'bytes'}</span></h3>${tree(root)}` :
    '<p class="empty" style="padding:10px">No module names were recorded with this graph.</p>';
}

// ---- tables

function opsTables(app, sort) {
  const g = app.data.views.run || app.graph, total = app.totals(), types = new Map();
  const ops = g.nodes.map((n, i) => [n, i]).filter(([n]) => n.kind === 'op' || n.kind === 'copy' || n.kind === 'view');
  for (const [n] of ops) {
    const t = types.get(n.op) || {op: n.op, kind: n.kindName, n: 0, time: 0, est: 0, flops: 0, bytes: 0};
    t.n += 1;
    for (const k of ['time', 'est', 'flops', 'bytes']) t[k] += n[k] || 0;
    types.set(n.op, t);
  }
  const key = sort || (total.time ? 'time' : total.est ? 'est' : 'flops');
  const columns = [['n', 'Count', asCount], ['time', 'Measured', asTime], ['est', 'Estimated', asTime], ['flops', 'Operations', asFlops], ['bytes', 'Memory moved', asBytes]]
    .filter(([k]) => k !== 'time' || total.time).filter(([k]) => k !== 'est' || total.est);
  const head = first => `<thead><tr><th>${first}</th>${columns.map(([k, t]) => k === 'n' && first !== 'Op' ? '' : `<th class="n sort ${k === key ? 'now' : ''}" data-sort="${k}">${t}</th>`).join('')}<th></th></tr></thead>`;
  const cells = (o, but) => columns.map(([k, , f]) => k === but ? '' : `<td class="n">${o[k] ? f(o[k]) : '<span class="quiet">–</span>'}</td>`).join('');
  const most = list => Math.max(...list.map(o => o[key] || 0), 1e-30), dark = app.pane.dark.matches;
  const rows = [...types.values()].sort((a, b) => (b[key] || 0) - (a[key] || 0)), m = most(rows);
  const single = ops.slice().sort((a, b) => (b[0][key] || 0) - (a[0][key] || 0)).slice(0, 200), ms = most(single.map(o => o[0]));
  return `<h3>By op</h3><table>${head('Op')}<tbody>${rows.map(o => `<tr class="go" data-search="${escapeHtml(o.op)}"><td class="op"><i class="tag" style="padding:0 4px;background:${kindColor(o.kind, dark)}">&nbsp;</i>${escapeHtml(o.op)}</td>${cells(o)}<td style="width:22%"><span class="meter" style="width:${100 * (o[key] || 0) / m}%"></span></td></tr>`).join('')}</tbody></table>` +
    `<h3>The ${single.length < ops.length ? single.length + ' heaviest of ' + asCount(ops.length) : asCount(ops.length)} ops</h3><table>${head('Op, where')}<tbody>${single.map(([n, i]) => `<tr class="go" data-run="${i}"><td>${escapeHtml(n.op)} <span class="quiet">${escapeHtml(n.scope || '')}</span><br><span class="quiet mono">${escapeHtml(asLine(n))}</span></td>${cells(n, 'n')}<td style="width:18%"><span class="meter" style="width:${100 * (n[key] || 0) / ms}%"></span></td></tr>`).join('')}</tbody></table>`;
}

function fusionCards(app) {
  const run = app.data.views.run, list = app.data.fused || [], dark = app.pane.dark.matches;
  if (!run) return '<p class="empty">There is no compiled program to show.</p>';
  if (!list.length) return '<p class="empty">Nothing was fused in this graph.</p>';
  const saved = list.reduce((s, c) => s + c.saved, 0);
  return `<p class="quiet"><b style="color:var(--text)">${asCount(list.length)}</b> kernels stand for <b style="color:var(--text)">${asCount(list.reduce((s, c) => s + c.steps, 0))}</b> ops` +
    (saved ? `; <b style="color:var(--text)">${asBytes(saved)}</b> of intermediates never reach memory` : '') + '.</p><div class="cards">' +
    list.map((c, k) => {
      const n = run.nodes[c.node];
      return `<div class="card" data-cluster="${k}" style="border-left-color:${clusterColor(k, dark)}"><b>${escapeHtml(n.op)}</b> <span class="quiet">${c.steps} ops · ${escapeHtml(asTensorOf(run, n))}</span><br>` +
        `<span class="quiet">${escapeHtml(n.scope || '')} ${escapeHtml(asLine(n))}</span> ${n.time ? `<b>${asTime(n.time)}</b>` : ''}<pre>${escapeHtml(c.text)}</pre></div>`;
    }).join('') + '</div>';
}
const asTensorOf = (g, n) => n.outs.length ? asTensor(g.values[n.outs[0]]) : '';
