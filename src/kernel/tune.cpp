#include "kernel/tune.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/features.h"
#include "base/parallel.h"
#include "base/write_file.h"
#include "kernel/layouts.h"
#include "kernel/run.h"

namespace mge {
namespace {

constexpr int kMostRuns = 5;
constexpr double kEnoughSeconds = 0.02;  // of measuring one kernel

struct Tuning {
  std::mutex mutex;
  uint32_t strategy = kHeuristic;
  size_t workspace = SIZE_MAX;
  std::string file;
  bool loaded = false;
  std::unordered_map<std::string, std::string> winners;  // key -> kernel name
  std::unordered_map<std::string, double> times;         // key of a kernel in one order -> ns
  TuningStats stats;
};
Tuning& tuning() {
  static Tuning* t = new Tuning;
  return *t;
}

uint64_t checksum(std::string_view s) {
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a
  for (unsigned char c : s) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

// Everything that decides which kernel is fastest here, as one line of text.
std::string key_text(const KernelArgs& a, bool any_batch) {
  std::string s = format("{} {} threads={}", a.op->name, a.attrs ? a.attrs->print() : "", num_threads());
  // What has the batch in front: the first input, and others that look like the result. Weights are second, and may
  // look like anything.
  auto batched = [&](const TensorArg& t) {
    if (!any_batch || t.shape.rank == 0 || a.out.empty()) return false;
    const auto i = &t - a.in.data();
    return i == 0 || (t.shape == a.out[0].shape && (i > 1 || t.shape == a.in[0].shape));
  };
  for (auto& t : a.in) {
    s += format(" {}{}{}", dtype_name(t.dtype), batched(t) ? "N" : "",
                batched(t) ? Shape(t.shape.begin() + 1, t.shape.rank - 1u).str() : t.shape.str());
    if (t.contiguous()) continue;
    for (int i = 0; i < t.shape.rank; ++i) s += format("{}{}", i ? "," : "@", t.layout.stride[i]);
  }
  for (char& c : s)
    if (c == '\n' || c == '\t') c = ' ';
  return s;
}

// A file to read, under a lock that keeps appenders out and ends with this object.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ >= 0 && flock(fd_, LOCK_SH) != 0) {
      close(fd_);
      fd_ = -1;
    }
  }
  LockedFile(const LockedFile&) = delete;
  ~LockedFile() {
    if (fd_ >= 0) close(fd_);
  }
  explicit operator bool() const { return fd_ >= 0; }
  std::string read_all() const {
    std::string text;
    char part[1 << 16];
    for (ssize_t n; (n = read(fd_, part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
    return text;
  }

 private:
  int fd_;
};

constexpr std::string_view kTimeOf = "time of ";  // keys of times; no op is called so

// line: checksum of the rest, key, winner, microseconds; separated by tabs
void load(Tuning& t) {
  t.loaded = true;
  if (t.file.empty()) return;
  LockedFile f(t.file);
  if (!f) return;
  std::string text = f.read_all();
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    size_t tab = line.find('\t');
    if (tab == line.npos) continue;
    std::string_view body = line.substr(tab + 1);
    if (format("{:016x}", checksum(body)) != line.substr(0, tab)) continue;
    size_t key_end = body.find('\t'), name_end = key_end == body.npos ? body.npos : body.find('\t', key_end + 1);
    if (name_end == body.npos) continue;
    const std::string key(body.substr(0, key_end));
    if (key.starts_with(kTimeOf))
      t.times[key] = std::strtod(std::string(body.substr(name_end + 1)).c_str(), nullptr) * 1e3;
    else
      t.winners[key] = std::string(body.substr(key_end + 1, name_end - key_end - 1));
  }
}

void make_folder_of(const std::string& path) {
  for (size_t at = path.find('/', 1); at != path.npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0755);
}

void save(const Tuning& t, const std::string& key, const char* winner, double seconds) {
  if (t.file.empty()) return;
  make_folder_of(t.file);
  std::string body = format("{}\t{}\t{:.1f}", key, winner, seconds * 1e6);
  try {
    append_file(t.file, format("{:016x}\t{}\n", checksum(body), body));
  } catch (const FileError&) {
    return;  // a cache that cannot be written is no error
  }
}

thread_local const KernelPolicy* t_policy = nullptr;
thread_local const Kernel* g_forced = nullptr;
thread_local const OpDef* g_forced_op = nullptr;

// A tensor with the type and layout of `t`; floats are ordinary numbers, the rest zeros, which are valid indices.
Buffer scratch(const TensorArg& t, Meta* meta) {
  meta->dtype = t.dtype;
  meta->shape = t.shape;
  const Reach reach = reach_of(t.shape, t.layout);
  Buffer b;
  b.layout = t.layout;
  b.layout.offset = -reach.low;
  size_t bytes = dtype_bytes(t.dtype, reach.high - reach.low);
  b.storage = allocate_storage({}, bytes);
  std::memset(b.storage->ptr, 0, bytes);
  if (t.dtype == DType::F32)
    for (int64_t i = 0; i < reach.high - reach.low; ++i)
      static_cast<float*>(b.storage->ptr)[i] = static_cast<float>(i % 7) - 3.f;
  return b;
}

double measure(const Kernel& k, const KernelArgs& a) {
  SmallVec<Meta, 4> in_meta(a.in.size()), out_meta(a.out.size());
  SmallVec<Buffer, 4> in_buffer(a.in.size());
  SmallVec<OpInput, 4> in;
  for (size_t i = 0; i < a.in.size(); ++i) in_buffer[i] = scratch(a.in[i], &in_meta[i]);
  for (size_t i = 0; i < a.in.size(); ++i) in.push_back({&in_meta[i], &in_buffer[i], false});
  for (size_t o = 0; o < a.out.size(); ++o) {
    out_meta[o].dtype = a.out[o].dtype;
    out_meta[o].shape = a.out[o].shape;
  }
  g_forced = &k;
  g_forced_op = a.op;
  struct Reset {
    ~Reset() { g_forced = nullptr, g_forced_op = nullptr; }
  } reset;
  auto once = [&] {
    SmallVec<Buffer, 4> out(a.out.size());
    auto t0 = std::chrono::steady_clock::now();
    run_op(*a.op, a.attrs, {in.data(), in.size()}, {out_meta.data(), out_meta.size()}, {out.data(), out.size()});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
  };
  double best = once(), spent = 0;  // the first run also prepares; it counts only when it is all there is
  for (int i = 0; i < kMostRuns && spent < kEnoughSeconds; ++i) {
    double s = once();
    spent += s;
    best = i == 0 ? s : std::min(best, s);
  }
  return best;
}

using Candidates = SmallVec<const Kernel*, 4>;

// Kernels that accept and fit the workspace limit, those to be avoided last; ref only when nothing else does.
Candidates candidates(const KernelRegistry& r, const KernelArgs& a, KernelTier from, size_t limit) {
  Candidates good, slow;
  for (auto& k : r.list(a.op->id, a.device)) {
    if (k->tier < from) continue;
    if (k->tier == KernelTier::Ref && !(good.empty() && slow.empty())) break;
    if ((k->refuse && k->refuse(a)) || (k->workspace && k->workspace(a) > limit)) continue;
    (k->avoid && k->avoid(a) ? slow : good).push_back(k.get());
  }
  for (auto* k : slow) good.push_back(k);
  return good;
}

const Kernel* by_name(const Candidates& c, const std::string& name) {
  for (auto* k : c)
    if (name == k->name) return k;
  return nullptr;
}

}  // namespace

const Kernel* forced_kernel(const OpDef& op) { return has("fast_run") && g_forced_op == &op ? g_forced : nullptr; }

Choice pick_kernel(const KernelRegistry& r, const KernelArgs& a, KernelTier from) {
  if (!has("fast_run")) return r.find(a, from);
  Tuning& t = tuning();
  const uint32_t strategy = kernel_strategy();
  const size_t workspace = workspace_limit();
  if (!(strategy & (kProfile | kReproducible)) && workspace == SIZE_MAX) return r.find(a, from);
  if ((strategy & kReproducible) && from == KernelTier::Library) from = KernelTier::Simd;
  Candidates c = candidates(r, a, from, workspace);
  if (c.empty()) return r.find(a, from);  // over the limit is better than nothing; or the error that lists refusals
  if (!(strategy & kProfile) || c.size() == 1) return {c[0], {}};
  std::unique_lock<std::mutex> lock(t.mutex);
  if (!t.loaded) load(t);
  std::string key = key_text(a, strategy & kAnyBatch);
  if (auto known = t.winners.find(key); known != t.winners.end())
    if (const Kernel* k = by_name(c, known->second)) {
      ++t.stats.found;
      return {k, {}};
    }
  if (strategy & kHeuristic) return {c[0], {}};
  lock.unlock();  // measuring runs ops, which choose kernels
  const Kernel* best = c[0];
  double best_s = -1;
  try {
    for (auto* k : c) {
      double s = measure(*k, a);
      if (best_s < 0 || s < best_s) best = k, best_s = s;
    }
  } catch (const Error&) {
    return {c[0], {}};  // no memory to measure with
  }
  lock.lock();
  ++t.stats.measured;
  t.winners[key] = best->name;
  save(t, key, best->name, best_s);
  return {best, {}};
}

double measured_ns(const Kernel& k, const KernelArgs& a) {
  if (!has("fast_run")) return -1;
  Tuning& t = tuning();
  const uint32_t strategy = kernel_strategy();
  std::string key;
  {
    std::lock_guard<std::mutex> lock(t.mutex);
    if (!t.loaded) load(t);
    key = format("{}{} {}", kTimeOf, k.name, key_text(a, strategy & kAnyBatch));
    if (auto known = t.times.find(key); known != t.times.end()) {
      ++t.stats.found;
      return known->second;
    }
    if (strategy & kHeuristic) return -1;  // what is known, and nothing is measured
  }
  double seconds = -1;
  try {
    seconds = measure(k, a);
  } catch (const Error&) {
    return -1;
  }
  std::lock_guard<std::mutex> lock(t.mutex);
  ++t.stats.measured;
  t.times[key] = seconds * 1e9;
  save(t, key, k.name, seconds);
  return seconds * 1e9;
}

namespace {
uint32_t checked(uint32_t flags) {
  MGE_CHECK((flags & 7u) && !(flags & ~15u), Value,
            "kernel strategy: expected heuristic (1) or profile (2), and reproducible (4) if wanted; got {}.", flags);
  return flags & 3u ? flags : flags | kHeuristic;
}
}  // namespace

KernelPolicy::KernelPolicy(uint32_t flags, size_t workspace)
    : before_(t_policy), strategy_(checked(flags)), workspace_(workspace) {
  t_policy = this;
  forget_kernel_choices();
}
KernelPolicy::~KernelPolicy() {
  t_policy = before_;
  forget_kernel_choices();
}

void set_kernel_strategy(uint32_t flags) {
  {
    std::lock_guard<std::mutex> lock(tuning().mutex);
    tuning().strategy = checked(flags);
  }
  forget_kernel_choices();
}
uint32_t kernel_strategy() {
  if (!has("fast_run")) return kHeuristic;
  if (t_policy) return t_policy->strategy_;
  std::lock_guard<std::mutex> lock(tuning().mutex);
  return tuning().strategy;
}
void set_workspace_limit(size_t bytes) {
  {
    std::lock_guard<std::mutex> lock(tuning().mutex);
    tuning().workspace = bytes;
  }
  forget_kernel_choices();
}
size_t workspace_limit() {
  if (!has("fast_run")) return SIZE_MAX;
  if (t_policy) return t_policy->workspace_;
  std::lock_guard<std::mutex> lock(tuning().mutex);
  return tuning().workspace;
}
void set_tuning_file(std::string path) {
  {
    std::lock_guard<std::mutex> lock(tuning().mutex);
    tuning().file = std::move(path);
    tuning().loaded = false;
    tuning().winners.clear();
    tuning().times.clear();
  }
  forget_kernel_choices();
}
std::string tuning_file() {
  std::lock_guard<std::mutex> lock(tuning().mutex);
  return tuning().file;
}
std::vector<std::pair<std::string, std::string>> tuned_choices() {
  std::lock_guard<std::mutex> lock(tuning().mutex);
  if (!tuning().loaded) load(tuning());
  std::vector<std::pair<std::string, std::string>> out(tuning().winners.begin(), tuning().winners.end());
  for (auto& [key, ns] : tuning().times) out.emplace_back(key, format("{:.1f}", ns));
  std::sort(out.begin(), out.end());
  return out;
}
void add_tuned_choices(const std::vector<std::pair<std::string, std::string>>& choices) {
  {
    std::lock_guard<std::mutex> lock(tuning().mutex);
    if (!tuning().loaded) load(tuning());
    for (auto& [key, found] : choices)
      if (!key.starts_with(kTimeOf))
        tuning().winners[key] = found;
      else if (const double ns = std::strtod(found.c_str(), nullptr); ns > 0)
        tuning().times[key] = ns;
  }
  forget_kernel_choices();
}
TuningStats tuning_stats() {
  std::lock_guard<std::mutex> lock(tuning().mutex);
  return tuning().stats;
}

std::string default_tuning_file() {
  auto env = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v ? v : "");
  };
  if (env("MGE_FASTRUN_CACHE_TYPE") == "MEMORY") return "";
  std::string dir = env("MGE_FASTRUN_CACHE_DIR");
  if (dir.empty() && !env("XDG_CACHE_HOME").empty()) dir = env("XDG_CACHE_HOME") + "/megengine";
  if (dir.empty() && !env("HOME").empty()) dir = env("HOME") + "/.cache/megengine";
  return dir.empty() ? "" : dir + "/kernel_choices.tsv";
}

}  // namespace mge
