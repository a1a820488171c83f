#include "kernel/cuda/machine.h"

#include <pthread.h>

#include "core/pool.h"

namespace mge::cuda {
namespace {

std::atomic<bool> g_forked{false};
Machine* g_machine = nullptr;

std::shared_ptr<const ExecError> explained(const Explain& explain, ErrorKind kind, const std::string& text) {
  if (!explain) return std::make_shared<ExecError>(kind, text);
  try {
    throw Error(kind, text);
  } catch (...) {
    return explain(std::current_exception());
  }
}

}  // namespace

CUevent DeviceState::take_event() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!events.empty()) {
      CUevent e = events.back();
      events.pop_back();
      return e;
    }
  }
  CUevent e = nullptr;
  cuda::check(driver().cuEventCreate(&e, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return e;
}

void DeviceState::give_event(CUevent e) {
  std::lock_guard<std::mutex> lock(mutex);
  events.push_back(e);
}

Machine& Machine::get() {
  static auto* m = new Machine;
  return *m;
}

Machine::Machine() {
  const Driver& d = driver();
  cuda::check(d.cuInit(0), "cuInit");
  int n = 0;
  cuda::check(d.cuDeviceGetCount(&n), "cuDeviceGetCount");
  for (int i = 0; i < std::min(n, kMaxDevices); ++i) {
    auto s = std::make_unique<DeviceState>();
    s->index = i;
    cuda::check(d.cuDeviceGet(&s->device, i), "cuDeviceGet");
    auto ask = [&](int what, int* to) {
      cuda::check(d.cuDeviceGetAttribute(to, what, s->device), "cuDeviceGetAttribute");
    };
    ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &s->arch.major);
    ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &s->arch.minor);
    ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &s->arch.sms);
    ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &s->arch.shared_optin);
    devices_.push_back(std::move(s));
  }
  g_machine = this;
  pthread_atfork(before_fork, after_fork, start_over);
}

DeviceState& Machine::device(int index) {
  MGE_CHECK(index >= 0 && index < count(), Value, "gpu{}: this machine has {} GPUs.", index, count());
  DeviceState& d = *devices_[static_cast<size_t>(index)];
  std::lock_guard<std::mutex> lock(mutex_);
  if (!d.context) {
    MGE_CHECK(!forked(), Env,
              "gpu{}: a forked process cannot use CUDA. Start processes by spawn, or fork before the first "
              "use of a GPU.",
              index);
    cuda::check(driver().cuDevicePrimaryCtxRetain(&d.context, d.device), "cuDevicePrimaryCtxRetain");
  }
  return d;
}

CudaStream* Machine::stream(Device dev, int index) {
  DeviceState& d = device(dev.index);
  std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = d.streams[index];
  if (!slot) slot = new CudaStream(d, dev, index);
  return slot;
}

bool Machine::forked() { return g_forked.load(std::memory_order_relaxed); }

// ---- what the device has done, and what became of it

void Machine::finish(CudaWork& w, Garbage& garbage) {
  if (w.finished_.load(std::memory_order_acquire)) return;
  // Work of other streams that this came after is complete, too, but perhaps not yet settled.
  for (auto& a : w.after_) {
    auto* other = dynamic_cast<CudaWork*>(a.get());
    if (!other || other->finished_.load(std::memory_order_acquire) || &other->queue() == &w.queue()) continue;
    CudaStream& s = other->queue();
    s.poll();
    std::unique_lock<std::mutex> lock(s.mutex_);
    const bool complete = other->ticket_ && other->ticket_ <= s.complete_;
    lock.unlock();
    if (complete) finish(*other, garbage);
  }
  w.finish(nullptr, garbage);
}

void Machine::settle(CudaStream& s, Garbage& garbage) {
  s.poll();
  const size_t first = garbage.works.size();
  {
    std::lock_guard<std::mutex> lock(s.mutex_);
    while (!s.flying_.empty() && s.flying_.front()->ticket_ <= s.complete_) {
      garbage.works.push_back(std::move(s.flying_.front()));
      s.flying_.pop_front();
    }
  }
  for (size_t i = first; i < garbage.works.size(); ++i) finish(*garbage.works[i], garbage);
}

bool Machine::reap(CudaStream& s) {
  Garbage garbage;
  std::unique_lock<std::mutex> lock(reaping, std::try_to_lock);
  if (!lock.owns_lock() || forked()) return false;
  try {
    settle(s, garbage);
  } catch (const DeviceLost& e) {
    lose(*e.device, e.result, garbage);
  }
  lock.unlock();
  return !garbage.works.empty();
}

void Machine::lose(DeviceState& d, CUresult r, Garbage& garbage) {
  auto& works = garbage.works;
  const size_t first = works.size();
  std::lock_guard<std::mutex> all(mutex_);
  for (auto& [index, s] : d.streams) {
    std::lock_guard<std::mutex> lock(s->mutex_);
    for (auto& w : s->flying_) works.push_back(std::move(w));
    s->flying_.clear();
    s->marks_.clear();
    s->complete_ = s->closed_;
  }
  if (!d.lost) {
    const std::string text = format(
        "gpu{}: {} while this op, or one of the {} enqueued behind it, ran. The device is lost to this process; "
        "start another. With config async_level 0 the op that fails is the one named.",
        d.index, error_text(r), works.size() - first);
    for (size_t i = first; i < works.size() && !d.lost; ++i)
      if (works[i]->explain_) d.lost = explained(works[i]->explain_, ErrorKind::Env, text);
    if (!d.lost) d.lost = std::make_shared<ExecError>(ErrorKind::Env, text);
    d.dead = true;
  }
  for (auto& w : works) w->finish(d.lost, garbage);
}

void Machine::check(DeviceState& d, CUresult r, const char* what) {
  if (__builtin_expect(r == CUDA_SUCCESS, 1)) return;
  if (!is_fatal(r)) return cuda::check(r, what);
  Garbage garbage;
  {
    std::lock_guard<std::mutex> lock(reaping);
    lose(d, r, garbage);
  }
  refuse_lost(d, what);
}

void Machine::refuse_lost(DeviceState& d, const char* op) {
  fail(ErrorKind::Env, "{}: device gpu{} is lost. Tensors on other devices are not affected.", op ? op : "copy",
       d.index);
}

// ---- fork: a child has neither the context nor the driver's threads. Its tensors on a GPU cannot be read, and new
// ones cannot be made.

void Machine::before_fork() { g_machine->reaping.lock(); }
void Machine::after_fork() { g_machine->reaping.unlock(); }
void Machine::start_over() {
  g_forked = true;
  auto error = std::make_shared<const ExecError>(
      ErrorKind::Env,
      "this value was still being computed when the process was forked, and the child does not have it. Read it before "
      "the fork.");
  for (auto& d : g_machine->devices_)
    for (auto& [index, s] : d->streams) {
      new (&s->mutex_) std::mutex;  // another thread of the parent may hold it
      for (auto& w : s->flying_) {
        w->failure_ = error;
        w->finished_ = true;
      }
      new std::deque<RefPtr<CudaWork>>(std::exchange(s->flying_, {}));  // left as they are: the parent's memory
    }
  g_machine->reaping.unlock();
  Pool::start_over(DeviceKind::Cuda);
}

}  // namespace mge::cuda
