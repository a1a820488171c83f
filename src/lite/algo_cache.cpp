#include "lite/algo_cache.h"

#include <cstring>
#include <filesystem>
#include <mutex>

#include "base/features.h"
#include "base/write_file.h"
#include "kernel/tune.h"
#include "lite/log.h"
#include "serial/file.h"

namespace lite {
namespace {

constexpr const char* kCategory = "megengine.kernels:plat=cpu";

class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, const std::string& who) : bytes_(bytes), who_(who) {}
  uint32_t number(const char* what) {
    uint32_t n;
    const std::string_view raw = take(sizeof n, what);
    std::memcpy(&n, raw.data(), sizeof n);
    return n;
  }
  std::string_view text(const char* what) { return take(number(what), what); }
  bool done() const { return bytes_.empty(); }

 private:
  std::string_view take(size_t n, const char* what) {
    MGE_CHECK(n <= bytes_.size(), Env,
              "{}: no fast-run cache, or one that was cut off: {} takes {} bytes and {} are left.", who_, what, n,
              bytes_.size());
    const std::string_view out(reinterpret_cast<const char*>(bytes_.data()), n);
    bytes_ = bytes_.subspan(n);
    return out;
  }
  std::span<const uint8_t> bytes_;
  const std::string& who_;
};

void put(std::string* out, std::string_view text) {
  const auto n = static_cast<uint32_t>(text.size());
  out->append(reinterpret_cast<const char*>(&n), sizeof n);
  out->append(text);
}

struct Persistent {
  std::mutex mutex;
  std::string path;
  bool always_sync = false;
  uint64_t measured = 0;  // by the tuner when the file was written last
  AlgoCache others;       // categories of the file that are not ours
};
Persistent& persistent() {
  static auto* p = new Persistent;
  return *p;
}

AlgoCache ours() {
  AlgoCache out;
  CacheEntries known = mge::tuned_choices();
  if (!known.empty()) out.emplace(kCategory, std::move(known));
  return out;
}

void write_to(const std::string& path, const AlgoCache& others) {
  mge::replace_file(path, write_cache(merge_caches(others, ours())));
}

}  // namespace

AlgoCache parse_cache(std::span<const uint8_t> bytes, const std::string& who) {
  AlgoCache out;
  if (bytes.empty()) return out;
  Reader r(bytes, who);
  for (uint32_t n = r.number("the number of categories"); n > 0; --n) {
    CacheEntries& entries = out[std::string(r.text("the name of a category"))];
    for (uint32_t k = r.number("the number of entries"); k > 0; --k) {
      std::string key(r.text("a key"));
      entries.emplace_back(std::move(key), std::string(r.text("a value")));
    }
  }
  MGE_CHECK(r.done(), Env, "{}: no fast-run cache: bytes are left behind the last entry.", who);
  return out;
}

std::string write_cache(const AlgoCache& cache) {
  std::string out;
  auto number = [&](size_t n) {
    const auto word = static_cast<uint32_t>(n);
    out.append(reinterpret_cast<const char*>(&word), sizeof word);
  };
  number(cache.size());
  for (auto& [category, entries] : cache) {
    put(&out, category);
    number(entries.size());
    for (auto& [key, value] : entries) {
      put(&out, key);
      put(&out, value);
    }
  }
  return out;
}

AlgoCache merge_caches(AlgoCache a, const AlgoCache& b) {
  for (auto& [category, entries] : b) {
    std::map<std::string, std::string> all(a[category].begin(), a[category].end());
    for (auto& [key, value] : entries) all[key] = value;
    a[category].assign(all.begin(), all.end());
  }
  return a;
}

void install_cache(const AlgoCache& cache, const std::string& who) {
  size_t foreign = 0;
  for (auto& [category, entries] : cache)
    if (category == kCategory)
      mge::add_tuned_choices(entries);
    else
      foreign += entries.size();
  if (foreign)
    log(INFO, mge::format("{}: {} entries of its fast-run cache name kernels of another program; they are not used",
                          who, foreign));
}

void open_cache_file(const std::string& path, bool always_sync) {
  mge::require("fast_run", "lite: set_persistent_cache");
  MGE_CHECK(!path.empty(), Value, "lite: set_persistent_cache needs the name of a file.");
  AlgoCache cache;
  if (std::filesystem::exists(path)) cache = parse_cache(mge::serial::open_file(path).bytes, path);
  install_cache(cache, path);
  cache.erase(kCategory);
  if (always_sync) write_to(path, cache);  // a file that cannot be written says so now
  Persistent& p = persistent();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.path = path;
  p.always_sync = always_sync;
  p.measured = mge::tuning_stats().measured;
  p.others = std::move(cache);
}

void write_cache_file(const std::string& path) {
  mge::require("fast_run", "lite: dump_persistent_cache");
  MGE_CHECK(!path.empty(), Value, "lite: dump_persistent_cache needs the name of a file.");
  Persistent& p = persistent();
  std::lock_guard<std::mutex> lock(p.mutex);
  write_to(path, p.others);
}

void sync_cache_file() {
  Persistent& p = persistent();
  std::lock_guard<std::mutex> lock(p.mutex);
  const uint64_t measured = mge::tuning_stats().measured;
  if (!p.always_sync || measured == p.measured) return;
  p.measured = measured;
  write_to(p.path, p.others);
}

}  // namespace lite
