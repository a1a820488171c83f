// A load, a lookup and a store per byte: as fast as memory for images that come from files.
#include "op/vision/byte_table.h"

#include "base/parallel.h"
#include "kernel/kernel.h"
#include "op/in_build.h"
#include "op/opdef.h"

namespace mge {
namespace {

// [planes, C, inner] or, to_nchw, pixels of C bytes into planes.
template <class T>
void look_up(const KernelArgs& a) {
  const auto& at = a.as<ByteTableAttrs>();
  const Shape& s = a.in[0].shape;
  const uint8_t* x = a.in[0].data<uint8_t>();
  const T* table = a.in[1].data<T>();
  T* y = a.out[0].data<T>();
  const bool shared = a.in[1].shape[0] == 1;
  constexpr int64_t kGrain = 4096;
  if (at.to_nchw) {
    const int64_t channels = s[3], pixels = s[1] * s[2];
    parallel_for(s[0] * channels * pixels, kGrain, [&](int64_t b, int64_t e) {
      while (b < e) {  // along one plane of the output
        const int64_t plane = b / pixels, p = b % pixels, n = std::min(e - b, pixels - p);
        const T* row = table + (shared ? 0 : plane % channels * 256);
        const uint8_t* from = x + (plane / channels * pixels + p) * channels + plane % channels;
        for (int64_t i = 0; i < n; ++i) y[b + i] = row[from[i * channels]];
        b += n;
      }
    });
    return;
  }
  const int axis = shared ? 0 : normalize_axis("byte_table", at.axis, s.rank);
  int64_t inner = 1;
  for (int i = axis + 1; i < s.rank; ++i) inner *= s[i];
  const int64_t channels = shared ? 1 : s[axis];
  parallel_for(s.numel(), kGrain, [&](int64_t b, int64_t e) {
    int64_t c = b / inner % channels;
    while (b < e) {
      const int64_t n = shared ? e - b : std::min(e - b, inner - b % inner);
      const T* row = table + c * 256;
      for (int64_t i = 0; i < n; ++i) y[b + i] = row[x[b + i]];
      b += n;
      if (++c == channels) c = 0;
    }
  });
}

void run_byte_table(const KernelArgs& a) {
  switch (dtype_size(a.in[1].dtype)) {
    case 2:
      return look_up<uint16_t>(a);
    case 4:
      return look_up<uint32_t>(a);
    default:
      return look_up<uint64_t>(a);
  }
}

}  // namespace

void register_ref_byte_table(KernelRegistry& r) {
  r.add("byte_table", KernelTier::Ref, {.name = "ref_byte_table", .run = run_byte_table});
}

}  // namespace mge
