// Numbers and tensors as people read them.
'use strict';

function scaled(n, units, base) {
  if (!n) return '0' + (units[0] ? ' ' + units[0] : '');
  let k = 0;
  while (Math.abs(n) >= base && k < units.length - 1) {
    n /= base;
    ++k;
  }
  return (n >= 100 || (k === 0 && Number.isInteger(n)) ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)) + ' ' + units[k];
}
const asBytes = n => scaled(n, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
const asFlops = n => scaled(n, ['FLOP', 'kFLOP', 'MFLOP', 'GFLOP', 'TFLOP'], 1000);
const asTime = s => s == null ? '–' : s === 0 ? '0' : s < 1e-6 ? (s * 1e9).toFixed(0) + ' ns' :
  s < 1e-3 ? (s * 1e6).toFixed(s < 1e-5 ? 2 : 1) + ' µs' : s < 1 ? (s * 1e3).toFixed(s < 1e-2 ? 2 : 1) + ' ms' : s.toFixed(2) + ' s';
const asCount = n => n.toLocaleString('en-US');
const asPercent = p => (100 * p).toFixed(p < 0.0995 ? 1 : 0) + ' %';
const SHORT = {float32: 'f32', float64: 'f64', float16: 'f16', bfloat16: 'bf16', int32: 'i32', int64: 'i64', int16: 'i16',
               int8: 'i8', uint8: 'u8', uint16: 'u16', bool: 'bool', complex64: 'c64'};
const shortType = v => SHORT[v.dtype] || v.dtype;
const asShape = v => v.shape.length ? v.shape.join('×') : 'scalar';
const asTensor = v => shortType(v) + ' ' + asShape(v);
function escapeHtml(s) {
  return String(s).replace(/[&<>"']/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'})[c]);
}
const unnamed = name => /^var\d+$/.test(name);  // numbers that nobody gave
const lastOf = path => path.split(/[\\/]/).pop();
const asLine = n => n.file ? lastOf(n.file) + ':' + n.line : '';

// ---- kinds of ops, and their colours (two: for light and for dark pages)
const KINDS = [
  ['conv', /conv|deform|winograd/i, ['#2f6fdf', '#6ea0ff'], 'convolution'],
  ['matmul', /matmul|matrix|linear|gemm|bmm|dot/i, ['#7a4fd6', '#a98bff'], 'matrix product'],
  ['norm', /norm|softmax|layer_norm|bn_/i, ['#0f8f8a', '#4fd0c9'], 'normalisation'],
  ['fused', /^fused/i, ['#c2410c', '#ff9a5c'], 'fused'],
  ['pool', /pool|interpol|resize|warp|remap|roi/i, ['#2b8a3e', '#69db7c'], 'pooling, image'],
  ['reduce', /reduce|^sum|^mean|^max$|^min$|arg|topk|sort|cumsum/i, ['#a4711a', '#f2bd57'], 'reduction, order'],
  ['rng', /random|uniform|gauss|dropout|rng|bernoulli|permut|poisson|gamma|beta/i, ['#b3256e', '#ff7ab8'], 'random'],
  ['update', /sgd|adam|update|momentum|lamb|adagrad|adadelta/i, ['#8a2be2', '#c792ff'], 'optimizer'],
  ['dist', /all_?reduce|broadcast_rank|gather_rank|send|recv|collective|all_?gather/i, ['#b02a37', '#ff8787'], 'communication'],
  ['move', /reshape|transpose|dimshuffle|concat|split|slice|stack|squeeze|expand|broadcast|copy|index|gather|scatter|pad|typecvt|cast|flatten|tile|repeat|view|where|fill|subtensor|relayout/i,
    ['#6b7785', '#9aa7b5'], 'data movement'],
];
const INPUT = ['#1f7a3d', '#5fd38a'], ELEMENTWISE = ['#b4442f', '#ff8f73'];
function kindOf(node) {
  if (node.kind === 'input' || node.kind === 'output') return 'io';
  for (const [name, pattern] of KINDS) if (pattern.test(node.op)) return name;
  return 'elementwise';
}
function kindColor(kind, dark) {
  if (kind === 'io') return INPUT[+dark];
  const row = KINDS.find(r => r[0] === kind);
  return row ? row[2][+dark] : ELEMENTWISE[+dark];
}
const kindTitle = kind => kind === 'io' ? 'input, output' : (KINDS.find(r => r[0] === kind) || [0, 0, 0, 'elementwise'])[3];
// From little to much.
function heat(t, dark) {
  t = Math.max(0, Math.min(1, t));
  return dark ? `hsl(${210 - 190 * t} ${35 + 50 * t}% ${30 + 30 * t}%)` : `hsl(${210 - 190 * t} ${45 + 45 * t}% ${72 - 22 * t}%)`;
}
const clusterColor = (c, dark) => `hsl(${(c * 137.5) % 360} ${dark ? 60 : 62}% ${dark ? 62 : 45}%)`;
