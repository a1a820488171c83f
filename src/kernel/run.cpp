#include "kernel/run.h"

#include "kernel/copy.h"
#include "kernel/cost.h"
#include "kernel/decompose.h"
#include "kernel/layouts.h"

namespace mge {

TensorArg make_arg(const Meta& m, const Buffer& b) {
  TensorArg t;
  t.ptr = b.data(m.dtype);
  t.dtype = m.dtype;
  t.shape = m.shape;
  t.layout = b.layout;
  t.quant = m.quant;
  return t;
}

Buffer allocate_buffer(const Meta& m) { return allocate_buffer(m, Layout::contiguous(m.shape)); }

Buffer allocate_buffer(const Meta& m, const Layout& dense) {
  return {allocate_storage(device_of(m), m.bytes(), queue_of(m)), dense};
}

Buffer relayout(const Meta& m, const Buffer& b, const Layout& dense, Work* work) {
  if (Stream* queue = b.storage->home; has("streams") && queue && !work) {
    Work* after = b.work.get();
    OpenWork own(queue->open({&after, 1}, nullptr, {}));
    return relayout(m, b, dense, own.get());
  }
  Buffer out = allocate_buffer(m, dense);
  copy_strided(make_arg(m, b), make_arg(m, out), work);
  out.work = RefPtr<Work>(work);
  return out;
}

Buffer make_contiguous(const Meta& m, const Buffer& b, Work* work) {
  if (b.layout.is_contiguous(m.shape)) return b;
  return relayout(m, b, Layout::contiguous(m.shape), work);
}

namespace {

// The one op whose result may be on another device or stream than its input. Memory is written by the stream it comes
// from: behind what its new home has enqueued for it so far, and before all that follows there.
Buffer move_to(const OpInput& in, const Meta& out, Work* work) {
  Stream *from = queue_of(*in.meta), *to = queue_of(out);
  Buffer b = allocate_buffer(out);
  b.work = RefPtr<Work>(work);
  auto copy = [&](Work& w) {
    Buffer source = make_contiguous(*in.meta, *in.buffer, from ? &w : nullptr);
    const size_t offset = static_cast<size_t>(source.layout.offset) * dtype_size(out.dtype);
    w.copy(b.storage, 0, source.storage, offset, out.bytes());
  };
  if (!from) {
    copy(*work);
    return b;
  }
  if (to) from->wait_for_stream(*to);
  Work* after = in.buffer->work.get();
  OpenWork moving(from->open({&after, 1}, nullptr, {}));
  copy(*moving.get());
  RefPtr<Work> moved = moving.close();
  if (!to) {
    wait_for(*moved);  // the host goes on when it is there
    return b;
  }
  to->wait_for_stream(*from);
  work->depend(moved);
  return b;
}

__attribute__((noinline)) void run_aside(const Kernel& k, const KernelArgs& args, const Aside& aside) {
  if (cost::run_ns(args) < cost::kLongNs) return k.run(args);
  auto run = [&] { k.run(args); };
  aside.run(run);
}

const Kernel& reference_kernel(const KernelArgs& a) {
  const Choice c = KernelRegistry::global().find(a, KernelTier::Ref);
  if (!c.kernel) fail_no_kernel(a, c);
  return *c.kernel;
}

}  // namespace

void run_op(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in, std::span<const Meta> out_meta,
            std::span<Buffer> out, const RunOptions& opt) {
  Work* work = has("streams") ? opt.work : nullptr;
  if (has("streams") && in.size() == 1 && in[0].meta->cn != out_meta[0].cn &&
      queue_of(*in[0].meta) != queue_of(out_meta[0])) {
    out[0] = move_to(in[0], out_meta[0], work);
    return;
  }
  if (op.view && !opt.ref_only) {
    Layout l;
    if (op.view({attrs, in[0].meta->shape, in[0].buffer->layout, out_meta[0].shape, &l})) {
      out[0].storage = in[0].buffer->storage;
      out[0].layout = l;
      if (__builtin_expect(work != nullptr, 0)) out[0].work = RefPtr<Work>(work);
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
    t.quant = m.quant;
    outs.push_back(t);
  }
  KernelArgs args{&op, attrs, {ins.data(), ins.size()}, {outs.data(), outs.size()}, nullptr};
  args.device = device_of(out_meta[0]).kind;
  args.work = work;
  const Kernel* chosen = opt.ref_only ? &reference_kernel(args) : KernelRegistry::global().choose(args, nullptr);
  if (__builtin_expect(!chosen, 0)) {
    if (has("decompose") && op.decompose) return run_decomposed(op, attrs, in, out_meta, out, work, opt.aside);
    KernelRegistry::global().choose(args);  // throws the reasons
  }
  const Kernel& k = *chosen;

  if (k.layouts) k.layouts(args, ins.data(), outs.data());
  SmallVec<Buffer, 4> copies;  // keeps copies in the wanted layout alive during the call
  if (!(k.flags & kStridedInputs)) {
    for (size_t i = 0; i < ins.size(); ++i) {
      if (k.layouts ? ins[i].layout.same_strides(ins[i].shape, in[i].buffer->layout) : ins[i].contiguous()) continue;
      if (!k.layouts) ask_row_major(ins[i]);
      copies.push_back(relayout(*in[i].meta, *in[i].buffer, ins[i].layout, work));
      ins[i].ptr = copies.back().data(ins[i].dtype);
    }
  }
  for (size_t o = 0; o < out.size(); ++o) {
    const Buffer* taken = nullptr;
    for (size_t i = 0; i < in.size() && !taken; ++i) {
      if (!in[i].donated || !k.in_place(o, i) || !in[i].meta->same_type(out_meta[o])) continue;
      bool given = false;  // to an output before this one
      for (size_t q = 0; q < o; ++q) given |= out[q].storage.get() == in[i].buffer->storage.get();
      if (given) continue;
      bool original = ins[i].ptr == in[i].buffer->data(in[i].meta->dtype);  // not a copy made above
      if (original && in[i].buffer->storage->writable &&
          in[i].buffer->layout.same_strides(out_meta[o].shape, outs[o].layout))
        taken = in[i].buffer;
    }
    Buffer& b = out[o];
    b.layout = taken ? taken->layout : outs[o].layout;
    b.storage =
        taken ? taken->storage : allocate_storage(device_of(out_meta[o]), out_meta[o].bytes(), queue_of(out_meta[o]));
    if (__builtin_expect(work != nullptr, 0)) b.work = RefPtr<Work>(work);
    outs[o].ptr = b.data(out_meta[o].dtype);
  }
  RefPtr<Storage> workspace;
  if (k.workspace) {
    if (size_t bytes = k.workspace(args)) {
      workspace = allocate_storage(device_of(out_meta[0]), bytes, queue_of(out_meta[0]));
      args.workspace = workspace->ptr;
    }
  }
  args.kernel = &k;
  if (has("streams") && __builtin_expect(work != nullptr, 0)) return launch(k, args);
  if (opt.aside) {
    size_t bytes = 0;  // of memory, which a view sees a part of: a bound that is there without multiplying
    for (auto& i : in) bytes |= i.buffer->storage->bytes;
    for (auto& b : out) bytes |= b.storage->bytes;
    if (__builtin_expect(bytes >= cost::kFewBytes, 0)) return run_aside(k, args, *opt.aside);
  }
  k.run(args);
}

}  // namespace mge
