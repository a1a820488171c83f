#include "plan/evaluate.h"

#include "kernel/run.h"

namespace mge {

ir::Evaluator kernel_evaluator() {
  return [](const OpDef& op, const AttrsBase* attrs, std::span<const ir::ConstTensor> in,
            std::span<ir::ConstTensor> out) {
    SmallVec<Buffer, 6> buffers;
    SmallVec<OpInput, 6> inputs;
    for (auto& t : in) {
      // A layout counts whole elements from the start of the storage; an odd byte offset gets a start of its own, and
      // so do elements of less than a byte.
      size_t size = std::max<size_t>(dtype_size(t.meta.dtype), 1);
      Buffer b{t.storage, Layout::contiguous(t.meta.shape)};
      b.layout.offset = static_cast<int64_t>(t.offset / size);
      if (t.offset % size || (is_packed(t.meta.dtype) && t.offset)) {
        auto keep = t.storage;
        b.storage = wrap_storage(static_cast<char*>(keep->ptr) + t.offset, t.meta.bytes(), false, [keep] {});
        b.layout.offset = 0;
      }
      buffers.push_back(b);
    }
    // Constants are in host memory and are computed there, whatever device they are for.
    auto on_host = [](Meta m) {
      m.cn = nullptr;
      return m;
    };
    SmallVec<Meta, 6> in_metas;
    for (auto& t : in) in_metas.push_back(on_host(t.meta));
    for (size_t i = 0; i < in.size(); ++i) inputs.push_back({&in_metas[i], &buffers[i]});
    SmallVec<Meta, 4> metas;
    for (auto& t : out) metas.push_back(on_host(t.meta));
    SmallVec<Buffer, 4> results(out.size());
    run_op(op, attrs, {inputs.data(), inputs.size()}, {metas.data(), metas.size()}, {results.data(), results.size()});
    for (size_t i = 0; i < out.size(); ++i) {
      Buffer b = make_contiguous(metas[i], results[i]);
      out[i].storage = b.storage;
      out[i].offset = static_cast<size_t>(b.layout.offset) * dtype_size(metas[i].dtype);
    }
  };
}

}  // namespace mge
