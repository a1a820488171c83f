// What the oneDNN kernels share: engine, stream, the cache of compiled primitives. Seen only inside this leaf. Whoever
// makes a primitive holds an Entered (openmp.h): oneDNN makes it for the number of threads it is told of.
#pragma once
#include <dnnl.hpp>

#include <cstring>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/parallel.h"
#include "kernel/kernel.h"
#include "kernel/onednn/openmp.h"

namespace mge::onednn {

dnnl::engine& engine();
/// The calling thread's stream.
dnnl::stream& stream();

/// All that decides which primitive is needed.
struct Key {
  static constexpr int kSize = 24;
  int64_t v[kSize] = {};
  bool operator==(const Key& o) const { return std::memcmp(v, o.v, sizeof v) == 0; }
  struct Hash {
    size_t operator()(const Key& k) const {
      uint64_t h = 0;
      for (int64_t x : k.v) h = hash_mix(h, static_cast<uint64_t>(x));
      return h;
    }
  };
};

/// Most recently used first; one per thread, because primitives and their memory objects are not shared between
/// threads.
template <class E>
class Cache {
 public:
  /// make(key) is called once per key; it may return null, which is remembered too.
  template <class F>
  E* get(const Key& key, F make) {
    auto it = map_.find(key);
    if (it != map_.end()) {
      list_.splice(list_.begin(), list_, it->second);
      return it->second->second.get();
    }
    std::unique_ptr<E> e = make();
    list_.emplace_front(key, std::move(e));
    map_[key] = list_.begin();
    if (list_.size() > kMost) {
      map_.erase(list_.back().first);
      list_.pop_back();
    }
    return list_.front().second.get();
  }

 private:
  static constexpr size_t kMost = 512;
  std::list<std::pair<Key, std::unique_ptr<E>>> list_;
  std::unordered_map<Key, typename std::list<std::pair<Key, std::unique_ptr<E>>>::iterator, Key::Hash> map_;
};

/// `parts` is the number of threads the primitive was made for.
void execute(const dnnl::primitive& p, int parts, std::initializer_list<std::pair<int, const dnnl::memory*>> args);

/// The primitive for this thread's number of threads. oneDNN cuts its loops by the number of threads it is told, and
/// some kernels then add in another order. So a primitive is only used if it gives the bits of that for one thread,
/// tried once on random numbers: if not, one made for other numbers of parts, at last that for one. make(parts) may
/// return null; same(a, b) compares.
template <class Make, class Same>
auto made_like_for_one(Make make, Same same) -> decltype(make(1)) {
  auto one = make(1);
  const int t = num_threads();
  if (!one || t == 1) return one;
  for (int parts : {t, 2 * t, 3 * t, t + 1, 4 * t, t - 1, t / 2})
    if (parts > 1)
      if (auto p = make(parts); p && same(*p, *one)) return p;
  return one;
}

/// Memory to try a primitive on, and numbers in [-1, 1) for it.
class Room {
 public:
  explicit Room(size_t bytes);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  char* get() const { return data_; }

 private:
  char* data_;
};
void fill_random(void* data, int64_t n, bool bfloat16);

/// Whether the CPU multiplies bfloat16 itself; without that, widening to float32 is as fast.
bool has_bfloat16();

/// c[i] = a[i] x b[i] (+ bias [n] on each row) for i < batch, row-major; a_batch and b_batch are `batch` or 1 (shared).
/// `tb`: b is [n,k].
/// Null when oneDNN has no kernel whose bits are the same for every thread count.
struct Gemm {
  int parts;
  dnnl::matmul prim;
  dnnl::memory a, b, bias, c;
  void run(const void* pa, const void* pb, const void* pbias, void* pc);
};
Gemm* find_gemm(int64_t batch, int64_t a_batch, int64_t b_batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                bool bias, bool bfloat16);

void register_matmul(KernelRegistry& r);
void register_conv2d(KernelRegistry& r);
void register_qproduct(KernelRegistry& r);

}  // namespace mge::onednn
