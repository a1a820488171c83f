#include "kernel/decompose.h"

#include <atomic>

#include "kernel/row_io.h"
#include "op/emitter.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

std::atomic<bool> g_primitives_only{false};

struct BufferVal final : ValImpl {
  Meta meta;
  Buffer buffer;
};

// Runs each op as it is emitted. Promotes inputs as dispatch and the graph builder do.
class RunEmitter final : public Emitter {
 public:
  RunEmitter(const CompNode* home, Work* work, const Aside* aside) : home_(home), work_(work), aside_(aside) {}

  Val wrap(const Meta& m, Buffer b) {
    auto v = make_ref<BufferVal>();
    v->meta = m;
    v->buffer = std::move(b);
    return {this, RefPtr<ValImpl>(v)};
  }
  static const BufferVal& of(const Val& v) { return static_cast<const BufferVal&>(*v.p); }

  void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) override {
    SmallVec<Val, 6> cast_in(in.begin(), in.end());
    SmallVec<const Meta*, 6> metas;
    for (auto& v : in) metas.push_back(&of(v).meta);
    SmallVec<DType, 6> want(in.size());
    if (promote_op(op, {metas.data(), metas.size()}, {want.data(), want.size()}))
      for (size_t i = 0; i < in.size(); ++i) cast_in[i] = cast(in[i], want[i]);
    SmallVec<OpInput, 6> ins;
    for (size_t i = 0; i < cast_in.size(); ++i) {
      const BufferVal& v = of(cast_in[i]);
      metas[i] = &v.meta;
      ins.push_back({&v.meta, &v.buffer});
    }
    SmallVec<Meta, 4> out_metas(op.n_out(attrs.get()));
    infer_op(op, attrs.get(), {metas.data(), metas.size()}, {out_metas.data(), out_metas.size()});
    for (auto& m : out_metas)
      if (!m.cn) m.cn = home_;
    SmallVec<Buffer, 4> buffers(out_metas.size());
    run_op(op, attrs.get(), {ins.data(), ins.size()}, {out_metas.data(), out_metas.size()},
           {buffers.data(), buffers.size()}, {false, work_, aside_});
    for (size_t i = 0; i < out.size(); ++i) out[i] = wrap(out_metas[i], std::move(buffers[i]));
  }
  const Meta& meta(const Val& v) override { return of(v).meta; }
  Val constant(double value, DType dtype, const Val& like) override {
    Meta m;
    m.dtype = dtype;
    m.cn = like ? of(like).meta.cn : home_;
    if (queue_of(m) && dtype <= DType::F64) {  // made where it is read, without a copy
      static const OpDef& full = OpRegistry::global().get("full");
      Buffer b;
      run_op(full, make_attrs(FullAttrs{{}, value, dtype}).get(), {}, {&m, 1}, {&b, 1}, {false, work_, aside_});
      return wrap(m, std::move(b));
    }
    Buffer b = allocate_for_host(m);
    write_scalar(b.storage->ptr, dtype, value);
    return wrap(m, to_device(m, std::move(b)));
  }

 private:
  const CompNode* home_;  // of what is made from nothing
  Work* work_;            // the command that the whole is
  const Aside* aside_;
};

}  // namespace

void run_decomposed(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in,
                    std::span<const Meta> out_meta, std::span<Buffer> out, Work* work, const Aside* aside) {
  RunEmitter em(out_meta[0].cn, work, aside);
  SmallVec<Val, 6> ins, outs(out.size());
  for (auto& i : in) ins.push_back(em.wrap(*i.meta, *i.buffer));
  try {
    op.decompose(em, attrs, {ins.data(), ins.size()}, {outs.data(), outs.size()});
  } catch (const Error& e) {  // a part names itself; the user called the whole
    if (e.text().starts_with(op.name) || e.kind() == ErrorKind::Internal) throw;
    throw Error(e.kind(), op.name + ": " + e.text());
  }
  for (size_t o = 0; o < out.size(); ++o) {
    const BufferVal& v = RunEmitter::of(outs[o]);
    MGE_ASSERT(v.meta.dtype == out_meta[o].dtype && v.meta.shape == out_meta[o].shape,
               "{}: its decomposition gives {} as output {}; infer said {}", op.name, v.meta.str(), o,
               out_meta[o].str());
    out[o] = v.buffer;
    out[o].work = RefPtr<Work>(work);
  }
}

void set_primitives_only(bool on) {
  g_primitives_only.store(on);
  forget_kernel_choices();
}
bool primitives_only() { return g_primitives_only.load(std::memory_order_relaxed); }

}  // namespace mge
