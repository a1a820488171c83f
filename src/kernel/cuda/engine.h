// What runs the text of a kernel. On a GPU that is NVRTC and the driver (device_engine.cpp); tests install one that
// compiles the same text for the host and loops over the grid (emulate.h), so that the fake device computes with these
// kernels.
//   static Code code{"mge_fill", "#include …"};
//   engine().launch(a, code, cover(n), {address(a.out[0].ptr), n});
#pragma once
#include <atomic>
#include <bit>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>

#include "kernel/kernel.h"

namespace mge::cuda {

/// A kernel takes one struct of 8-byte words by value: addresses, integers, doubles by their bits.
using Word = int64_t;
using Words = SmallVec<Word, 48>;
inline Word address(const void* p) { return reinterpret_cast<Word>(p); }
inline Word bits_of(double v) { return std::bit_cast<Word>(v); }

struct Grid {
  unsigned blocks = 1, threads = 256;
};
/// Threads for n items, each of which a thread takes or, past the limit of blocks, several.
inline Grid cover(int64_t n, unsigned threads = 256, int64_t most = 1 << 14) {
  const int64_t blocks = (n + threads - 1) / threads;
  return {static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most), threads};
}

/// The text of a kernel named `name`, and what an engine made of it. Lives for good. Kernels of one text are compiled
/// together, as `unit`.
struct Code {
  std::string name, text, unit;
  mutable std::atomic<void*> loaded{nullptr};
  Code(std::string n, std::string t) : name(n), text(std::move(t)), unit(std::move(n)) {}
  Code(std::string n, std::string t, std::string u) : name(std::move(n)), text(std::move(t)), unit(std::move(u)) {}
};

/// Throws what the words of error_words say.
using Raise = std::function<void(const Word* words)>;

class Engine {
 public:
  virtual ~Engine() = default;
  virtual bool is_gpu() const { return false; }
  virtual void launch(const KernelArgs& a, const Code& code, Grid grid, std::span<const Word> args) = 0;
  /// Memory for this call; it may be let go when all of it is enqueued.
  virtual RefPtr<Storage> scratch(const KernelArgs& a, size_t bytes) = 0;
  /// Four words that a kernel may write when it meets a value that is an error: [0] becomes 1, the others tell of it
  /// (`report` in device/types.cuh). When the work is done, `raise` throws.
  virtual Word* error_words(const KernelArgs& a, Raise raise) = 0;

  void launch(const KernelArgs& a, const Code& code, Grid grid, std::initializer_list<Word> args) {
    launch(a, code, grid, std::span<const Word>(args.begin(), args.size()));
  }
};
Engine& engine();
/// For tests; null: the GPU's again.
void set_engine(Engine* e);

/// The code for `key` (the family's number first), made at the first request by `make`.
using Key = SmallVec<uint64_t, 16>;
const Code& code_of(const Key& key, const std::function<Code*()>& make);
/// Families of keys.
enum class Family : uint64_t { Region, RegionReduce, Fold, Copy, Kernel };

/// The headers that texts may include, by name.
struct Header {
  const char *name, *text;
};
std::span<const Header> headers();

}  // namespace mge::cuda
