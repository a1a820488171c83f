// Running one op on memory: the step that eager execution and the oracle share.
//   Buffer y; run_op(op, attrs, {&a, &b}, metas, {&y});
#pragma once
#include <span>

#include "core/storage.h"
#include "kernel/kernel.h"

namespace mge {

/// A tensor's memory: storage plus layout. Type and shape live in Meta beside it.
struct Buffer {
  RefPtr<Storage> storage;
  Layout layout;
  void* data(DType t) const {
    return static_cast<char*>(storage->ptr) + layout.offset * static_cast<int64_t>(dtype_size(t));
  }
};

struct OpInput {
  const Meta* meta;
  const Buffer* buffer;
  bool donated = false;  // the caller holds the only reference and gives the memory away
};

struct RunOptions {
  bool ref_only = false;  // the oracle: ref kernels, no donation, no views
};

/// Allocates (or donates, or views) outputs and runs the chosen kernel. `out` has op.n_out() entries.
void run_op(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in, std::span<const Meta> out_meta,
            std::span<Buffer> out, const RunOptions& opt = {});

TensorArg make_arg(const Meta& m, const Buffer& b);
/// A new contiguous buffer for `m`.
Buffer allocate_buffer(const Meta& m);
/// A new buffer with a dense layout: some order of the axes, no gaps.
Buffer allocate_buffer(const Meta& m, const Layout& dense);
/// A copy with that dense layout.
Buffer relayout(const Meta& m, const Buffer& b, const Layout& dense);
/// Same values, contiguous; the same buffer when it already is.
Buffer make_contiguous(const Meta& m, const Buffer& b);

}  // namespace mge
