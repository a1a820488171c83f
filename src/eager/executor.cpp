#include "eager/executor.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "core/pool.h"
#include "core/profile.h"

namespace mge {
namespace {

// Bits, so that dispatch asks once: 0 is to run now, with nobody looking on.
constexpr int kAsync = 1, kProfiled = 2;
std::atomic<int> g_policy{0}, g_async_level{2};
std::atomic<bool> g_donation{true};
std::atomic<int> g_waiting{0};  // threads that wait for a value
LocationHooks g_hooks;
void (*g_domain_check)(const OpDef&, const AttrsBase*) = nullptr;

template <class Metas>
std::string describe(const OpDef& op, const AttrsBase* attrs, const Metas& in) {
  std::string s = op.name + "(";
  bool first = true;
  for (auto& m : in) s += (std::exchange(first, false) ? "" : ", ") + m.str();
  s += ")";
  if (attrs) s += " " + attrs->print();
  return s;
}

// Inside a catch block: what is being thrown, with what was being done and the user's line. `whole`: an op whose parts
// name themselves.
std::shared_ptr<const ExecError> explain_this(const std::string& what, LocId loc, const std::string* scope,
                                              const OpDef* whole = nullptr) {
  std::string where = location_text(loc);
  auto text = [&](const char* cause) {
    return format("{}\n  in {}{}{}{}{}", cause, what, scope ? "\n  in scope " : "", scope ? *scope : "",
                  where.empty() ? "" : "\n  at ", where);
  };
  try {
    throw;
  } catch (const Error& e) {
    const bool part = whole && !e.text().starts_with(whole->name) && e.kind() == ErrorKind::Index;
    return std::make_shared<ExecError>(e.kind(), text(part ? (whole->name + ": " + e.what()).c_str() : e.what()));
  } catch (const std::bad_alloc&) {
    return std::make_shared<ExecError>(
        ErrorKind::Memory, text("out of memory: the system has no more. Free tensors or use a smaller batch."));
  } catch (const std::exception& e) {
    return std::make_shared<ExecError>(ErrorKind::Internal, text(e.what()));
  }
}

void set_failed(std::span<const ValuePtr> out, std::shared_ptr<const ExecError> error) {
  for (auto& v : out) {
    v->buffer = {};
    v->error = error;
    v->state.store(State::Failed, std::memory_order_release);
  }
}

// A command that cannot run: its outputs fail, but state that it was to replace stays what it was.
void refuse(const Command& c, const std::shared_ptr<const ExecError>& error) {
  for (size_t i = 0; i < c.out.size(); ++i) {
    const int old = i < c.replaces.size() ? c.replaces[i] : -1;
    if (old < 0 || !c.in[static_cast<size_t>(old)]->ready()) {
      set_failed({&c.out[i], 1}, error);
      continue;
    }
    c.out[i]->buffer = c.in[static_cast<size_t>(old)]->buffer;
    c.out[i]->set_ready();
  }
}

// Root errors that nobody has been told of yet, until the next sync.
class Unseen {
 public:
  static Unseen& get() {
    static auto* u = new Unseen;
    return *u;
  }
  void add(std::shared_ptr<const ExecError> e) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(errors_, [](auto& x) { return x->seen.load(); });
    if (errors_.size() < kKept)
      errors_.push_back(std::move(e));
    else
      ++dropped_;
  }
  /// The oldest, and how many more there are; empty when there is none.
  std::string take() {
    std::lock_guard<std::mutex> lock(mutex_);
    auto taken = std::exchange(errors_, {});
    size_t more = std::exchange(dropped_, 0);
    std::erase_if(taken, [](auto& e) { return e->seen.load(); });
    if (taken.empty()) return {};
    for (auto& e : taken) e->seen = true;
    more += taken.size() - 1;
    return taken[0]->text + (more ? format("\n  ({} more failed ops nobody read)", more) : "");
  }

 private:
  static constexpr size_t kKept = 1000;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const ExecError>> errors_;
  size_t dropped_ = 0;  // beyond kKept: counted only
};

// What runs: one op, or a job. Inputs are Ready.
struct Task {
  const OpDef* op;
  const AttrsBase* attrs;
  std::span<const OpInput> in;
  std::span<const ValuePtr> out;
  LocId loc;
  Job* job = nullptr;
  std::span<const int> replaces = {};
  const Aside* aside = nullptr;
  const std::string* scope = nullptr;  // null: that of the thread it runs on

  std::string what() const {
    if (job) return job->describe();
    SmallVec<Meta, 4> metas;
    for (auto& i : in) metas.push_back(*i.meta);
    return describe(*op, attrs, metas);
  }
  // An error that comes when the stream gets there: by then only what is kept here is left of the command.
  Explain later() const {
    // Made for every run of a program, so it holds no text; the op and its line come with the exception.
    if (job)
      return
          [loc = loc, scope = scope](std::exception_ptr) { return note(explain_this("a traced program", loc, scope)); };
    SmallVec<Meta, 4> metas;
    for (auto& i : in) metas.push_back(*i.meta);
    return [op = op, attrs = Attrs(attrs), metas, loc = loc, scope = scope](std::exception_ptr) {
      return note(explain_this(describe(*op, attrs.get(), metas), loc, scope, op));
    };
  }
  static std::shared_ptr<const ExecError> note(std::shared_ptr<const ExecError> e) {
    Unseen::get().add(e);
    return e;
  }
};

__attribute__((noinline)) void run_task(const Task& t, Work* work) {
  if (!t.job && t.out.size() == 1)
    return run_op(*t.op, t.attrs, t.in, {&t.out[0]->meta, 1}, {&t.out[0]->buffer, 1}, {false, work, t.aside});
  SmallVec<Buffer, 4> buffers(t.out.size());
  auto hand_over = [&] {
    for (size_t i = 0; i < t.out.size(); ++i) t.out[i]->buffer = std::move(buffers[i]);
  };
  if (t.job) {
    try {
      t.job->run(t.in, {buffers.data(), buffers.size()}, work, t.later());
    } catch (...) {
      hand_over();
      throw;
    }
  } else {
    SmallVec<Meta, 4> metas;
    for (auto& v : t.out) metas.push_back(v->meta);
    run_op(*t.op, t.attrs, t.in, {metas.data(), metas.size()}, {buffers.data(), buffers.size()},
           {false, work, t.aside});
  }
  hand_over();
}

// What is left of a task that did not end: a job's outputs that have memory count as computed, state that it did not
// get to stays what it was.
void give_up(const Task& t, const std::shared_ptr<const ExecError>& error) {
  for (size_t i = 0; i < t.out.size(); ++i) {
    Value& v = *t.out[i];
    const int old = i < t.replaces.size() ? t.replaces[i] : -1;
    if (t.job && !v.buffer.storage && old >= 0) v.buffer = *t.in[static_cast<size_t>(old)].buffer;
    if (t.job && v.buffer.storage)
      v.set_ready();
    else
      set_failed({&t.out[i], 1}, error);
  }
}

// An error leaves naming the op and the place, and the outputs marked failed.
void execute(const Task& t) {
  try {
    const CompNode* cn = t.out[0]->meta.cn;
    std::optional<ThreadLimit> threads;
    if (__builtin_expect(cn->threads != 0, 0)) threads.emplace(cn->threads);
    if (__builtin_expect(cn->queue != nullptr, 0)) {
      SmallVec<Work*, 4> after;
      for (auto& i : t.in) after.push_back(i.buffer->work.get());
      OpenWork work(cn->queue->open({after.data(), after.size()}, t.job ? "program" : t.op->name.c_str(), t.later()));
      run_task(t, work.get());
    } else if (!t.job && t.out.size() == 1) {
      run_op(*t.op, t.attrs, t.in, {&t.out[0]->meta, 1}, {&t.out[0]->buffer, 1}, {false, nullptr, t.aside});
    } else {
      run_task(t, nullptr);
    }
  } catch (const std::exception&) {
    auto error = explain_this(t.what(), t.loc, t.scope ? t.scope : profile::scope());
    give_up(t, error);
    throw Error(error->kind, error->text);
  } catch (...) {  // Ctrl-C in the middle of a program
    give_up(t, std::make_shared<ExecError>(ErrorKind::Env, "the program that computes this value was interrupted."));
    throw;
  }
  for (auto& v : t.out) v->set_ready();
}

// An op that takes longer than this is in its kernel, where no lock is held.
constexpr auto kForkPatience = std::chrono::seconds(1);

// Other threads of the interpreter run while a kernel takes long. They may assign to the very tensors whose values it
// reads, so those are held meanwhile.
class LetOthersRun final : public Aside {
 public:
  explicit LetOthersRun(std::span<Tensor* const> reads) : reads_(reads) {}
  void run(FunctionRef<void()> kernel) const override {
    if (held_.empty())  // else a part before this one has taken them, and the tensors may hold others by now
      for (Tensor* t : reads_) held_.push_back(t->value);
    const LongWork others;
    kernel();
  }

 private:
  std::span<Tensor* const> reads_;
  mutable SmallVec<ValuePtr, 4> held_;  // until the op is over: errors speak of them
};

void execute_now(Command& c, bool fork_waits) {
  bool donate = g_donation.load(std::memory_order_relaxed);
  SmallVec<OpInput, 4> in;
  for (auto& v : c.in) {
    // This command holds the only reference to the value and the value the only one to its memory: nobody can look.
    bool dies = donate && v->ref_count() == 1 && v->buffer.storage->ref_count() == 1;
    in.push_back({&v->meta, &v->buffer, dies});
  }
  const LetOthersRun aside({});  // the command holds what it reads
  execute({c.op,
           c.attrs.get(),
           {in.data(), in.size()},
           {c.out.data(), c.out.size()},
           c.loc,
           c.job.get(),
           {c.replaces.data(), c.replaces.size()},
           fork_waits ? &aside : nullptr,
           c.scope});
}

__attribute__((noinline)) void execute_profiled(Command& c, bool fork_waits) {
  static const std::string kProgram = "program";
  const Device device = c.out[0]->meta.cn->device;  // of a failed op, too
  profile::Event e(c.op ? &c.op->name : &kProgram);
  e.loc = c.loc;
  e.scope = c.scope ? c.scope : profile::scope();
  if (c.op) {
    for (auto& v : c.in) e.add(v->meta);
    for (auto& v : c.out) e.add(v->meta, true);
  }
  struct Finish {
    profile::Event& event;
    Device device;
    ~Finish() { profile::finish(std::move(event), device); }
  } finish{e, device};
  execute_now(c, fork_waits);
}

void execute(Command& c, bool fork_waits = true) {
  if (__builtin_expect(profile::on(), 0)) return execute_profiled(c, fork_waits);
  execute_now(c, fork_waits);
}

// Waits like cv.wait(lock, done), without the interpreter lock, and now and then asks whether the user has had enough.
// Our lock is never held while the interpreter's is waited for: its holder may be waiting for ours.
template <class Done>
void wait_patiently(std::condition_variable& cv, std::unique_lock<std::mutex>& lock, Done done) {
  if (done()) return;
  struct Away {
    std::unique_lock<std::mutex>& lock;
    std::optional<OthersRun> others;
    explicit Away(std::unique_lock<std::mutex>& l) : lock(l) {
      lock.unlock();
      others.emplace();
      lock.lock();
    }
    ~Away() {
      if (lock.owns_lock()) lock.unlock();
      others.reset();
      lock.lock();
    }
  } away(lock);
  while (!cv.wait_for(lock, kPatience, done)) {
    if (!wait_hooks().check) continue;
    lock.unlock();
    wait_hooks().check();
    lock.lock();
  }
}

// One for each device whose ops are queued; all CPU devices share one, because OpenMP gives each calling thread a team
// of its own. And one for each domain. A fork waits until the running ops are done, so that the child inherits no lock
// that a worker holds inside an op. The child starts with workers of its own; what the parent had queued fails there.
class Worker {
 public:
  static Worker& of(const Meta& m) {
    const Device d = m.cn->device.kind == DeviceKind::Cpu ? Device{} : m.cn->device;
    auto& slot = slots()[static_cast<int>(d.kind)][d.index];
    if (Worker* w = slot.load(std::memory_order_acquire)) return *w;
    Worker *fresh = new Worker, *none = nullptr;
    if (slot.compare_exchange_strong(none, fresh)) return *fresh;
    delete fresh;
    return *none;
  }
  static Worker& of_domain(const std::string& domain) {
    for (Side* s = sides().load(std::memory_order_acquire); s; s = s->next)
      if (s->domain == domain) return *s->worker.load(std::memory_order_acquire);
    static std::mutex making;
    std::lock_guard<std::mutex> lock(making);
    Side* first = sides().load();
    for (Side* s = first; s; s = s->next)
      if (s->domain == domain) return *s->worker.load();
    auto* fresh = new Side{domain, new Worker(true), first};
    sides().store(fresh, std::memory_order_release);
    return *fresh->worker.load();
  }
  template <class F>
  static void each_of_domains(F f) {
    for (Side* s = sides().load(std::memory_order_acquire); s; s = s->next) f(*s->worker.load());
  }
  template <class F>
  static void each(F f) {
    for (auto& kind : slots())
      for (auto& slot : kind)
        if (Worker* w = slot.load(std::memory_order_acquire)) f(*w);
    each_of_domains(f);
  }
  explicit Worker(bool side = false) : side_(side) {}

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

  bool drain_for(std::chrono::milliseconds patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    return done_.wait_for(lock, patience, [&] { return finished_ >= pushed_; });
  }

  void wait_for(Value& v) {
    for (int spin = 0; spin < 200; ++spin)
      if (v.state.load(std::memory_order_acquire) != State::Pending) return;
    const Count count;
    std::unique_lock<std::mutex> lock(mutex_);
    wait_patiently(done_, lock, [&] { return v.state.load(std::memory_order_acquire) != State::Pending; });
  }
  struct Count {
    Count() { g_waiting.fetch_add(1); }
    ~Count() { g_waiting.fetch_sub(1); }
  };
  /// A value was computed by the thread that asked for it, while others ran and one of them may wait for it.
  static void computed_here(const Meta& m) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (__builtin_expect(g_waiting.load(std::memory_order_relaxed) == 0, 1)) return;
    Worker& w = of(m);
    { std::lock_guard<std::mutex> lock(w.mutex_); }
    w.done_.notify_all();
  }

  bool started() const { return started_.load(std::memory_order_relaxed); }

  void stop() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (!started_) return;
      const uint64_t target = pushed_;
      done_.wait(lock, [&] { return finished_ >= target; });
      stopping_ = true;
    }
    work_.notify_one();
    thread_.join();
    const std::lock_guard<std::mutex> lock(mutex_);
    started_ = false;
    stopping_ = false;
    if (!queue_.empty()) start();  // other threads go on: theirs is done while the process ends, as far as it gets
  }

 private:
  static constexpr size_t kQueueLimit = 4096;

  struct Side {
    std::string domain;
    std::atomic<Worker*> worker;
    Side* next;
  };
  static std::atomic<Side*>& sides() {
    static std::atomic<Side*> s{nullptr};
    return s;
  }
  using Slots = std::atomic<Worker*>[kDeviceKinds][kMaxDevices];
  static Slots& slots() {
    static auto* s = new Slots[1]();
    return s[0];
  }

  void start() {
    static const int watched = [] {
      Pool::of(Device{});  // the youngest handler comes first before a fork: the running op may still need memory
      return pthread_atfork([] { each([](Worker& w) { w.before_fork(); }); },
                            [] { each([](Worker& w) { w.after_fork(); }); },
                            [] {
                              for (auto& kind : slots())
                                for (auto& slot : kind)
                                  if (Worker* w = slot.load()) slot.store(w->start_over());
                              for (Side* s = sides().load(); s; s = s->next) s->worker = s->worker.load()->start_over();
                            });
    }();
    (void)watched;
    inherited_.clear();
    try {
      thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error& e) {
      fail(ErrorKind::Env, "executor: the system gives no thread to run ops on: {}.", e.code().message());
    }
    started_ = true;
  }

  void before_fork() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++forks_;
    // One that waits for other processes holds no lock meanwhile.
    if (!side_) done_.wait_for(lock, kForkPatience, [&] { return !busy_; });
    forking_ = std::move(lock);
  }
  void after_fork() {
    --forks_;
    std::exchange(forking_, {}).unlock();
    work_.notify_one();
  }
  // The old worker stays as it is: its locks and waiting threads belong to the parent.
  Worker* start_over() {
    auto* fresh = new Worker(side_);
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
    if (const Command* c = running_) give_up(*c);
    for (auto& c : queue_) give_up(c);
    fresh->inherited_ = std::move(queue_);
    return fresh;
  }

  void loop() {
    profile::name_thread(side_ ? "process group" : "executor");
    for (;;) {
      Command c;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        work_.wait(lock, [&] { return forks_ == 0 && (stopping_ || !queue_.empty()); });
        if (stopping_) return;
        c = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        running_ = &c;
      }
      space_.notify_one();
      run(c);
      running_ = nullptr;  // from here on a forked child must not look at it
      const Meta meta = side_ ? c.out[0]->meta : Meta();
      c = Command();  // drop references before the waiters look at memory counters
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ++finished_;
        busy_ = false;
      }
      done_.notify_all();
      if (side_) computed_here(meta);  // those who read the value wait at the worker of its device
    }
  }

  void run(Command& c) {
    std::span<const ValuePtr> out(c.out.data(), c.out.size());
    for (auto& v : c.in)
      if (v->state.load(std::memory_order_acquire) == State::Pending) of(v->meta).wait_in_worker(*v);
    for (auto& v : c.in)
      if (v->state.load(std::memory_order_acquire) == State::Failed) return refuse(c, v->error);
    try {
      execute(c, !side_);
    } catch (const Error& e) {
      for (auto& v : out)
        if (v->error) return Unseen::get().add(v->error);
      Unseen::get().add(std::make_shared<ExecError>(e.kind(), e.text()));  // all of it was state, which is whole
    }
  }
  // A value of another device: its command was queued before ours, so this ends.
  void wait_in_worker(Value& v) {
    const Count count;
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return v.state.load(std::memory_order_acquire) != State::Pending; });
  }

  std::mutex mutex_;
  std::condition_variable work_, space_, done_;
  std::deque<Command> queue_;
  uint64_t pushed_ = 0, finished_ = 0;
  std::thread thread_;
  std::atomic<bool> started_{false};
  bool stopping_ = false;
  const bool side_;                                // of a domain
  bool busy_ = false;                              // between taking a command and being done with it
  std::atomic<const Command*> running_ = nullptr;  // on the worker's stack
  int forks_ = 0;                                  // under way: no new command is taken
  std::unique_lock<std::mutex> forking_;           // meanwhile
  std::deque<Command> inherited_;                  // of the parent; dropped at the first op, no longer inside fork
};

// Inside a catch block: what is being thrown, to keep.
std::shared_ptr<const ExecError> this_error() {
  try {
    throw;
  } catch (const Error& e) {
    return std::make_shared<ExecError>(e.kind(), e.text());
  } catch (...) {
    return std::make_shared<ExecError>(ErrorKind::Env, "the op was interrupted before it was queued.");
  }
}

// Null: the op acts on nothing beyond this process.
__attribute__((noinline)) Worker* worker_of_domain(const Command& c) {
  const std::string domain = c.op->domain ? c.op->domain(c.attrs.get()) : std::string();
  if (domain.empty()) return nullptr;
  if (g_domain_check) g_domain_check(*c.op, c.attrs.get());
  return &Worker::of_domain(domain);
}

void refuse_deferred(const Value& v) {
  MGE_CHECK(
      !v.deferred || v.state.load(std::memory_order_acquire) != State::Pending, Trace,
      "trace error because data unreadable\n  the value belongs to a traced call that is still open. Use it inside "
      "the trace, or after the call.");
}

__attribute__((noinline)) void wait_or_refuse(const Command& c, Value& v) {
  try {
    wait(v);
  } catch (...) {
    refuse(c, this_error());
    throw;
  }
}

}  // namespace

void run_inline(const OpDef& op, const AttrsBase* attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out,
                LocId loc) {
  SmallVec<OpInput, 4> inputs;
  for (auto* t : in) inputs.push_back({&t->value->meta, &t->value->buffer, false});
  const LetOthersRun aside(in);
  execute({&op, attrs, {inputs.data(), inputs.size()}, out, loc, nullptr, {}, &aside});
}

bool is_queued(const Meta& out) {
  return (g_policy.load(std::memory_order_relaxed) & kAsync) || (out.cn && out.cn->queue);
}
bool runs_plainly(const Meta& out) {
  return g_policy.load(std::memory_order_relaxed) == 0 && !(out.cn && out.cn->queue);
}

void start_profile() {
  drain_executor();
  profile::start();
  g_policy.fetch_or(kProfiled);
}
void stop_profile() {
  drain_executor();
  g_policy.fetch_and(~kProfiled);
  profile::stop();
}

void submit(Command&& c) {
  SmallVec<ValuePtr, 4> outs = c.out;
  const bool effects = c.job && c.job->has_effects();
  try {
    Worker* side = c.op && __builtin_expect(c.op->is(kEffect), 0) ? worker_of_domain(c) : nullptr;
    if (effects) Worker::each_of_domains([](Worker& w) { w.drain(); });
    if (side) {
      for (auto& v : c.in) refuse_deferred(*v);
      side->push(std::move(c));
    } else if (!is_queued(outs[0]->meta)) {
      for (auto& v : c.in)
        if (__builtin_expect(!v->ready(), 0)) wait_or_refuse(c, *v);
      struct Tell {
        const Meta& meta;
        ~Tell() { Worker::computed_here(meta); }
      } tell{outs[0]->meta};
      execute(c);
      return;
    } else {
      for (auto& v : c.in) refuse_deferred(*v);
      Worker& w = Worker::of(outs[0]->meta);
      w.push(std::move(c));
      if (effects) w.wait_for(*outs[0]);
    }
  } catch (...) {  // a trace or a cell may hold the outputs: they must not look pending
    if (outs[0]->state.load(std::memory_order_acquire) == State::Pending)
      set_failed({outs.data(), outs.size()}, this_error());
    throw;
  }
  if (g_async_level.load(std::memory_order_relaxed) == 0)
    for (auto& v : outs) wait(*v);
}

void wait(Value& v) {
  State s = v.state.load(std::memory_order_acquire);
  if (s == State::Pending) {
    refuse_deferred(v);
    Worker::of(v.meta).wait_for(v);
    s = v.state.load(std::memory_order_acquire);
  }
  if (s == State::Failed) throw_stored(v.error);
  if (__builtin_expect(static_cast<bool>(v.buffer.work), 0)) wait_for(*v.buffer.work);
}

void drain_executor() {
  Worker::each([](Worker& w) {
    if (w.started()) w.drain();
  });
  // What a stream has not done yet is held, and so are the tensors that its attributes name.
  for (Stream* q : CompNode::queues()) try {
      OpenWork mark(q->open({}, nullptr, {}));
      wait_for(*mark.close());
    } catch (const Error&) {  // a lost device has nothing left to do, and its values tell of it
    }
}

namespace {
class DomainJob final : public Job {
 public:
  explicit DomainJob(std::function<void()> fn) : fn_(std::move(fn)) {}
  void run(std::span<const OpInput>, std::span<Buffer>, Work*, const Explain&) override { fn_(); }
  std::string describe() const override { return "a traced program"; }

 private:
  std::function<void()> fn_;
};
}  // namespace

std::function<void()> run_in_domain(const std::string& domain, std::function<void()> fn) {
  ValuePtr done = make_ref<Value>();
  done->meta.cn = CompNode::default_node();
  Command c;
  c.job = std::make_unique<DomainJob>(std::move(fn));
  c.out.push_back(done);
  Worker::of_domain(domain).push(std::move(c));
  return [done] { wait(*done); };
}

void set_domain_check(void (*check)(const OpDef&, const AttrsBase*)) { g_domain_check = check; }
void drain_domain(const std::string& domain) {
  Worker& w = Worker::of_domain(domain);
  if (w.started()) w.drain();
}
bool drain_domains(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  bool all = true;
  Worker::each_of_domains([&](Worker& w) {
    const auto left = deadline - std::chrono::steady_clock::now();
    all &= w.drain_for(
        std::max(std::chrono::milliseconds(0), std::chrono::duration_cast<std::chrono::milliseconds>(left)));
  });
  return all;
}

void sync() {
  drain_executor();
  for (Stream* q : CompNode::queues()) {
    OpenWork mark(q->open({}, nullptr, {}));
    wait_for(*mark.close());
  }
  std::string text = Unseen::get().take();
  if (!text.empty()) throw Error(ErrorKind::Async, text);
}

void set_exec_policy(ExecPolicy p) {
  if (exec_policy() == ExecPolicy::Async) drain_executor();
  if (p == ExecPolicy::Async)
    g_policy.fetch_or(kAsync);
  else
    g_policy.fetch_and(~kAsync);
}
ExecPolicy exec_policy() { return static_cast<ExecPolicy>(g_policy.load() & kAsync); }

void set_async_level(int level) {
  MGE_CHECK(level >= 0 && level <= 2, Assertion, "async_level: expected 0, 1 or 2; got {}.", level);
  g_async_level.store(level);
}
int async_level() { return g_async_level.load(); }
void set_donation(bool on) { g_donation.store(on); }
bool donation() { return g_donation.load(); }

void shutdown_executor() {
  Worker::each([](Worker& w) { w.stop(); });
  for (Stream* q : CompNode::queues()) q->drain();
  std::string text = Unseen::get().take();
  if (!text.empty()) std::fprintf(stderr, "megengine: an error that nobody read:\n%s\n", text.c_str());
}

void set_location_hooks(const LocationHooks& h) { g_hooks = h; }
LocId current_location() { return g_hooks.current ? g_hooks.current() : 0; }
Place location_place(LocId loc) { return loc && g_hooks.place ? g_hooks.place(loc < 0 ? -loc : loc) : Place(); }
const std::string* current_modules() { return g_hooks.modules ? g_hooks.modules() : nullptr; }
std::string location_text(LocId loc) {
  Place p = location_place(loc);
  if (p.file.empty()) return {};
  return format("{}:{} in {}{}", p.file, p.line, p.function, loc < 0 ? " (backward)" : "");
}

}  // namespace mge
