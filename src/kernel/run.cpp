#include "kernel/run.h"

#include "kernel/copy.h"
#include "kernel/decompose.h"
#include "kernel/layouts.h"

namespace mge {

TensorArg make_arg(const Meta& m, const Buffer& b) {
  TensorArg t;
  t.ptr = b.data(m.dtype);
  t.dtype = m.dtype;
  t.shape = m.shape;
  t.layout = b.layout;
  return t;
}

Buffer allocate_buffer(const Meta& m) {
  Buffer b;
  b.storage = allocate_storage(m.cn ? m.cn->device : Device{}, m.bytes());
  b.layout = Layout::contiguous(m.shape);
  return b;
}

Buffer allocate_buffer(const Meta& m, const Layout& dense) {
  return {allocate_storage(m.cn ? m.cn->device : Device{}, m.bytes()), dense};
}

Buffer relayout(const Meta& m, const Buffer& b, const Layout& dense) {
  Buffer out = allocate_buffer(m, dense);
  copy_strided(make_arg(m, b), make_arg(m, out));
  return out;
}

Buffer make_contiguous(const Meta& m, const Buffer& b) {
  if (b.layout.is_contiguous(m.shape)) return b;
  Buffer out = allocate_buffer(m);
  copy_strided(make_arg(m, b), make_arg(m, out));
  return out;
}

void run_op(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in, std::span<const Meta> out_meta,
            std::span<Buffer> out, const RunOptions& opt) {
  if (op.view && !opt.ref_only) {
    Layout l;
    if (op.view({attrs, in[0].meta->shape, in[0].buffer->layout, out_meta[0].shape, &l})) {
      out[0] = {in[0].buffer->storage, l};
      return;
    }
  }
  SmallVec<TensorArg, 6> ins, outs;
  for (auto& i : in) ins.push_back(make_arg(*i.meta, *i.buffer));
  for (auto& m : out_meta) {
    TensorArg t;
    t.dtype = m.dtype;
    t.shape = m.shape;
    t.layout = Layout::contiguous(m.shape);
    outs.push_back(t);
  }
  KernelArgs args{&op, attrs, {ins.data(), ins.size()}, {outs.data(), outs.size()}, nullptr};
  KernelRegistry& reg = KernelRegistry::global();
  const Kernel* chosen = nullptr;
  try {
    chosen = opt.ref_only ? &reg.find(args, KernelTier::Ref) : &reg.choose(args);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::NotImplemented || !op.decompose || opt.ref_only) throw;
  }
  if (!chosen) return run_decomposed(op, attrs, in, out_meta, out);
  const Kernel& k = *chosen;

  if (k.layouts) k.layouts(args, ins.data(), outs.data());
  SmallVec<Buffer, 4> copies;  // keeps copies in the wanted layout alive during the call
  if (!(k.flags & kStridedInputs)) {
    for (size_t i = 0; i < ins.size(); ++i) {
      if (k.layouts ? ins[i].layout.same_strides(ins[i].shape, in[i].buffer->layout) : ins[i].contiguous()) continue;
      if (!k.layouts) ask_row_major(ins[i]);
      copies.push_back(relayout(*in[i].meta, *in[i].buffer, ins[i].layout));
      ins[i].ptr = copies.back().data(ins[i].dtype);
    }
  }
  for (size_t o = 0; o < out.size(); ++o) {
    Buffer b;
    for (size_t i = 0; i < in.size() && !b.storage; ++i) {
      if (!in[i].donated || !k.in_place(o, i) || !in[i].meta->same_type(out_meta[o])) continue;
      bool original = ins[i].ptr == in[i].buffer->data(in[i].meta->dtype);  // not a copy made above
      if (original && in[i].buffer->storage->writable &&
          in[i].buffer->layout.same_strides(out_meta[o].shape, outs[o].layout))
        b = *in[i].buffer;
    }
    if (!b.storage) b = allocate_buffer(out_meta[o], outs[o].layout);
    outs[o].ptr = b.data(out_meta[o].dtype);
    out[o] = std::move(b);
  }
  Buffer workspace;
  if (k.workspace) {
    if (size_t bytes = k.workspace(args)) {
      workspace.storage = allocate_storage(out_meta[0].cn ? out_meta[0].cn->device : Device{}, bytes);
      args.workspace = workspace.storage->ptr;
    }
  }
  k.run(args);
}

}  // namespace mge
