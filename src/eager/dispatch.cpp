#include "eager/dispatch.h"

#include "eager/tape.h"
#include "kernel/row_io.h"

namespace mge {
namespace {

// Of the thread that runs the traced function; other threads go on as if there were none.
__attribute__((tls_model("initial-exec"))) thread_local Tracer* g_tracer = nullptr;

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

// Casts inputs to the common dtype with ordinary, differentiable ops.
void dispatch_promoted(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<const DType> want,
                       std::span<TensorPtr> out) {
  SmallVec<TensorPtr, 4> casts;
  SmallVec<Tensor*, 4> ins(in.begin(), in.end());
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i]->meta().dtype == want[i]) continue;
    TensorPtr y;
    dispatch(typecvt_op(), typecvt_attrs(want[i]), {&ins[i], 1}, {&y, 1});
    ins[i] = y.get();
    casts.push_back(std::move(y));
  }
  dispatch(op, attrs, {ins.data(), ins.size()}, out);
}

void dispatch_decomposed(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) {
  EagerEmitter& em = EagerEmitter::get();
  SmallVec<Val, 6> vin, vout(out.size());
  for (auto* t : in) vin.push_back(em.val(TensorPtr(t)));
  op.decompose(em, attrs.get(), {vin.data(), vin.size()}, {vout.data(), vout.size()});
  for (size_t i = 0; i < out.size(); ++i) out[i] = TensorPtr(EagerEmitter::tensor(vout[i]));
}

}  // namespace

void set_host_compute(bool on) { g_host_compute.store(on); }
bool host_compute() { return g_host_compute.load(); }

Tracer* active_tracer() { return g_tracer; }
void set_active_tracer(Tracer* t) { g_tracer = t; }

Tensor::Tensor(ValuePtr v) : value(std::move(v)), birth_epoch(g_tracer ? g_tracer->epoch() : 0) {}

TensorPtr Tensor::alias(const Tensor& of) {
  auto t = make_ref<Tensor>(of.value);
  if (g_tracer) t->origin = of.birth_epoch == g_tracer->epoch() ? of.origin : TensorPtr(const_cast<Tensor*>(&of));
  return t;
}

Tensor::~Tensor() = default;

void dispatch(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) {
  SmallVec<const Meta*, 4> metas;
  for (auto* t : in) metas.push_back(&t->value->meta);
  std::span<const Meta* const> meta_span(metas.data(), metas.size());
  if (op.promote != Promote::None) {
    SmallVec<DType, 4> want(in.size());
    if (promote_op(op, meta_span, {want.data(), want.size()}))
      return dispatch_promoted(op, attrs, in, {want.data(), want.size()}, out);
  }
  bool recording = any_grad_session() && tape_wants(op, in);
  if (__builtin_expect(recording && !op.vjp && op.decompose, 0)) return dispatch_decomposed(op, attrs, in, out);

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

  Tracer* tracer = g_tracer;
  std::span<const ValuePtr> value_span(values.data(), values.size());
  auto all_ready = [&] {
    for (auto* t : in)
      if (!t->value->ready()) return false;
    return true;
  };
  auto run_now = [&] {
    SmallVec<Value*, 4> ins;
    for (auto* t : in) ins.push_back(t->value.get());
    run_inline(op, attrs.get(), {ins.data(), ins.size()}, value_span, -backward_location());
  };
  bool queued = is_queued(values[0]->meta);
  if (__builtin_expect(!tracer && !queued && all_ready(), 1)) {
    run_now();
  } else {
    LocId loc = -backward_location();
    if (!loc) loc = current_location();
    if (tracer && tracer->on_op(op, attrs, in, value_span, loc)) {
      for (auto& v : values) v->deferred = true;
    } else if (queued && is_host_computable(op, in, value_span)) {
      if (values[0]->meta.cn->queue)
        run_on_host(op, attrs, in, value_span);
      else
        run_now();
    } else {
      Command c{&op, attrs, {}, {}, loc};
      for (auto* t : in) c.in.push_back(t->value);
      for (auto& v : values) c.out.push_back(v);
      submit(std::move(c));
    }
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = make_ref<Tensor>(std::move(values[i]));
  if (recording) tape_record(op, attrs, in, out);
}

void dispatch_update(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<Tensor* const> cells) {
  SmallVec<TensorPtr, 4> out(op.n_out());
  MGE_CHECK(cells.size() <= out.size(), Value, "{}: {} cells for {} outputs.", op.name, cells.size(), out.size());
  bool plain = !g_tracer && !(any_grad_session() && tape_wants(op, in));
  if (!plain) {
    dispatch(op, attrs, in, {out.data(), out.size()});
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
    if (is_queued(out_metas[0])) c.loc = current_location();
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

TensorPtr tensor_from_host(const Meta& meta, Buffer host) {
  const Meta m = [&] {
    Meta m = meta;
    if (!m.cn) m.cn = CompNode::default_node();
    return m;
  }();
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

Buffer read_buffer(Tensor& t) {
  ValuePtr v = t.value;
  if (g_tracer) g_tracer->on_read(t);
  if (v->known) return {v->known, Layout::contiguous(v->meta.shape)};
  if (!v->ready() && g_tracer) g_tracer->materialize(*v);
  wait(*v);
  return to_host(v->meta, v->buffer);
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
  Buffer b = allocate_buffer(placed);
  std::memcpy(b.storage->ptr, data, m.bytes());
  return val(tensor_from_buffer(placed, std::move(b)));
}
std::optional<HostValue> EagerEmitter::known(const Val& v, const char* sizes_of) {
  if (sizes_of && g_tracer) g_tracer->cut(sizes_of);
  Tensor& t = *tensor(v);
  const Buffer& buffer = read_buffer(t);
  const Meta& m = t.meta();
  Buffer dense = make_contiguous(m, buffer);
  const char* p = static_cast<const char*>(dense.data(m.dtype));
  return HostValue{m.dtype, m.shape, std::vector<char>(p, p + m.bytes())};
}

}  // namespace mge
