#include "plan/bands.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "base/small_vec.h"
#include "core/profile.h"
#include "kernel/cost.h"

namespace mge {
namespace {

using Stages = std::span<const ChainStage>;

int64_t height(const ChainStage& s) { return s.args->out[0].shape[2]; }
int64_t row_bytes(const ChainStage& s) {
  const TensorArg& y = s.args->out[0];
  return y.shape[1] * y.shape[3] * static_cast<int64_t>(dtype_size(y.dtype));
}
RowRange needs(const ChainStage& s, RowRange of) { return s.kernel->needs(*s.args, of); }

// Most rows of each result that are there at once when the last is computed `rows` at a time.
void rows_held(Stages stages, int64_t rows, int64_t* held) {
  std::fill_n(held, stages.size(), 0);
  const int64_t all = height(stages.back());
  for (int64_t r = 0; r < all; r += rows) {
    RowRange want{r, std::min(all, r + rows)};
    for (size_t k = stages.size(); k-- > 0;) {
      held[k] = std::max(held[k], want.last - want.first);
      want = needs(stages[k], want);
    }
  }
}

// What one thread holds of the result of a stage: rows from `base` on, up to `done`, as if it were whole.
struct Held {
  char* memory = nullptr;
  int64_t row = 0, room = 0;  // bytes of a row, rows that fit
  int64_t base = 0, done = 0;
  bool any = false;

  // Makes room for `want`, keeping what is there of it. Where row 0 would be.
  char* take(RowRange want) {
    if (!any || want.first >= done) {
      base = done = want.first;
      any = true;
    } else if (want.last - base > room) {
      const int64_t kept = done - want.first;
      std::memmove(memory, memory + (want.first - base) * row, static_cast<size_t>(kept * row));
      base = want.first;
    }
    return memory - base * row;
  }
};

// Rows [lo, hi) of image `image` of the last result. `part` of `parts` equal ones of the memory in between is ours.
void run_span(Stages stages, int64_t rows, const int64_t* held, int64_t image, int64_t lo, int64_t hi, int64_t part,
              int64_t parts, int64_t* spent) {
  struct Own {
    SmallVec<TensorArg, 8> tensors;  // operands, result
    KernelArgs args;
    Held held;
  };
  const size_t n = stages.size();
  Own own[kMostInChain];
  for (size_t k = 0; k < n; ++k) {
    Own& o = own[k];
    const KernelArgs& from = *stages[k].args;
    for (const TensorArg& t : from.in) o.tensors.push_back(t);
    o.tensors.push_back(from.out[0]);
    o.args = from;
    if (!from.prepared) o.args.prepared = from.workspace;
    o.args.in = {o.tensors.data(), from.in.size()};
    o.args.out = {o.tensors.data() + from.in.size(), 1};
    if (k + 1 == n) continue;
    const int64_t row = row_bytes(stages[k]), there = from.out[0].shape[0] * height(stages[k]) / parts;
    o.held.memory = from.out[0].data<char>() + part * there * row;
    o.held.row = row;
    o.held.room = std::min(there - 1, 2 * held[k]);
  }
  RowRange want[kMostInChain];
  for (int64_t next; lo < hi; lo = next) {
    next = std::min(hi, lo + rows);
    want[n - 1] = {lo, next};
    for (size_t k = n; k-- > 1;) want[k - 1] = needs(stages[k], want[k]);
    for (size_t k = 0; k < n; ++k) {
      Own& o = own[k];
      RowRange of = want[k];
      if (k + 1 < n) {
        // Kernels count rows over all images.
        char* base = o.held.take(of) - image * height(stages[k]) * o.held.row;
        o.tensors.back().ptr = base;
        own[k + 1].tensors[0].ptr = base;
        of.first = std::max(of.first, o.held.done);
        o.held.done = std::max(o.held.done, of.last);
      }
      const int64_t begin = spent ? profile::now() : 0;
      if (of.first < of.last) stages[k].kernel->run(o.args, image, of);
      if (spent) spent[k] += profile::now() - begin;
    }
  }
}

}  // namespace

bool set_bands(Stages stages, Chain& c) {
  const int64_t all = height(stages.back());
  for (int64_t rows = 1; rows <= all / 2; ++rows) {
    std::array<int64_t, kMostInChain> held{};
    rows_held(stages, rows, held.data());
    double bytes = 0;
    bool fits = true;
    for (size_t k = 0; k + 1 < stages.size(); ++k) {
      bytes += static_cast<double>(held[k] * row_bytes(stages[k]));
      fits &= held[k] < stages[k].args->out[0].shape[0] * height(stages[k]);
    }
    if (!fits || (c.rows && bytes > cost::band_bytes())) break;
    c.rows = rows;
    c.held = held;
  }
  return c.rows > 0;
}

bool run_bands(Stages stages, const Chain& c, int64_t* spent) {
  const TensorArg& y = stages.back().args->out[0];
  const int64_t images = y.shape[0], all = y.shape[2], threads = num_threads();
  const auto& held = c.held;
  // Each thread has its own rows, and memory for its bands in that of the whole results.
  const int64_t spans = std::min(all, (threads + images - 1) / images), parts = images * spans;
  double saved = 0, again = 0;
  for (size_t k = 0; k + 1 < stages.size(); ++k) {
    const int64_t h = height(stages[k]);
    if (images * h / parts - 1 < held[k]) return false;
    saved += cost::between_ns(static_cast<double>(images * h * row_bytes(stages[k])));
  }
  for (int64_t s = 0; spans > 1 && s < spans; ++s) {
    RowRange want{all * s / spans, all * (s + 1) / spans};
    for (size_t k = stages.size(); k-- > 1;) {
      want = needs(stages[k], want);
      again += stages[k - 1].ns / static_cast<double>(images) * static_cast<double>(want.last - want.first) /
               static_cast<double>(height(stages[k - 1]));
    }
  }
  if (spans > 1) {
    for (size_t k = 0; k + 1 < stages.size(); ++k) again -= stages[k].ns / static_cast<double>(images);
    if (again * static_cast<double>(images) > saved) return false;
  }
  const int64_t begin = spent ? profile::now() : 0;
  for (const ChainStage& s : stages)
    if (s.args->workspace && !s.args->prepared) s.args->kernel->prepare.run(*s.args, s.args->workspace);
  parallel_for(
      parts, 1,
      [&](int64_t b, int64_t end) {
        for (; b < end; ++b) {
          const int64_t image = b / spans, s = b % spans;
          run_span(stages, c.rows, held.data(), image, all * s / spans, all * (s + 1) / spans, b, parts,
                   b == 0 ? spent : nullptr);
        }
      },
      1);
  if (!spent) return true;
  // The first span's shares of the whole.
  int64_t first = 0;
  for (size_t k = 0; k < stages.size(); ++k) first += spent[k];
  const double scale = first ? static_cast<double>(profile::now() - begin) / static_cast<double>(first) : 0;
  for (size_t k = 0; k < stages.size(); ++k) spent[k] = static_cast<int64_t>(static_cast<double>(spent[k]) * scale);
  return true;
}

}  // namespace mge
