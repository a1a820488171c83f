#include "core/profile.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <unordered_set>

#include <sys/syscall.h>

#include "base/error.h"
#include "core/pool.h"

namespace mge::profile {

std::atomic<bool> g_on{false};

namespace {

constexpr size_t kMostEvents = 4'000'000;  // of a thread: about a gigabyte

struct Recorder {
  std::mutex mutex;
  Lane lane;
};

struct Book {
  std::mutex mutex;
  std::vector<std::shared_ptr<Recorder>> recorders;
  std::unordered_set<std::string> texts;  // nodes do not move
};
// A forked child has a book of its own and does not record: locks of the parent's threads stay with the parent. Texts
// that were interned before stay where they are.
Book& book() {
  static std::atomic<Book*> slot{new Book};
  static const int watched = pthread_atfork(nullptr, nullptr, [] {
    slot.store(new Book);
    g_on.store(false);
  });
  (void)watched;
  return *slot.load();
}

thread_local const char* t_name = nullptr;

Recorder& recorder() {
  thread_local std::shared_ptr<Recorder> mine;
  thread_local const Book* in = nullptr;  // of the parent, in a child
  Book& b = book();
  if (in == &b) return *mine;
  auto r = std::make_shared<Recorder>();
  r->lane.thread = syscall(SYS_gettid);
  std::lock_guard<std::mutex> lock(b.mutex);
  r->lane.name = t_name ? t_name : getpid() == r->lane.thread ? "main" : "thread";
  b.recorders.push_back(r);
  mine = std::move(r);
  in = &b;
  return *mine;
}

struct OpenScope {
  std::string name;
  const std::string* path;
  int64_t begin;
};
thread_local std::vector<OpenScope> t_scopes;

}  // namespace

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Event::add(const Meta& m, bool result) {
  sizes.push_back(static_cast<int64_t>(m.dtype) | m.shape.rank << 8 | (result ? 1 << 16 : 0));
  for (int i = 0; i < m.shape.rank; ++i) sizes.push_back(m.shape[i]);
}

std::string Event::tensors() const {
  std::string text;
  bool results = false;
  for (size_t i = 0; i < sizes.size();) {
    const int64_t head = sizes[i++];
    const auto rank = static_cast<size_t>(head >> 8 & 0xff);
    if ((head >> 16 & 1) && !std::exchange(results, true)) text += text.empty() ? "->" : " ->";
    text += (text.empty() ? "" : " ") + std::string(dtype_name(static_cast<DType>(head & 0xff))) + "[";
    for (size_t d = 0; d < rank; ++d) text += (d ? "," : "") + std::to_string(sizes[i++]);
    text += "]";
  }
  return text;
}

void start() {
  std::lock_guard<std::mutex> lock(book().mutex);
  auto& all = book().recorders;
  std::erase_if(all, [](auto& r) { return r.use_count() == 1; });  // of threads that have ended
  for (auto& r : all) {
    std::lock_guard<std::mutex> one(r->mutex);
    r->lane.events.clear();
    r->lane.dropped = 0;
  }
  g_on.store(true);
}

void stop() { g_on.store(false); }

std::vector<Lane> take() {
  std::lock_guard<std::mutex> lock(book().mutex);
  std::vector<Lane> lanes;
  for (auto& r : book().recorders) {
    std::lock_guard<std::mutex> one(r->mutex);
    lanes.push_back(r->lane);
  }
  return lanes;
}

void finish(Event&& e) {
  if (!e.end) e.end = now();
  Recorder& r = recorder();
  std::lock_guard<std::mutex> lock(r.mutex);
  if (r.lane.events.size() < kMostEvents)
    r.lane.events.push_back(std::move(e));
  else
    ++r.lane.dropped;
}

void finish(Event&& e, Device device) {
  e.device = static_cast<int32_t>(device.kind) << 16 | device.index;
  e.allocated = Pool::of(device).stats().allocated;
  finish(std::move(e));
}

const std::string* intern(std::string_view text) {
  std::lock_guard<std::mutex> lock(book().mutex);
  return &*book().texts.emplace(text).first;
}

void name_thread(const char* name) { t_name = name; }

void push_scope(std::string_view name) {
  const std::string* path = scope();
  t_scopes.push_back({std::string(name), intern(path ? *path + "." + std::string(name) : std::string(name)), now()});
}

void pop_scope(std::string_view name) {
  MGE_CHECK(!t_scopes.empty() && t_scopes.back().name == name, Value, "pop_scope: '{}' is not the innermost scope; {}.",
            name, t_scopes.empty() ? std::string("none is open") : "that is '" + t_scopes.back().name + "'");
  OpenScope closed = std::move(t_scopes.back());
  t_scopes.pop_back();
  if (!on()) return;
  Event e(intern(closed.name));
  e.begin = closed.begin;
  e.is_scope = true;
  e.scope = scope();
  finish(std::move(e));
}

const std::string* scope() { return t_scopes.empty() ? nullptr : t_scopes.back().path; }

}  // namespace mge::profile
