#include "kernel/layouts.h"

#include <algorithm>

namespace mge {

bool runs_along_channels(const TensorArg& t) {
  const int rank = t.shape.rank;
  if (rank < 3 || rank > 5 || t.shape[1] < 2) return false;
  int64_t past = t.layout.stride[1] * (t.shape[1] - 1);  // the last channel of a pixel; the next pixel lies behind it
  if (past <= 0) return false;
  bool pixels = false;
  for (int i = rank - 1; i >= 0; --i) {
    if (i == 1 || t.shape[i] == 1) continue;
    if (t.layout.stride[i] <= past) return false;
    past = t.layout.stride[i] * (t.shape[i] - 1);
    pixels |= i > 1;
  }
  return pixels;
}

void keep_channels_last(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const int rank = out[0].shape.rank;
  if (rank < 3 || rank > 5) return;
  for (size_t i = 0; i < a.in.size(); ++i) {
    if (in[i].shape.rank != rank || in[i].contiguous() || !(in[i].shape == out[0].shape)) continue;
    if (in[i].layout.is_channels_last(in[i].shape)) return ask_channels_last(out[0]);
  }
}

void sort_axes_by_output(TensorArg& out, std::span<TensorArg> in) {
  const int rank = out.shape.rank;
  int order[kMaxRank];
  for (int i = 0; i < rank; ++i) {  // largest stride first, equal ones as they are
    int at = i;
    for (; at > 0 && out.layout.stride[order[at - 1]] < out.layout.stride[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  auto sort = [&](TensorArg& t) {
    const TensorArg old = t;
    t.shape.rank = static_cast<uint8_t>(rank);
    for (int i = 0; i < rank; ++i) {
      int ax = order[i] - (rank - old.shape.rank);
      t.shape[i] = ax < 0 ? 1 : old.shape[ax];
      t.layout.stride[i] = ax < 0 ? 0 : old.layout.stride[ax];
    }
  };
  for (TensorArg& t : in) sort(t);
  sort(out);
}

}  // namespace mge
