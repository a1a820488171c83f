#include <cstring>
#include <thread>

#include "kernel/cuda/machine.h"

namespace mge::cuda {
namespace {

constexpr uint64_t kMarkEvery = 16;   // works between two events: one costs as much as a small launch
constexpr size_t kQueueLimit = 1024;  // works of one stream that are not done; whoever opens one more waits
constexpr size_t kAlignedBlock = 512 << 10;
constexpr size_t kTidy = 64;                            // works in flight from which those that are done are looked for
constexpr auto kSpin = std::chrono::microseconds(200);  // a wait looks again and again for so long, then naps
constexpr auto kNap = std::chrono::microseconds(30);

}  // namespace

// ---- work

CudaWork::CudaWork(CudaStream& s, const char* op, Explain e)
    : Work(s), raw(s.raw), op_(op ? op : ""), explain_(std::move(e)) {}
CudaWork::~CudaWork() = default;
CudaStream& CudaWork::queue() const { return static_cast<CudaStream&>(stream); }

// The stream's work so far is waited for: nothing that trains or infers comes here.
void CudaWork::call(std::function<void()> fn) {
  if (recording_) recording_->refused = true;
  stream.drain();
  fn();
}

void CudaWork::depend(const RefPtr<Work>& on) { after_.push_back(on); }

int64_t* CudaWork::words(std::function<void(const int64_t*)> raise) {
  auto p = std::make_shared<Pinned>(Pinned::take(4 * sizeof(int64_t)));
  MGE_CHECK(*p, Memory, "gpu{}: no page-locked memory to be had.", stream.device.index);
  std::memset(p->data(), 0, 4 * sizeof(int64_t));
  auto* at = static_cast<int64_t*>(p->data());
  (recording_ ? recording_->alarms : alarms_).push_back({std::move(p), std::move(raise)});
  return at;
}

void CudaWork::keep(std::shared_ptr<const void> what) {
  (recording_ ? recording_->kept : kept_).push_back(std::move(what));
}

// Libraries want 256 bytes of alignment; the pool gives it to blocks that are not small.
RefPtr<Storage> CudaWork::scratch(size_t bytes) {
  auto s = allocate_storage(stream.device, std::max(bytes, kAlignedBlock), &stream);
  if (recording_) recording_->scratch.push_back(s);
  return s;
}

void CudaWork::copy(const RefPtr<Storage>& to, size_t to_offset, const RefPtr<Storage>& from, size_t from_offset,
                    size_t bytes) {
  if (!bytes) return;
  CudaStream& s = queue();
  Machine& m = Machine::get();
  if (s.state.dead) m.refuse_lost(s.state, op_.empty() ? nullptr : op_.c_str());
  if (recording_ && !(to->device == stream.device && from->device == stream.device)) {
    recording_->refused = true;  // host memory is read once; nothing of the recording will be used
    return;
  }
  const Driver& d = driver();
  char *dst = static_cast<char*>(to->ptr) + to_offset, *src = static_cast<char*>(from->ptr) + from_offset;
  const auto dst_at = reinterpret_cast<CUdeviceptr>(dst), src_at = reinterpret_cast<CUdeviceptr>(src);
  const bool up = to->device.kind == DeviceKind::Cuda, down = from->device.kind == DeviceKind::Cuda;
  if (up && down) {
    if (to->device.index == from->device.index)
      return m.check(s.state, d.cuMemcpyDtoDAsync(dst_at, src_at, bytes, raw), "cuMemcpyDtoDAsync");
    return m.check(s.state,
                   d.cuMemcpyPeerAsync(dst_at, m.device(to->device.index).context, src_at,
                                       m.device(from->device.index).context, bytes, s.raw),
                   "cuMemcpyPeerAsync");
  }
  MGE_CHECK(host_readable(up ? *from : *to), NotImplemented, "copy: from {} to {}, by way of the host.",
            from->device.name(), to->device.name());
  Pinned staged = Pinned::take(bytes);
  if (up) {
    if (staged) {
      std::memcpy(staged.data(), src, bytes);
      src = static_cast<char*>(staged.data());
      staged_.push_back(std::move(staged));
    } else {
      kept_.push_back(std::make_shared<RefPtr<Storage>>(from));
    }
    return m.check(s.state, d.cuMemcpyHtoDAsync(dst_at, src, bytes, s.raw), "cuMemcpyHtoDAsync");
  }
  if (!staged) {  // the driver copies to pageable memory before it returns, or while `to` is kept
    kept_.push_back(std::make_shared<RefPtr<Storage>>(to));
    return m.check(s.state, d.cuMemcpyDtoHAsync(dst, src_at, bytes, s.raw), "cuMemcpyDtoHAsync");
  }
  m.check(s.state, d.cuMemcpyDtoHAsync(staged.data(), src_at, bytes, s.raw), "cuMemcpyDtoHAsync");
  // Whoever waits for anything enqueued behind it finds the bytes in place, though this work be open still.
  auto part = make_ref<CudaWork>(s, nullptr, Explain());
  part->reads_.push_back({std::move(staged), to, to_offset, bytes});
  s.enlist(part);
}

void CudaWork::close() {
  if (ticket_) return;
  queue().enlist(RefPtr<CudaWork>(this));
  if (bound_) driver().cuCtxSetCurrent(before_);
}

// Called while reaping, and before that by whoever asks for the error of work that goes on.
void CudaWork::look() const {
  if (failure_) return;
  for (auto& a : after_) {
    auto* other = dynamic_cast<CudaWork*>(a.get());
    auto e = other ? other->failure_ : a->error();
    if (e) {
      failure_ = e;
      return;
    }
  }
  for (auto& a : alarms_) {
    auto* words = static_cast<int64_t*>(a.words->data());
    // Words of a recording serve one run after the other: who tells of the error takes it.
    if (!std::atomic_ref<int64_t>(words[0]).exchange(0)) continue;
    try {
      a.raise(words);
      fail(ErrorKind::Internal, "an error of the device has no text.");
    } catch (...) {
      failure_ = explain_ ? explain_(std::current_exception())
                          : std::make_shared<ExecError>(ErrorKind::Env, "a copy on the device failed.");
    }
    return;
  }
}

void CudaWork::finish(std::shared_ptr<const ExecError> lost, Garbage& garbage) {
  if (finished_.load(std::memory_order_acquire)) return;
  if (lost)
    failure_ = std::move(lost);
  else
    look();
  if (!failure_)
    for (auto& r : reads_) std::memcpy(static_cast<char*>(r.to->ptr) + r.offset, r.from.data(), r.bytes);
  explain_ = nullptr;
  alarms_.clear();
  staged_.clear();
  std::move(after_.begin(), after_.end(), std::back_inserter(garbage.after));
  after_.clear();
  std::move(kept_.begin(), kept_.end(), std::back_inserter(garbage.kept));
  kept_.clear();
  for (auto& r : reads_) garbage.kept.push_back(std::make_shared<RefPtr<Storage>>(std::move(r.to)));
  reads_.clear();
  finished_.store(true, std::memory_order_release);
}

std::shared_ptr<const ExecError> CudaWork::error() const {
  if (finished_.load(std::memory_order_acquire)) return failure_;
  std::lock_guard<std::mutex> lock(Machine::get().reaping);
  if (!finished_) look();
  return failure_;
}

bool CudaWork::wait_for(std::chrono::milliseconds patience) {
  Machine& m = Machine::get();
  CudaStream& s = queue();
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    if (finished_.load(std::memory_order_acquire)) return true;
    if (Machine::forked()) {
      failure_ = std::make_shared<ExecError>(
          ErrorKind::Env, "this value lies on a GPU, and a forked process cannot use CUDA. Read it before the fork.");
      finished_ = true;
      return true;
    }
    {
      std::lock_guard<std::mutex> lock(s.mutex_);
      if (ticket_ && ticket_ > s.complete_ && (s.marks_.empty() || s.marks_.back().upto < ticket_)) s.mark();
    }
    m.reap(s);
    if (finished_.load(std::memory_order_acquire)) return true;
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= patience) return false;
    if (waited > kSpin)
      std::this_thread::sleep_for(kNap);
    else
      std::this_thread::yield();
  }
}

// ---- streams

CudaStream::CudaStream(DeviceState& st, Device d, int i) : Stream(d, i, /*host_kernels=*/false), state(st) {
  const Bind bind(state.context);
  check(driver().cuStreamCreate(&raw, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

RefPtr<Work> CudaStream::open(std::span<Work* const> after, const char* op, Explain explain) {
  Machine& m = Machine::get();
  MGE_CHECK(!Machine::forked(), Env,
            "{}: a forked process cannot use CUDA. Start processes by spawn, or fork before the "
            "first use of a GPU.",
            op ? op : "copy");
  if (op && state.dead) m.refuse_lost(state, op);
  wait_for_space();
  auto w = make_ref<CudaWork>(*this, op, std::move(explain));
  // The caller's thread enqueues until the work is closed.
  check(driver().cuCtxGetCurrent(&w->before_), "cuCtxGetCurrent");
  if (w->before_ != state.context) {
    check(driver().cuCtxSetCurrent(state.context), "cuCtxSetCurrent");
    w->bound_ = true;
  }
  for (Work* a : after) {
    if (!a) continue;
    auto* other = dynamic_cast<CudaWork*>(a);
    if (other && other->finished_.load(std::memory_order_acquire) && !other->failure_) continue;
    w->after_.emplace_back(a);
    if (!other)
      while (!a->wait_for(kPatience)) continue;  // of another kind of device
    else if (&other->queue() != this && !other->finished_)
      wait_for_stream(other->queue());
  }
  return w;
}

void CudaStream::enlist(RefPtr<CudaWork> w) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state.dead) {  // nothing will come of it: what has been enqueued told so already
    w->failure_ = state.lost;
    if (w->op_.empty() && w->after_.empty() && w->reads_.empty()) w->failure_ = nullptr;
    w->ticket_ = ++closed_;
    w->finished_ = true;
    return;
  }
  w->ticket_ = ++closed_;
  const uint64_t n = w->ticket_;
  flying_.push_back(std::move(w));
  if (n >= (marks_.empty() ? complete_ : marks_.back().upto) + kMarkEvery) mark();
}

void CudaStream::mark() {
  if (!marks_.empty() && marks_.back().upto == closed_) return;
  const Bind bind(state.context);
  CUevent e = state.take_event();
  // An error that is fatal is found by whoever polls; the event then never comes by itself.
  (void)driver().cuEventRecord(e, raw);
  marks_.push_back({e, closed_});
}

void CudaStream::poll() {
  const Bind bind(state.context);
  CUresult r = CUDA_SUCCESS;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    while (!marks_.empty()) {
      r = driver().cuEventQuery(marks_.front().event);
      if (r != CUDA_SUCCESS) break;
      complete_ = marks_.front().upto;
      state.give_event(marks_.front().event);
      marks_.pop_front();
    }
  }
  if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY) throw DeviceLost(state, r);
}

void CudaStream::wait_for_space() {
  auto crowded = [&](bool first) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (flying_.size() >= kQueueLimit) return true;
    if (!first || flying_.size() < kTidy || closed_ < look_at_) return false;
    look_at_ = closed_ + kMarkEvery;  // a look costs as much as a small launch
    return true;
  };
  Machine& m = Machine::get();
  for (bool first = true; crowded(first); first = false) {
    if (!first) std::this_thread::sleep_for(kNap);
    m.reap(*this);
  }
}

// A new event, which also says when the work before it is complete: what waits for it may be settled first.
void CudaStream::let_wait(CUstream other) {
  CUresult r;
  {
    const Bind bind(state.context);
    std::lock_guard<std::mutex> lock(mutex_);
    CUevent e = state.take_event();
    r = driver().cuEventRecord(e, raw);
    if (r == CUDA_SUCCESS) r = driver().cuStreamWaitEvent(other, e, 0);
    marks_.push_back({e, closed_});
  }
  if (r != CUDA_SUCCESS && !is_fatal(r)) Machine::get().check(state, r, "cuStreamWaitEvent");  // fatal: told by a poll
}

void CudaStream::wait_for_stream(Stream& other) {
  if (&other == this || Machine::forked()) return;
  if (auto* o = dynamic_cast<CudaStream*>(&other))
    o->let_wait(raw);
  else
    other.drain();
}

void CudaStream::drain() {
  if (Machine::forked()) return;
  RefPtr<CudaWork> end = make_ref<CudaWork>(*this, nullptr, Explain());
  enlist(end);
  while (!end->wait_for(std::chrono::milliseconds(1000))) continue;
}

}  // namespace mge::cuda
