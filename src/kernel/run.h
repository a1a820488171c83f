// Running one op on memory: the step that eager execution and the oracle share.
//   Buffer y; run_op(op, attrs, {&a, &b}, metas, {&y});
#pragma once
#include <span>

#include "base/features.h"
#include "base/function_ref.h"
#include "core/storage.h"
#include "kernel/kernel.h"

namespace mge {

/// A tensor's memory: storage plus layout, and the work that fills it. Type and shape live in Meta beside it.
struct Buffer {
  RefPtr<Storage> storage;
  Layout layout;
  RefPtr<Work> work = nullptr;  // the value is there when this is done; null: it is there
  void* data(DType t) const {
    return static_cast<char*>(storage->ptr) + layout.offset * static_cast<int64_t>(dtype_size(t));
  }
};

struct OpInput {
  const Meta* meta;
  const Buffer* buffer;
  bool donated = false;  // the caller holds the only reference and gives the memory away
};

/// Runs a kernel that takes long, so that whoever runs an op can let others go on meanwhile.
class Aside {
 public:
  virtual void run(FunctionRef<void()> kernel) const = 0;

 protected:
  ~Aside() = default;
};

struct RunOptions {
  bool ref_only = false;         // the oracle: ref kernels, no donation, no views
  Work* work = nullptr;          // on a device with streams: the open command that the op belongs to
  const Aside* aside = nullptr;  // of one that runs here
};

/// Allocates (or donates, or views) outputs and runs the chosen kernel. `out` has op.n_out(attrs) entries.
void run_op(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in, std::span<const Meta> out_meta,
            std::span<Buffer> out, const RunOptions& opt = {});

/// Where the value of `m` lives, and the order its work is in.
inline Device device_of(const Meta& m) { return m.cn ? m.cn->device : Device{}; }
inline Stream* queue_of(const Meta& m) { return has("streams") && m.cn ? m.cn->queue : nullptr; }

TensorArg make_arg(const Meta& m, const Buffer& b);
/// A new contiguous buffer for `m`.
Buffer allocate_buffer(const Meta& m);
/// A new buffer with a dense layout: some order of the axes, no gaps.
Buffer allocate_buffer(const Meta& m, const Layout& dense);
/// A copy with that dense layout, made by `work` where there are streams (null: by work of its own).
Buffer relayout(const Meta& m, const Buffer& b, const Layout& dense, Work* work = nullptr);
/// Same values, contiguous; the same buffer when it already is.
Buffer make_contiguous(const Meta& m, const Buffer& b, Work* work = nullptr);

/// Waits for the value and returns it in memory that the host can read: its own, or a copy. Throws what the value's
/// work failed with.
Buffer to_host(const Meta& m, const Buffer& b);
/// Memory for the host to fill with the value of `m`, contiguous; then to_device brings it to where `m` says. On the
/// CPU that is where it is.
Buffer allocate_for_host(const Meta& m);
Buffer to_device(const Meta& m, Buffer host);
}  // namespace mge
