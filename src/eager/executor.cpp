#include "eager/executor.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "core/pool.h"
#include "eager/fake_device.h"

namespace mge {
namespace {

std::atomic<int> g_policy{0}, g_async_level{2};
std::atomic<bool> g_donation{true};
WaitHooks g_wait_hooks;
LocationHooks g_hooks;

std::string describe(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in) {
  std::string s = op.name + "(";
  for (size_t i = 0; i < in.size(); ++i) s += (i ? ", " : "") + in[i].meta->str();
  s += ")";
  if (attrs) s += " " + attrs->print();
  return s;
}

void set_failed(std::span<const ValuePtr> out, std::shared_ptr<const ExecError> error) {
  for (auto& v : out) {
    v->buffer = {};
    v->error = error;
    v->state.store(State::Failed, std::memory_order_release);
  }
}

// Runs one op whose inputs are all Ready. Host work on tiny values is not `on_device`. An error leaves naming the op
// and the place, and the outputs marked failed.
void execute(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in, std::span<const ValuePtr> out,
             LocId loc, bool on_device) {
  try {
    const CompNode* cn = out[0]->meta.cn;
    std::optional<ThreadLimit> threads;
    if (__builtin_expect(cn->threads != 0, 0)) threads.emplace(cn->threads);
    if (__builtin_expect(on_device && cn->device.kind == DeviceKind::Fake, 0)) fake_before_op(op.name, cn->device);
    if (out.size() == 1) {
      run_op(op, attrs, in, {&out[0]->meta, 1}, {&out[0]->buffer, 1});
    } else {
      SmallVec<Meta, 4> metas;
      SmallVec<Buffer, 4> buffers(out.size());
      for (auto& v : out) metas.push_back(v->meta);
      run_op(op, attrs, in, {metas.data(), metas.size()}, {buffers.data(), buffers.size()});
      for (size_t i = 0; i < out.size(); ++i) out[i]->buffer = std::move(buffers[i]);
    }
  } catch (const std::exception& e) {
    auto* ours = dynamic_cast<const Error*>(&e);
    std::string where = location_text(loc);
    std::string text =
        format("{}\n  in {}{}{}", e.what(), describe(op, attrs, in), where.empty() ? "" : "\n  at ", where);
    ErrorKind kind = ours ? ours->kind() : ErrorKind::Internal;
    set_failed(out, std::make_shared<ExecError>(kind, text));
    throw Error(kind, text);
  }
  for (auto& v : out) v->set_ready();
}

void execute(Command& c) {
  bool donate = g_donation.load(std::memory_order_relaxed);
  SmallVec<OpInput, 4> in;
  for (auto& v : c.in) {
    // This command holds the only reference to the value and the value the only one to its memory: nobody can look.
    bool dies = donate && v->ref_count() == 1 && v->buffer.storage->ref_count() == 1;
    in.push_back({&v->meta, &v->buffer, dies});
  }
  execute(*c.op, c.attrs.get(), {in.data(), in.size()}, {c.out.data(), c.out.size()}, c.loc, true);
}

// Waits like cv.wait(lock, done), without the interpreter lock, and now and then asks whether the user has had enough.
// Our lock is never held while the interpreter's is waited for: its holder may be waiting for ours.
template <class Done>
void wait_patiently(std::condition_variable& cv, std::unique_lock<std::mutex>& lock, Done done) {
  if (done()) return;
  struct Away {
    std::unique_lock<std::mutex>& lock;
    void* token;
    ~Away() {
      if (lock.owns_lock()) lock.unlock();
      if (g_wait_hooks.end) g_wait_hooks.end(token);
      lock.lock();
    }
  };
  lock.unlock();
  Away away{lock, g_wait_hooks.begin ? g_wait_hooks.begin() : nullptr};
  lock.lock();
  while (!cv.wait_for(lock, std::chrono::milliseconds(50), done)) {
    if (!g_wait_hooks.check) continue;
    lock.unlock();
    g_wait_hooks.check();
    lock.lock();
  }
}

// A fork waits until the running op is done, so that the child inherits no lock that the worker holds inside an op. The
// child starts with a worker of its own; what the parent had queued fails there.
class Worker {
 public:
  static Worker& get() { return *current(); }

  void push(Command&& c) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!started_) start();
    while (queue_.size() >= kQueueLimit) wait_patiently(space_, lock, [&] { return queue_.size() < kQueueLimit; });
    queue_.push_back(std::move(c));
    ++pushed_;
    lock.unlock();
    work_.notify_one();
  }

  void drain() {
    std::unique_lock<std::mutex> lock(mutex_);
    uint64_t target = pushed_;
    wait_patiently(done_, lock, [&] { return finished_ >= target; });
  }

  void wait_for(Value& v) {
    for (int spin = 0; spin < 200; ++spin)
      if (v.state.load(std::memory_order_acquire) != State::Pending) return;
    std::unique_lock<std::mutex> lock(mutex_);
    wait_patiently(done_, lock, [&] { return v.state.load(std::memory_order_acquire) != State::Pending; });
  }

  /// The oldest root error that nobody was told of, and how many more there are; empty when there is none.
  std::string take_unseen() {
    std::lock_guard<std::mutex> lock(mutex_);
    auto taken = std::exchange(errors_, {});
    size_t more = std::exchange(errors_dropped_, 0);
    std::erase_if(taken, [](auto& e) { return e->seen.load(); });
    if (taken.empty()) return {};
    for (auto& e : taken) e->seen = true;
    more += taken.size() - 1;
    return taken[0]->text + (more ? format("\n  ({} more failed ops nobody read)", more) : "");
  }

  bool started() const { return started_.load(std::memory_order_relaxed); }

  void stop() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (!started_) return;
      done_.wait(lock, [&] { return finished_ >= pushed_; });
      stopping_ = true;
    }
    work_.notify_one();
    thread_.join();
    started_ = false;
    stopping_ = false;
  }

 private:
  static constexpr size_t kQueueLimit = 4096, kErrorsKept = 1000;
  // An op that takes longer is in its kernel, where no lock is held.
  static constexpr auto kForkPatience = std::chrono::seconds(1);

  static Worker*& current() {
    static Worker* w = new Worker;
    return w;
  }

  void start() {
    static const int watched = [] {
      Pool::of(Device{});  // the youngest handler comes first before a fork: the running op may still need memory
      return pthread_atfork([] { get().before_fork(); }, [] { get().after_fork(); }, start_over);
    }();
    (void)watched;
    inherited_.clear();
    started_ = true;
    thread_ = std::thread([this] { loop(); });
  }

  void before_fork() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++forks_;
    done_.wait_for(lock, kForkPatience, [&] { return !busy_; });
    forking_ = std::move(lock);
  }
  void after_fork() {
    --forks_;
    std::exchange(forking_, {}).unlock();
    work_.notify_one();
  }
  // The old worker stays as it is: its locks and waiting threads belong to the parent.
  static void start_over() {
    Worker& parents = get();
    current() = new Worker;
    auto error = std::make_shared<const ExecError>(
        ErrorKind::Env,
        "this value was still being computed when the process was forked, and the child does not have it. Read "
        "it before the fork.");
    auto give_up = [&](const Command& c) {
      for (auto& v : c.out)
        if (v->state.load() == State::Pending) {
          v->error = error;
          v->state.store(State::Failed);
        }
    };
    if (const Command* c = parents.running_) give_up(*c);
    for (auto& c : parents.queue_) give_up(c);
    get().inherited_ = std::move(parents.queue_);
  }

  void loop() {
    for (;;) {
      Command c;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        work_.wait(lock, [&] { return forks_ == 0 && (stopping_ || !queue_.empty()); });
        if (queue_.empty()) return;
        c = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        running_ = &c;
      }
      space_.notify_one();
      run(c);
      running_ = nullptr;  // from here on a forked child must not look at it
      c = Command();       // drop references before the waiters look at memory counters
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ++finished_;
        busy_ = false;
      }
      done_.notify_all();
    }
  }

  void run(Command& c) {
    std::span<const ValuePtr> out(c.out.data(), c.out.size());
    for (auto& v : c.in)
      if (v->state.load(std::memory_order_acquire) == State::Failed) return set_failed(out, v->error);
    try {
      execute(c);
    } catch (const Error&) {
      std::lock_guard<std::mutex> lock(mutex_);
      std::erase_if(errors_, [](auto& e) { return e->seen.load(); });
      if (errors_.size() < kErrorsKept)
        errors_.push_back(out[0]->error);
      else
        ++errors_dropped_;
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, space_, done_;
  std::deque<Command> queue_;
  uint64_t pushed_ = 0, finished_ = 0;
  std::vector<std::shared_ptr<const ExecError>> errors_;  // until the next sync
  size_t errors_dropped_ = 0;                             // beyond kErrorsKept: counted only
  std::thread thread_;
  std::atomic<bool> started_{false};
  bool stopping_ = false;
  bool busy_ = false;                              // between taking a command and being done with it
  std::atomic<const Command*> running_ = nullptr;  // on the worker's stack
  int forks_ = 0;                                  // under way: no new command is taken
  std::unique_lock<std::mutex> forking_;           // meanwhile
  std::deque<Command> inherited_;                  // of the parent; dropped at the first op, no longer inside fork
};

// Inside a catch block: the outputs fail with what is being thrown.
void fail_like_this(std::span<const ValuePtr> out) {
  try {
    throw;
  } catch (const Error& e) {
    set_failed(out, std::make_shared<ExecError>(e.kind(), e.text()));
  } catch (...) {
    set_failed(out, std::make_shared<ExecError>(ErrorKind::Env, "the op was interrupted before it was queued."));
  }
}

[[noreturn]] void throw_stored(const std::shared_ptr<const ExecError>& e) {
  e->seen = true;
  throw Error(e->kind == ErrorKind::Trace ? ErrorKind::Trace : ErrorKind::Async, e->text);
}

void refuse_deferred(const Value& v) {
  MGE_CHECK(
      !v.deferred || v.state.load(std::memory_order_acquire) != State::Pending, Trace,
      "trace error because data unreadable: the value belongs to a traced call that is still open. Use it inside the "
      "trace, or after the call.");
}

}  // namespace

void run_inline(const OpDef& op, const AttrsBase* attrs, std::span<Value* const> in, std::span<const ValuePtr> out,
                LocId loc) {
  SmallVec<OpInput, 4> inputs;
  for (auto* v : in) inputs.push_back({&v->meta, &v->buffer, false});
  execute(op, attrs, {inputs.data(), inputs.size()}, out, loc, false);
}

bool is_queued(const Meta& out) { return g_policy.load(std::memory_order_relaxed) != 0 || (out.cn && out.cn->async); }

void submit(Command&& c) {
  SmallVec<ValuePtr, 4> outs = c.out;
  try {
    if (!is_queued(outs[0]->meta)) {
      for (auto& v : c.in)
        if (__builtin_expect(!v->ready(), 0)) wait(*v);
      execute(c);
      return;
    }
    for (auto& v : c.in) refuse_deferred(*v);
    Worker::get().push(std::move(c));
  } catch (...) {  // a trace or a cell may hold the outputs: they must not look pending
    if (outs[0]->state.load(std::memory_order_acquire) == State::Pending) fail_like_this({outs.data(), outs.size()});
    throw;
  }
  if (g_async_level.load(std::memory_order_relaxed) == 0)
    for (auto& v : outs) wait(*v);
}

void wait(Value& v) {
  State s = v.state.load(std::memory_order_acquire);
  if (s == State::Pending) {
    refuse_deferred(v);
    Worker::get().wait_for(v);
    s = v.state.load(std::memory_order_acquire);
  }
  if (s == State::Failed) throw_stored(v.error);
}

void sync() {
  Worker& w = Worker::get();
  if (!w.started()) return;
  w.drain();
  std::string text = w.take_unseen();
  if (!text.empty()) throw Error(ErrorKind::Async, text);
}

void drain_executor() {
  if (Worker::get().started()) Worker::get().drain();
}

void set_exec_policy(ExecPolicy p) {
  if (exec_policy() == ExecPolicy::Async) drain_executor();
  g_policy.store(static_cast<int>(p));
}
ExecPolicy exec_policy() { return static_cast<ExecPolicy>(g_policy.load()); }

void set_async_level(int level) {
  MGE_CHECK(level >= 0 && level <= 2, Assertion, "async_level: expected 0, 1 or 2; got {}.", level);
  g_async_level.store(level);
}
int async_level() { return g_async_level.load(); }
void set_donation(bool on) { g_donation.store(on); }
bool donation() { return g_donation.load(); }
void set_wait_hooks(const WaitHooks& h) { g_wait_hooks = h; }

void shutdown_executor() {
  Worker& w = Worker::get();
  w.stop();
  std::string text = w.take_unseen();
  if (!text.empty()) std::fprintf(stderr, "megengine: an error that nobody read:\n%s\n", text.c_str());
}

void set_location_hooks(const LocationHooks& h) { g_hooks = h; }
LocId current_location() { return g_hooks.current ? g_hooks.current() : 0; }
Place location_place(LocId loc) { return loc && g_hooks.place ? g_hooks.place(loc < 0 ? -loc : loc) : Place(); }
std::string location_text(LocId loc) {
  Place p = location_place(loc);
  if (p.file.empty()) return {};
  return format("{}:{} in {}{}", p.file, p.line, p.function, loc < 0 ? " (backward)" : "");
}

}  // namespace mge
