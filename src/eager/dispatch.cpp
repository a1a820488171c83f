#include "eager/dispatch.h"

#include "core/profile.h"
#include "eager/tape.h"
#include "kernel/row_io.h"
#include "op/promote.h"
#include "op/quant/real.h"

namespace mge {

constinit thread_local uint32_t mode::t_word = 0;

namespace {

// Of the thread that runs the traced function; other threads go on as if there were none.
thread_local Tracer* g_tracer = nullptr;

NodeDispatch* g_nodes = nullptr;
bool is_node(const Tensor& t) { return t.modes & mode::kNode; }

constexpr int64_t kTinyNumel = 64;
std::atomic<bool> g_host_compute{true};

bool is_tiny(const Meta& m) {
  return m.shape.rank <= 1 && (is_int(m.dtype) || m.dtype == DType::Bool) && m.shape.numel() <= kTinyNumel;
}

// Shape arithmetic: a handful of integers, already here, into a handful of integers. Computed at once on the caller's
// thread even when ops are queued, so that reading the result never waits for the queue.
bool is_host_computable(const OpDef& op, std::span<Tensor* const> in, std::span<const ValuePtr> out) {
  if (!g_host_compute.load(std::memory_order_relaxed) || (op.traits & (kEffect | kRandom | kComputeBound)))
    return false;
  for (auto& v : out)
    if (!is_tiny(v->meta)) return false;
  for (auto* t : in) {
    if (!is_tiny(t->meta())) return false;
    if (t->meta().cn->queue ? !t->value->known : !t->value->ready()) return false;
  }
  return true;
}

// The same for values of a device with streams: from the host's copies, and the results are brought to the device.
void run_on_host(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out) {
  auto on_host = [](Meta m) {
    m.cn = nullptr;
    return m;
  };
  SmallVec<Meta, 4> in_metas, out_metas;
  SmallVec<Buffer, 4> buffers, results(out.size());
  SmallVec<OpInput, 4> inputs;
  for (auto* t : in) {
    in_metas.push_back(on_host(t->meta()));
    buffers.push_back(t->value->known ? Buffer{t->value->known, Layout::contiguous(t->meta().shape)}
                                      : Buffer(t->value->buffer));
  }
  for (size_t i = 0; i < in.size(); ++i) inputs.push_back({&in_metas[i], &buffers[i]});
  for (auto& v : out) out_metas.push_back(on_host(v->meta));
  run_op(op, attrs.get(), {inputs.data(), inputs.size()}, {out_metas.data(), out_metas.size()},
         {results.data(), results.size()});
  for (size_t i = 0; i < out.size(); ++i) {
    Buffer b = make_contiguous(out_metas[i], results[i]);
    if (b.layout.offset) b = relayout(out_metas[i], b, Layout::contiguous(out_metas[i].shape));
    if (out[i]->meta.cn->queue) out[i]->known = b.storage;
    out[i]->buffer = to_device(out[i]->meta, std::move(b));
    out[i]->set_ready();
  }
}

const OpDef& typecvt_op() {
  static const OpDef& op = OpRegistry::global().get("typecvt");
  return op;
}
const Attrs& typecvt_attrs(DType t) {
  static Attrs* cache = [] {
    auto* a = new Attrs[kDTypeCount];
    for (int i = 0; i < kDTypeCount; ++i) {
      NamedAttr n{"dtype", static_cast<DType>(i)};
      a[i] = typecvt_op().schema.build("typecvt", {&n, 1});
    }
    return a;
  }();
  return cache[static_cast<int>(t)];
}

// Out of the way of the fast path: inlined they would lengthen its prologue.
#define MGE_ASIDE __attribute__((noinline))

TensorPtr cast(Tensor* t, DType want) {
  if (t->meta().dtype == want) return TensorPtr(t);
  TensorPtr y;
  dispatch(typecvt_op(), typecvt_attrs(want), {&t, 1}, {&y, 1});
  return y;
}

// The usual case of promote_op, decided without it: one dtype, which the op takes.
bool is_promoted(Promote rule, std::span<const Meta* const> in) {
  if (in.empty() || rule == Promote::Bool) return false;
  const DType t = in[0]->dtype;
  for (auto* m : in)
    if (m->dtype != t) return false;
  return rule < Promote::Float || is_float(t) || (rule == Promote::Product && (t == DType::I32 || t == DType::I64));
}

// Casts inputs to the common dtype with ordinary, differentiable ops.
MGE_ASIDE void dispatch_promoted(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                                 std::span<const DType> want, std::span<TensorPtr> out) {
  SmallVec<TensorPtr, 4> casts;
  SmallVec<Tensor*, 4> ins;
  for (size_t i = 0; i < in.size(); ++i) {
    casts.push_back(cast(in[i], want[i]));
    ins.push_back(casts.back().get());
  }
  dispatch(op, attrs, {ins.data(), ins.size()}, out);
}

// Mixed precision: floating inputs in the precision that the op asks for, by the same casts.
MGE_ASIDE void dispatch_autocast(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                                 std::span<TensorPtr> out) {
  const DType low = mode::low_dtype(mode::t_word), high = mode::high_dtype(mode::t_word);
  mode::Scope done(mode::kAutocast, 0);
  SmallVec<DType, 4> want;
  for (auto* t : in) want.push_back(amp_dtype(op.amp, t->meta().dtype, low, high));
  const bool norm = op.amp == Amp::Norm && !in.empty() && is_float(in[0]->meta().dtype);
  // Kernels that take 16-bit images beside float32 parameters need no cast around them: the same bits.
  if (norm && takes_mixed(op) && high == DType::F32 && low != DType::F32) {
    want[0] = low;
    return dispatch_promoted(op, attrs, in, {want.data(), want.size()}, out);
  }
  SmallVec<Tensor*, 4> ins(in.begin(), in.end());
  TensorPtr rounded;
  if (norm) {
    rounded = cast(in[0], low);
    ins[0] = rounded.get();
  }
  dispatch_promoted(op, attrs, {ins.data(), ins.size()}, {want.data(), want.size()}, out);
  if (norm) out[0] = cast(out[0].get(), low);
}

// The label of the first labelled input goes to a result that has its axes.
MGE_ASIDE void keep_format(const OpDef& op, std::span<Tensor* const> in, Tensor& out, uint32_t modes = mode::t_word) {
  if (modes & mode::kRule) return;
  const size_t n = op.keeps_format == KeepsFormat::Any ? in.size() : op.keeps_format == KeepsFormat::First ? 1 : 0;
  for (size_t i = 0; i < n && i < in.size(); ++i) {
    if (!(in[i]->modes & mode::kNhwc)) continue;
    const Meta &x = in[i]->meta(), &y = out.meta();
    if (x.shape.rank == y.shape.rank && y.dtype != DType::Bool) out.modes |= mode::kNhwc;
    return;
  }
}

MGE_ASIDE void dispatch_decomposed(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                                   std::span<TensorPtr> out) {
  SmallVec<const Meta*, 4> metas;
  for (auto* t : in) metas.push_back(&t->meta());
  SmallVec<Meta, 4> out_metas(out.size());
  // Says what is wrong; the parts rely on what it checks.
  infer_op(op, attrs.get(), {metas.data(), metas.size()}, {out_metas.data(), out_metas.size()});
  const uint32_t before = mode::t_word;
  mode::RuleScope rule;
  EagerEmitter& em = EagerEmitter::get();
  SmallVec<Val, 6> vin, vout(out.size());
  for (auto* t : in) vin.push_back(em.val(TensorPtr(t)));
  op.decompose(em, attrs.get(), {vin.data(), vin.size()}, {vout.data(), vout.size()});
  for (size_t i = 0; i < out.size(); ++i) out[i] = TensorPtr(EagerEmitter::tensor(vout[i]));
  keep_format(op, in, *out[0], before);
}

// An op that does not take some quantised input as it is.
MGE_ASIDE bool dispatch_quantised(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                                  std::span<TensorPtr> out) {
  bool as_is = true;
  for (auto* t : in) as_is = as_is && takes_as_is(op, t->meta().dtype);
  if (as_is) return false;
  EagerEmitter& em = EagerEmitter::get();
  SmallVec<Val, 6> vin, vout(out.size());
  for (auto* t : in) vin.push_back(em.val(TensorPtr(t)));
  emit_on_quantised(em, op, attrs, {vin.data(), vin.size()}, {vout.data(), vout.size()});
  for (size_t i = 0; i < out.size(); ++i) out[i] = TensorPtr(EagerEmitter::tensor(vout[i]));
  return true;
}

// The recorded op was decided on by the same rules from the same dtypes and modes, so none of them is asked again; but
// for the tape, which may have come or gone.
MGE_ASIDE bool dispatch_matched(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                                std::span<TensorPtr> out, uint32_t modes) {
  const bool taped = (modes & mode::kGrad) && tape_wants(op, in);
  if (taped && !op.vjp && op.decompose) return false;
  if (!g_tracer->match(op, attrs, in, out, modes)) return false;
  if (taped) tape_record(op, attrs, in, out);
  for (auto* t : in) modes |= t->modes;
  if (modes & mode::kNhwc) keep_format(op, in, *out[0], modes);
  return true;
}

}  // namespace

void set_host_compute(bool on) { g_host_compute.store(on); }
bool host_compute() { return g_host_compute.load(); }

void set_node_dispatch(NodeDispatch* d) { g_nodes = d; }
Tracer* active_tracer() { return g_tracer; }
void set_active_tracer(Tracer* t) {
  g_tracer = t;
  mode::t_word = (mode::t_word & ~mode::kTrace) | (t ? mode::kTrace : 0);
}

Tensor::Tensor(ValuePtr v, uint32_t epoch) : value(std::move(v)), birth_epoch(epoch) {}
Tensor::Tensor(ValuePtr v) : Tensor(std::move(v), g_tracer ? g_tracer->epoch() : 0) {}

TensorPtr Tensor::alias(const Tensor& of) {
  auto t = make_ref<Tensor>(of.value);
  t->modes = of.modes;
  if (g_tracer) t->origin = of.birth_epoch == g_tracer->epoch() ? of.origin : TensorPtr(const_cast<Tensor*>(&of));
  return t;
}

Tensor::~Tensor() = default;

void dispatch(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) {
  uint32_t modes = mode::t_word;  // of the thread; those of the inputs join
  if (__builtin_expect(modes & mode::kTrace, 0) && dispatch_matched(op, attrs, in, out, modes)) return;
  SmallVec<const Meta*, 4> metas;
  bool quantised = false;
  for (auto* t : in) {
    metas.push_back(&t->value->meta);
    modes |= t->modes;
    quantised |= is_quant(t->value->meta.dtype);
  }
  std::span<const Meta* const> meta_span(metas.data(), metas.size());
  if (__builtin_expect(quantised, 0) && dispatch_quantised(op, attrs, in, out)) return;
  if (__builtin_expect(modes & mode::kAutocast, 0) && op.amp != Amp::None) return dispatch_autocast(op, attrs, in, out);
  if (op.promote != Promote::None && !is_promoted(op.promote, meta_span)) {
    SmallVec<DType, 4> want(in.size());
    if (promote_op(op, meta_span, {want.data(), want.size()}))
      return dispatch_promoted(op, attrs, in, {want.data(), want.size()}, out);
  }
  if (modes & (mode::kGrad | mode::kNode)) {
    if (modes & mode::kNode) return g_nodes->apply(op, attrs, in, out);
    if (!tape_wants(op, in))
      modes &= ~mode::kGrad;  // from here on the bit means: this op is recorded
    else if (!op.vjp && op.decompose)
      return dispatch_decomposed(op, attrs, in, out);
  }

  // One output is the rule: infer straight into its value. Nothing is kept when infer throws.
  SmallVec<ValuePtr, 2> values;
  if (out.size() == 1) {
    values.push_back(make_ref<Value>());
    infer_op(op, attrs.get(), meta_span, {&values[0]->meta, 1});
  } else {
    SmallVec<Meta, 4> out_metas(out.size());
    infer_op(op, attrs.get(), meta_span, {out_metas.data(), out_metas.size()});
    for (auto& m : out_metas) {
      values.push_back(make_ref<Value>());
      values.back()->meta = m;
    }
  }
  for (auto& v : values)
    if (!v->meta.cn) v->meta.cn = CompNode::default_node();

  std::span<const ValuePtr> value_span(values.data(), values.size());
  auto all_ready = [&] {
    for (auto* t : in)
      if (!t->value->ready()) return false;
    return true;
  };
  auto run_now = [&] {
    run_inline(op, attrs.get(), in, value_span, modes & mode::kBackward ? -backward_location() : 0);
  };
  bool plain = runs_plainly(values[0]->meta) && !(op.traits & kEffect);
  if (__builtin_expect(!(modes & mode::kTrace) && plain && all_ready(), 1)) {
    run_now();
  } else {
    LocId loc = -backward_location();
    if (!loc) loc = current_location();
    const bool queued = is_queued(values[0]->meta);
    if ((modes & mode::kTrace) && g_tracer->on_op(op, attrs, in, value_span, loc)) {
      for (auto& v : values) v->deferred = true;
    } else if (queued && is_host_computable(op, in, value_span)) {
      if (values[0]->meta.cn->queue)
        run_on_host(op, attrs, in, value_span);
      else
        run_now();
    } else {
      Command c{&op, attrs, {}, {}, loc, profile::scope()};
      for (auto* t : in) c.in.push_back(t->value);
      for (auto& v : values) c.out.push_back(v);
      submit(std::move(c));
    }
  }
  const uint32_t epoch = modes & mode::kTrace ? g_tracer->epoch() : 0;
  for (size_t i = 0; i < out.size(); ++i) out[i] = make_ref<Tensor>(std::move(values[i]), epoch);
  if (modes & (mode::kGrad | mode::kNhwc)) {
    if (modes & mode::kGrad) tape_record(op, attrs, in, out);
    if (modes & mode::kNhwc) keep_format(op, in, *out[0]);
  }
}

void dispatch_uncast(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) {
  mode::Scope uncast(mode::kAutocast, 0);
  dispatch(op, attrs, in, out);
}
DType cast_dtype(const OpDef& op, DType t) {
  const uint32_t modes = mode::t_word;
  if (!(modes & mode::kAutocast)) return t;
  return amp_dtype(op.amp, t, mode::low_dtype(modes), mode::high_dtype(modes));
}

void dispatch_update(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<Tensor* const> cells) {
  SmallVec<TensorPtr, 4> out(op.n_out(attrs.get()));
  MGE_CHECK(cells.size() <= out.size(), Value, "{}: {} cells for {} outputs.", op.name, cells.size(), out.size());
  const uint32_t modes = mode::t_word;
  bool plain = !(modes & mode::kTrace) && !((modes & mode::kGrad) && tape_wants(op, in));
  for (const Tensor* cell : cells) {  // memory that has to be copied: what fails then has changed nothing
    const Value& v = *cell->value;
    if (!v.ready()) continue;
    const Buffer& b = v.buffer;
    if (v.ref_count() > 1 || b.storage->ref_count() > 1 || !b.layout.is_contiguous(v.meta.shape)) plain = false;
  }
  if (!plain) {
    dispatch_uncast(op, attrs, in, {out.data(), out.size()});  // state keeps its dtype
  } else {
    SmallVec<const Meta*, 4> metas;
    for (auto* t : in) metas.push_back(&t->value->meta);
    SmallVec<Meta, 4> out_metas(out.size());
    infer_op(op, attrs.get(), {metas.data(), metas.size()}, {out_metas.data(), out_metas.size()});
    Command c;
    c.op = &op;
    c.attrs = attrs;
    for (auto& m : out_metas)
      if (!m.cn) m.cn = CompNode::default_node();
    if (!runs_plainly(out_metas[0])) {
      c.loc = current_location();
      c.scope = profile::scope();
    }
    for (size_t i = 0; i < out.size(); ++i) {
      ValuePtr v = make_ref<Value>();
      v->meta = out_metas[i];
      c.out.push_back(v);
      out[i] = make_ref<Tensor>(std::move(v));
    }
    for (auto* t : in) c.in.push_back(t->value);
    // Give the old values away, so that this command is their only owner and their memory can be reused.
    // When it fails, the cells hold failed values: half an update must not pass for a whole one.
    for (size_t k = 0; k < cells.size(); ++k) {
      cells[k]->value = out[k]->value;
      cells[k]->links.clear();
    }
    submit(std::move(c));
    return;
  }
  for (size_t k = 0; k < cells.size(); ++k) assign(*cells[k], *out[k]);
}

TensorPtr tensor_from_buffer(const Meta& meta, Buffer buffer) {
  ValuePtr v = make_ref<Value>();
  v->meta = meta;
  if (!v->meta.cn) v->meta.cn = CompNode::default_node();
  v->buffer = std::move(buffer);
  if (g_tracer) v->birth_epoch = g_tracer->epoch();
  v->set_ready();
  return make_ref<Tensor>(std::move(v));
}

TensorPtr tensor_from_host(const Meta& m, Buffer host) {
  RefPtr<Storage> known = m.cn->queue && is_tiny(m) ? host.storage : nullptr;
  TensorPtr t = tensor_from_buffer(m, to_device(m, std::move(host)));
  t->value->known = std::move(known);
  return t;
}

TensorPtr scalar_tensor(double value, DType dtype, const CompNode* cn) {
  Meta m;
  m.dtype = dtype;
  m.cn = cn ? cn : CompNode::default_node();
  Buffer b = allocate_for_host(m);
  write_scalar(b.storage->ptr, dtype, value);
  return tensor_from_host(m, std::move(b));
}

TensorPtr detach(const Tensor& t) { return Tensor::alias(t); }

void assign(Tensor& cell, const Tensor& from) {
  if (&cell == &from) return;
  if (g_tracer) {
    g_tracer->on_assign(cell, from);
    uint32_t epoch = g_tracer->epoch();
    if (cell.birth_epoch == epoch)  // a name made during the call: of whatever it was given last
      cell.origin = from.birth_epoch == epoch ? from.origin : TensorPtr(const_cast<Tensor*>(&from));
  }
  cell.value = from.value;
  cell.links = from.links;
}

Buffer host_buffer(Value& v) {
  if (v.known) return {v.known, Layout::contiguous(v.meta.shape)};
  wait(v);
  return to_host(v.meta, v.buffer);
}

Buffer read_buffer(Tensor& t) {
  if (is_node(t)) return g_nodes->read(t);
  ValuePtr v = t.value;
  if (g_tracer) g_tracer->on_read(t);
  if (!v->known && !v->ready() && g_tracer) g_tracer->materialize(*v);
  return host_buffer(*v);
}

Buffer device_buffer(Tensor& t) {
  MGE_CHECK(!is_node(t), Value, "a node of a graph has no memory of its own.");
  ValuePtr v = t.value;
  if (g_tracer) g_tracer->on_read(t);
  if (!v->ready() && g_tracer) g_tracer->materialize(*v);
  wait(*v);
  return v->buffer;
}

EagerEmitter& EagerEmitter::get() {
  static EagerEmitter em;
  return em;
}
Val EagerEmitter::val(TensorPtr t) { return Val{this, RefPtr<ValImpl>(t)}; }

void EagerEmitter::emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) {
  SmallVec<Tensor*, 6> ins;
  for (auto& v : in) ins.push_back(tensor(v));
  SmallVec<TensorPtr, 3> outs(out.size());
  dispatch(op, attrs, {ins.data(), ins.size()}, {outs.data(), outs.size()});
  for (size_t i = 0; i < out.size(); ++i) out[i] = val(std::move(outs[i]));
}
const Meta& EagerEmitter::meta(const Val& v) { return tensor(v)->meta(); }
Val EagerEmitter::constant(double value, DType dtype, const Val& like) {
  return val(scalar_tensor(value, dtype, like ? tensor(like)->meta().cn : nullptr));
}
Val EagerEmitter::literal(const Meta& m, const void* data) {
  Meta placed = m;
  if (!placed.cn) placed.cn = CompNode::default_node();
  Buffer b = allocate_for_host(placed);
  std::memcpy(b.storage->ptr, data, m.bytes());
  return val(tensor_from_host(placed, std::move(b)));
}
TensorPtr traced_sizes(Tensor& t) {
  if (is_node(t)) return g_nodes->sizes_of(t);
  return g_tracer ? g_tracer->sizes_of(t) : nullptr;
}
void fix_sizes(Tensor& t) {
  if (g_tracer && !is_node(t) && g_tracer->any_size(t)) g_tracer->on_read(*g_tracer->sizes_of(t));
}

Ints size_numbers(Tensor& t, bool* later) {
  const Meta& m = t.meta();
  const int64_t n = m.shape.numel();
  MGE_CHECK(is_int(m.dtype) || m.dtype == DType::Bool, Value,
            "shape: sizes must be integers; got a tensor of {}. Cast it with astype first.", dtype_name(m.dtype));
  MGE_CHECK(n <= kRowTile, Value, "shape: {} sizes are too many; got a tensor of shape {}.", n, m.shape.str());
  Buffer b;
  if (later && is_node(t)) {
    *later = true;
    b = g_nodes->read(t);
  } else if (later && g_tracer) {
    *later = g_tracer->on_size(t);
    if (!t.value->known && !t.value->ready()) g_tracer->materialize(*t.value);
    b = host_buffer(*t.value);
  } else {
    b = read_buffer(t);
  }
  b = make_contiguous(m, b);
  Ints out(static_cast<size_t>(n));
  load_row(m.dtype, b.data(m.dtype), 1, Compute::I64, out.data(), n);
  return out;
}
SizeValue EagerEmitter::size_value(const Val& v, int64_t) {
  bool later = false;
  const int64_t now = size_numbers(*tensor(v), &later)[0];
  return {now, later ? v : Val()};
}

std::optional<SizeValues> EagerEmitter::size_values(const Val& v) {
  bool later = false;
  Ints now = size_numbers(*tensor(v), &later);
  return SizeValues{std::move(now), later ? v : Val()};
}

Val EagerEmitter::size_operand(const Val& v) { return any_size(v) ? val(traced_sizes(*tensor(v))) : Val(); }
bool EagerEmitter::any_size(const Val& v) {
  const Tensor& t = *tensor(v);
  return is_node(t) || (g_tracer && g_tracer->any_size(t));
}
void EagerEmitter::fix(const Val& v) {
  if (g_tracer && !is_node(*tensor(v))) g_tracer->on_read(*tensor(v));
}
std::optional<HostValue> EagerEmitter::known(const Val& v) {
  Tensor& t = *tensor(v);
  const Buffer& buffer = read_buffer(t);
  const Meta& m = t.meta();
  Buffer dense = make_contiguous(m, buffer);
  const char* p = static_cast<const char*>(dense.data(m.dtype));
  return HostValue{m.dtype, m.shape, std::vector<char>(p, p + m.bytes())};
}

}  // namespace mge
