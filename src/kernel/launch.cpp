// Calls of kernels and copies, now or on a stream.
#include <atomic>

#include "kernel/capture.h"
#include "kernel/copy.h"
#include "kernel/late_error.h"
#include "kernel/launch_timer.h"
#include "kernel/run.h"

namespace mge {
namespace {

// A call to be made later, on the stream's thread: everything the arguments point at is kept, and device addresses
// become those that the stream reaches.
struct Later {
  const Kernel* kernel;
  Attrs attrs;
  KernelArgs args;
  std::vector<TensorArg> tensors;
  Stream* stream;
  std::function<void()> rethrow;

  Later(const Kernel& k, const KernelArgs& a, std::function<void()> r)
      : kernel(&k), attrs(a.attrs), args(a), stream(&a.work->stream), rethrow(std::move(r)) {
    tensors.insert(tensors.end(), a.in.begin(), a.in.end());
    tensors.insert(tensors.end(), a.out.begin(), a.out.end());
  }
  void operator()() {
    for (auto& t : tensors) t.ptr = stream->reach(t.ptr);
    KernelArgs a = args;
    a.in = {tensors.data(), args.in.size()};
    a.out = {tensors.data() + args.in.size(), args.out.size()};
    a.workspace = stream->reach(args.workspace);
    a.work = nullptr;
    try {
      kernel->run(a);
    } catch (...) {
      if (rethrow) rethrow();
      throw;
    }
  }
};

}  // namespace

namespace {
thread_local const std::function<void()>* t_rethrow = nullptr;
}
const std::function<void()>& late_rethrow() {
  static const std::function<void()> none;
  return t_rethrow ? *t_rethrow : none;
}

void launch(const Kernel& k, KernelArgs& a, std::function<void()> rethrow) {
  a.kernel = &k;
  if (!has("streams")) return k.run(a);
  if (a.work && a.work->stream.runs_host_kernels) return a.work->call(Later(k, a, std::move(rethrow)));
  struct Set {
    const std::function<void()>* before;
    ~Set() { t_rethrow = before; }
  } set{std::exchange(t_rethrow, &rethrow)};
  const LaunchTimer* timer = a.work ? launch_timer() : nullptr;
  if (__builtin_expect(timer != nullptr, 0)) timer->begin(*a.work);
  k.run(a);
  if (__builtin_expect(timer != nullptr, 0)) timer->end(*a.work, a.op->name.c_str(), k.name);
}

namespace {
std::atomic<const LaunchTimer*> g_timer{nullptr};
}
const LaunchTimer* launch_timer() { return g_timer.load(std::memory_order_relaxed); }
void set_launch_timer(const LaunchTimer* t) { g_timer.store(t); }

namespace {
std::atomic<const Capture*> g_capture[kDeviceKinds] = {};
}
const Capture* capture_of(DeviceKind kind) { return g_capture[static_cast<int>(kind)]; }
void set_capture(DeviceKind kind, const Capture* c) { g_capture[static_cast<int>(kind)] = c; }

namespace {
std::atomic<StridedCopy> g_strided_copy[kDeviceKinds] = {};
}
void set_strided_copy(DeviceKind kind, StridedCopy copy) { g_strided_copy[static_cast<int>(kind)] = copy; }

void copy_strided(const TensorArg& src, const TensorArg& dst, Work* work) {
  if (!has("streams") || !work) return copy_strided(src, dst);
  if (!work->stream.runs_host_kernels) {
    const StridedCopy copy = g_strided_copy[static_cast<int>(work->stream.device.kind)];
    MGE_CHECK(copy, NotImplemented, "copy: {} has no strided copies.", work->stream.device.name());
    const LaunchTimer* timer = launch_timer();
    if (timer) timer->begin(*work);
    copy(src, dst, *work);
    if (timer) timer->end(*work, "copy", "between orders");
    return;
  }
  work->call([from = TensorArg(src), to = TensorArg(dst), s = &work->stream]() mutable {
    from.ptr = s->reach(from.ptr);
    to.ptr = s->reach(to.ptr);
    copy_strided(from, to);
  });
}

Buffer to_host(const Meta& m, const Buffer& b) {
  if (!has("streams")) return {b.storage, b.layout};
  if (b.work) wait_for(*b.work);
  if (host_readable(*b.storage)) return {b.storage, b.layout};
  Buffer host{allocate_storage({}, m.bytes()), Layout::contiguous(m.shape)};
  OpenWork w(b.storage->home->open({}, nullptr, {}));
  Buffer source = make_contiguous(m, b, w.get());
  const size_t offset = static_cast<size_t>(source.layout.offset) * dtype_size(m.dtype);
  w->copy(host.storage, 0, source.storage, offset, m.bytes());
  wait_for(*w.close());
  return host;
}

Buffer allocate_for_host(const Meta& m) {
  if (!queue_of(m)) return allocate_buffer(m);
  return {allocate_storage({}, m.bytes()), Layout::contiguous(m.shape)};
}

Buffer to_device(const Meta& m, Buffer host) {
  if (!queue_of(m)) return host;
  Buffer b = allocate_buffer(m);
  const size_t offset = static_cast<size_t>(host.layout.offset) * dtype_size(m.dtype);
  OpenWork w(queue_of(m)->open({}, nullptr, {}));
  w->copy(b.storage, 0, host.storage, offset, m.bytes());
  b.work = w.close();
  return b;
}

}  // namespace mge
