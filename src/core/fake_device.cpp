#include "core/fake_device.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/poison.h"
#include "core/pool.h"

namespace mge {
namespace {

constexpr size_t kMemory = size_t{16} << 30;  // addresses, of all fake devices together; pages come when touched
constexpr size_t kQueueLimit = 64;            // ops of one stream that are not done; whoever opens one more waits
constexpr auto kForkPatience = std::chrono::seconds(1);

class FakeStream;
class FakeWork;

// One thread runs the work of all streams of all fake devices, one item at a time: of those that may run now, a random
// one.
class Machine {
 public:
  Machine();
  /// The one of this process; a forked child has another.
  static Machine& get() { return **current(); }

  // ---- memory: what the host is given has no access rights; `delta` further on lies the same memory with them.
  void* map(size_t bytes);
  void unmap(void* p, size_t bytes);
  bool owns(const void* p) const { return p >= seen && p < seen + kMemory; }
  char *seen = nullptr, *real = nullptr;
  std::map<char*, size_t> holes;  // free address ranges
  std::mutex holes_mutex;         // the pool holds its own then, which a fork takes behind that of the queue

  // ---- work
  struct Item {
    enum Kind { Begin, Call, End, Wait } kind;
    RefPtr<FakeWork> work;        // null for Wait
    std::function<void()> call;   // Call
    FakeStream* other = nullptr;  // Wait: until it has done …
    uint64_t ticket = 0;          // … so many items
  };
  void push(FakeStream& s, Item item);
  void loop();
  bool runnable(const FakeStream& s) const;
  void set_delay(int64_t microseconds) {  // under the lock
    delay = microseconds;
    ++delays;
    delay_set.notify_all();
  }

  std::mutex mutex;
  std::condition_variable work, done, delay_set;
  std::vector<FakeStream*> streams;
  bool started = false, busy = false;
  int forks = 0;
  std::unique_lock<std::mutex> forking;

  // ---- trouble
  int64_t delay = 0, fail_in = 0, run = 0;
  uint64_t delays = 0;  // how often it was set
  uint64_t random = 1;
  FakeFault fault = FakeFault::Kernel;
  bool lost[kMaxDevices] = {};

  static Machine** current() {
    static Machine* m = new Machine;
    return &m;
  }
};

class FakeWork final : public Work {
 public:
  FakeWork(Stream& s, Explain e) : Work(s), explain(std::move(e)) {}
  void call(std::function<void()> fn) override;
  void copy(const RefPtr<Storage>& to, size_t to_offset, const RefPtr<Storage>& from, size_t from_offset,
            size_t bytes) override;
  void close() override;
  bool wait_for(std::chrono::milliseconds patience) override;
  std::shared_ptr<const ExecError> error() const override { return failure; }

  Explain explain;
  std::vector<RefPtr<Work>> after;
  bool is_op = false, broken = false;  // broken: the fault that was due
  std::string op;
  std::atomic<bool> finished{false};
  std::shared_ptr<const ExecError> failure;  // set before `finished`
};

class FakeStream final : public Stream {
 public:
  FakeStream(Device d, int i) : Stream(d, i, /*host_kernels=*/true) {}
  RefPtr<Work> open(std::span<Work* const> after, const char* op, Explain explain) override;
  void wait_for_stream(Stream& other) override;
  void drain() override;
  void* reach(void* p) const override {
    Machine& m = Machine::get();
    MGE_CHECK(!p || m.owns(p), Env, "{}: this memory belongs to the process that was forked, and is not there.",
              device.name());
    return p ? m.real + (static_cast<char*>(p) - m.seen) : nullptr;
  }

  std::deque<Machine::Item> queue;
  uint64_t pushed = 0, finished = 0;  // items
  size_t open_ops = 0;
};

class FakeBackend final : public Backend {
 public:
  static FakeBackend& get() {
    static auto* b = new FakeBackend;
    return *b;
  }
  bool host_access() const override { return false; }
  void* map(Device, size_t bytes) override { return Machine::get().map(bytes); }
  void unmap(Device, void* p, size_t bytes) override { Machine::get().unmap(p, bytes); }
  void poison(void* p, size_t bytes, bool on) override {
    Machine& m = Machine::get();
    if (m.owns(p)) poison_memory(m.real + (static_cast<char*>(p) - m.seen), bytes, on);
  }
  Stream* stream(Device device, int index) override {
    std::lock_guard<std::mutex> lock(Machine::get().mutex);
    auto& slot = streams_[{device.index, index}];
    if (!slot) Machine::get().streams.push_back(slot = new FakeStream(device, index));
    return slot;
  }
  std::pair<size_t, size_t> memory(Device) const override { return {kMemory, kMemory}; }
  int count() const override { return kMaxDevices; }

 private:
  std::map<std::pair<int, int>, FakeStream*> streams_;
};

// ---- memory

Machine::Machine() {
  int fd = memfd_create("fake device", MFD_CLOEXEC);
  MGE_CHECK(fd >= 0 && ftruncate(fd, kMemory) == 0, Env, "fake device: no memory of its own to be had.");
  auto at = [&](int access) {
    void* p = mmap(nullptr, kMemory, access, MAP_SHARED | MAP_NORESERVE, fd, 0);
    MGE_CHECK(p != MAP_FAILED, Env, "fake device: its memory cannot be mapped.");
    return static_cast<char*>(p);
  };
  seen = at(PROT_NONE);
  real = at(PROT_READ | PROT_WRITE);
  close(fd);
  // The pool cuts blocks by address: ranges start at a multiple of 2 MiB.
  constexpr size_t kPage = 2 << 20;
  const size_t skip = (kPage - reinterpret_cast<uintptr_t>(seen) % kPage) % kPage;
  holes[seen + skip] = kMemory - kPage;
}

void* Machine::map(size_t bytes) {
  std::lock_guard<std::mutex> lock(holes_mutex);
  for (auto it = holes.begin(); it != holes.end(); ++it) {
    if (it->second < bytes) continue;
    auto [at, size] = *it;
    holes.erase(it);
    if (size > bytes) holes[at + bytes] = size - bytes;
    return at;
  }
  return nullptr;
}

void Machine::unmap(void* p, size_t bytes) {
  if (!owns(p)) return;  // of the parent of a forked child
  char* at = static_cast<char*>(p);
  madvise(real + (at - seen), bytes, MADV_REMOVE);
  std::lock_guard<std::mutex> lock(holes_mutex);
  auto it = holes.emplace(at, bytes).first;
  if (auto next = std::next(it); next != holes.end() && at + bytes == next->first) {
    it->second += next->second;
    holes.erase(next);
  }
  if (it != holes.begin())
    if (auto prev = std::prev(it); prev->first + prev->second == at) {
      prev->second += it->second;
      holes.erase(it);
    }
}

// ---- work

void Machine::push(FakeStream& s, Item item) {  // under the lock
  if (!started) {
    started = true;
    std::thread([this] { loop(); }).detach();
  }
  s.queue.push_back(std::move(item));
  ++s.pushed;
  work.notify_one();
}

bool Machine::runnable(const FakeStream& s) const {
  if (s.queue.empty()) return false;
  const Item& i = s.queue.front();
  if (i.kind == Item::Wait) return i.other->finished >= i.ticket;
  if (i.kind == Item::Begin)
    for (auto& w : i.work->after)
      if (!static_cast<FakeWork&>(*w).finished) return false;
  return true;
}

void Machine::loop() {
  for (;;) {
    FakeStream* s = nullptr;
    std::unique_lock<std::mutex> lock(mutex);
    work.wait(lock, [&] {
      if (forks) return false;
      std::vector<FakeStream*> now;
      for (auto* each : streams)
        if (runnable(*each)) now.push_back(each);
      if (now.empty()) return false;
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      s = now[(random >> 33) % now.size()];
      return true;
    });
    Item item = std::move(s->queue.front());
    s->queue.pop_front();
    busy = true;
    FakeWork* w = item.work.get();
    if (item.kind == Item::Begin) {
      for (auto& before : w->after)
        if (!w->failure) w->failure = before->error();
    }
    const bool runs = item.kind == Item::Begin && w->is_op && !w->failure;
    const int64_t pause = runs ? delay : 0;
    if (runs) ++run;
    if (pause)
      delay_set.wait_for(lock, std::chrono::microseconds(pause), [this, before = delays] { return delays != before; });
    lock.unlock();
    if (item.kind == Item::Begin) {
      w->after.clear();
      if (w->broken)
        item.call = [w] { fail(ErrorKind::Env, "{}: injected fault on {}.", w->op, w->stream.device.name()); };
    }
    if (item.call && !w->failure) {
      try {
        item.call();
      } catch (...) {
        w->failure = w->explain ? w->explain(std::current_exception())
                                : std::make_shared<ExecError>(ErrorKind::Env, "a copy to or from the device failed.");
      }
    }
    item.call = nullptr;  // drops memory, before anybody hears that it is done
    lock.lock();
    ++s->finished;
    if (item.kind == Item::End) {
      if (w->is_op) --s->open_ops;
      w->finished = true;
    }
    busy = false;
    lock.unlock();
    item.work.reset();
    done.notify_all();
    work.notify_one();
  }
}

void FakeWork::call(std::function<void()> fn) {
  Machine& m = Machine::get();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.push(static_cast<FakeStream&>(stream), {Machine::Item::Call, RefPtr<FakeWork>(this), std::move(fn)});
}

void FakeWork::copy(const RefPtr<Storage>& to, size_t to_offset, const RefPtr<Storage>& from, size_t from_offset,
                    size_t bytes) {
  if (!bytes) return;
  call([=, s = &stream] {
    auto at = [&](const Storage& m, size_t offset) {
      char* p = static_cast<char*>(m.ptr) + offset;
      return host_readable(m) ? static_cast<void*>(p) : s->reach(p);
    };
    std::memcpy(at(*to, to_offset), at(*from, from_offset), bytes);
  });
}

void FakeWork::close() {
  Machine& m = Machine::get();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.push(static_cast<FakeStream&>(stream), {Machine::Item::End, RefPtr<FakeWork>(this), nullptr});
}

bool FakeWork::wait_for(std::chrono::milliseconds patience) {
  if (finished) return true;
  Machine& m = Machine::get();
  std::unique_lock<std::mutex> lock(m.mutex);
  return m.done.wait_for(lock, patience, [&] { return finished.load(); });
}

RefPtr<Work> FakeStream::open(std::span<Work* const> after, const char* op, Explain explain) {
  Machine& m = Machine::get();
  auto w = make_ref<FakeWork>(*this, std::move(explain));
  for (Work* a : after)
    if (a) w->after.emplace_back(a);
  std::unique_lock<std::mutex> lock(m.mutex);
  if (op) {
    w->is_op = true;
    w->op = op;
    m.done.wait(lock, [&] { return open_ops < kQueueLimit; });
    const bool due = m.fail_in > 0 && --m.fail_in == 0;
    if (due && m.fault == FakeFault::Lost) m.lost[device.index] = true;
    if (m.lost[device.index] || (due && m.fault == FakeFault::Memory)) ++m.run;  // it will not come to run
    MGE_CHECK(!m.lost[device.index], Env, "{}: device {} is lost. Tensors on other devices are not affected.", op,
              device.name());
    MGE_CHECK(!due || m.fault != FakeFault::Memory, Memory, "{}: out of memory on {}, as the test asked.", op,
              device.name());
    w->broken = due;
    ++open_ops;
  }
  m.push(*this, {Machine::Item::Begin, w, nullptr});
  return w;
}

void FakeStream::wait_for_stream(Stream& other) {
  if (&other == this) return;
  Machine& m = Machine::get();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto& o = static_cast<FakeStream&>(other);
  m.push(*this, {Machine::Item::Wait, nullptr, nullptr, &o, o.pushed});
}

void FakeStream::drain() {
  Machine& m = Machine::get();
  std::unique_lock<std::mutex> lock(m.mutex);
  m.done.wait(lock, [&, target = pushed] { return finished >= target; });
}

// ---- fork: the thread is not in the child, and its memory is the parent's. The child gets another machine; work that
// was not done fails there.

void before_fork() {
  Machine& m = Machine::get();
  std::unique_lock<std::mutex> lock(m.mutex);
  ++m.forks;
  m.done.wait_for(lock, kForkPatience, [&] { return !m.busy; });
  m.forking = std::move(lock);
}
void after_fork() {
  Machine& m = Machine::get();
  --m.forks;
  std::exchange(m.forking, {}).unlock();
  m.work.notify_one();
}
void start_over() {
  Machine& parents = Machine::get();
  auto error = std::make_shared<const ExecError>(
      ErrorKind::Env,
      "this value was still being computed when the process was forked, and the child does not have it. Read it before "
      "the fork.");
  auto* own = new Machine;
  own->streams = parents.streams;
  for (auto* s : own->streams) {
    for (auto& i : s->queue)
      if (i.work && !i.work->finished) {
        i.work->failure = error;
        i.work->finished = true;
      }
    new std::deque<Machine::Item>(std::exchange(s->queue, {}));  // left as they are: the parent's memory is in them
    s->pushed = s->finished = s->open_ops = 0;
  }
  *Machine::current() = own;
  Pool::start_over(DeviceKind::Fake);
}

}  // namespace

void enable_fake_devices() {
  static const bool ready = [] {
    Backend::install(DeviceKind::Fake, &FakeBackend::get());
    Machine::get();
    return pthread_atfork(before_fork, after_fork, start_over) == 0;
  }();
  (void)ready;
}

void fake_set_delay(int64_t microseconds) {
  MGE_CHECK(microseconds >= 0, Value, "fake device: the delay must not be negative; got {}.", microseconds);
  std::lock_guard<std::mutex> lock(Machine::get().mutex);
  Machine::get().set_delay(microseconds);
}

void fake_fail_at(int64_t nth, FakeFault fault) {
  MGE_CHECK(nth >= 0, Value, "fake device: the fault must be at op 1 or later; got {}.", nth);
  Machine& m = Machine::get();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.fail_in = nth;
  m.fault = fault;
}

int64_t fake_ops_run() {
  std::lock_guard<std::mutex> lock(Machine::get().mutex);
  return Machine::get().run;
}

void fake_set_seed(uint64_t seed) {
  std::lock_guard<std::mutex> lock(Machine::get().mutex);
  Machine::get().random = seed;
}

void fake_reset() {
  Machine& m = Machine::get();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.set_delay(0);
  m.fail_in = m.run = 0;
  for (bool& l : m.lost) l = false;
}

}  // namespace mge
