#include "eager/executor.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace mge {
namespace {

std::atomic<int> g_policy{0}, g_async_level{2};
std::atomic<bool> g_donation{true};
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

// Runs one op whose inputs are all Ready. An error leaves naming the op and the place, and the outputs marked failed.
void execute(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in, std::span<const ValuePtr> out,
             LocId loc) {
  try {
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
  execute(*c.op, c.attrs.get(), {in.data(), in.size()}, {c.out.data(), c.out.size()}, c.loc);
}

class Worker {
 public:
  static Worker& get() {
    static Worker* w = new Worker;
    return *w;
  }

  void push(Command&& c) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!started_) start();
    space_.wait(lock, [&] { return queue_.size() < kQueueLimit; });
    queue_.push_back(std::move(c));
    ++pushed_;
    lock.unlock();
    work_.notify_one();
  }

  void drain() {
    std::unique_lock<std::mutex> lock(mutex_);
    uint64_t target = pushed_;
    done_.wait(lock, [&] { return finished_ >= target; });
  }

  void wait_for(Value& v) {
    for (int spin = 0; spin < 200; ++spin)
      if (v.state.load(std::memory_order_acquire) != State::Pending) return;
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return v.state.load(std::memory_order_acquire) != State::Pending; });
  }

  /// Root errors that nobody was told of, oldest first.
  std::vector<std::shared_ptr<const ExecError>> take_unseen() {
    std::lock_guard<std::mutex> lock(mutex_);
    auto taken = std::exchange(errors_, {});
    std::erase_if(taken, [](auto& e) { return e->seen.load(); });
    return taken;
  }

  void stop() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (!started_ || foreign_) return;
      done_.wait(lock, [&] { return finished_ >= pushed_; });
      stopping_ = true;
    }
    work_.notify_one();
    thread_.join();
    started_ = false;
    stopping_ = false;
  }

  bool foreign_process() const { return foreign_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kQueueLimit = 4096, kErrorsKept = 1000;

  void start() {
    static const int watched = pthread_atfork(nullptr, nullptr, [] {
      if (get().started_) get().foreign_ = true;
    });
    (void)watched;
    started_ = true;
    thread_ = std::thread([this] { loop(); });
  }

  void loop() {
    for (;;) {
      Command c;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        c = std::move(queue_.front());
        queue_.pop_front();
      }
      space_.notify_one();
      run(c);
      c = Command();  // drop references before the waiters look at memory counters
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ++finished_;
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
      if (errors_.size() < kErrorsKept && !out.empty()) errors_.push_back(out[0]->error);
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, space_, done_;
  std::deque<Command> queue_;
  uint64_t pushed_ = 0, finished_ = 0;
  std::vector<std::shared_ptr<const ExecError>> errors_;  // until the next sync
  std::thread thread_;
  std::atomic<bool> started_{false}, foreign_{false};  // foreign: this is a child forked after the start
  bool stopping_ = false;
};

[[noreturn]] void throw_stored(const std::shared_ptr<const ExecError>& e) {
  e->seen = true;
  throw Error(e->kind == ErrorKind::Trace ? ErrorKind::Trace : ErrorKind::Async, e->text);
}

void refuse_in_child() {
  MGE_CHECK(
      !Worker::get().foreign_process(), Env,
      "this process was forked after asynchronous execution began, and the worker thread is not in the child. Use "
      "the 'spawn' start method, or set MGE_EXECUTOR=inline before forking.");
}

void refuse_deferred(const Value& v) {
  MGE_CHECK(
      !v.deferred || v.state.load(std::memory_order_acquire) != State::Pending, Trace,
      "trace error because data unreadable: the value belongs to a traced call that is still open. Use it inside the "
      "trace, or after the call.");
}

}  // namespace

void run_inline(const OpDef& op, const AttrsBase* attrs, std::span<Value* const> in, std::span<const ValuePtr> out) {
  SmallVec<OpInput, 4> inputs;
  for (auto* v : in) {
    if (__builtin_expect(!v->ready(), 0)) wait(*v);
    inputs.push_back({&v->meta, &v->buffer, false});
  }
  execute(op, attrs, {inputs.data(), inputs.size()}, out, 0);
}

void submit(Command&& c) {
  if (g_policy.load(std::memory_order_relaxed) == 0) {
    try {
      for (auto& v : c.in)
        if (__builtin_expect(!v->ready(), 0)) wait(*v);
    } catch (const Error& e) {  // a trace or a cell may hold the outputs: they must not look pending
      set_failed({c.out.data(), c.out.size()}, std::make_shared<ExecError>(e.kind(), e.text()));
      throw;
    }
    execute(c);
    return;
  }
  refuse_in_child();
  for (auto& v : c.in) refuse_deferred(*v);
  SmallVec<ValuePtr, 4> outs;
  bool wait_now = g_async_level.load(std::memory_order_relaxed) == 0;
  if (wait_now) outs = c.out;
  Worker::get().push(std::move(c));
  for (auto& v : outs) wait(*v);
}

void wait(Value& v) {
  State s = v.state.load(std::memory_order_acquire);
  if (s == State::Pending) {
    refuse_in_child();
    refuse_deferred(v);
    Worker::get().wait_for(v);
    s = v.state.load(std::memory_order_acquire);
  }
  if (s == State::Failed) throw_stored(v.error);
}

void sync() {
  if (g_policy.load() == 0) return;
  refuse_in_child();
  Worker::get().drain();
  auto unseen = Worker::get().take_unseen();
  if (unseen.empty()) return;
  std::string more = unseen.size() > 1 ? format("\n  ({} more failed ops nobody read)", unseen.size() - 1) : "";
  throw Error(ErrorKind::Async, unseen[0]->text + more);
}

void drain_executor() {
  if (g_policy.load() == static_cast<int>(ExecPolicy::Async) && !Worker::get().foreign_process()) Worker::get().drain();
}

void set_exec_policy(ExecPolicy p) {
  if (g_policy.load() == static_cast<int>(ExecPolicy::Async)) {
    refuse_in_child();
    Worker::get().drain();
  }
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
bool forked_with_worker() { return Worker::get().foreign_process(); }
void shutdown_executor() { Worker::get().stop(); }

void set_location_hooks(const LocationHooks& h) { g_hooks = h; }
LocId current_location() { return g_hooks.current ? g_hooks.current() : 0; }
Place location_place(LocId loc) { return loc && g_hooks.place ? g_hooks.place(loc) : Place(); }
std::string location_text(LocId loc) {
  Place p = location_place(loc);
  return p.file.empty() ? std::string() : format("{}:{} in {}", p.file, p.line, p.function);
}

}  // namespace mge
