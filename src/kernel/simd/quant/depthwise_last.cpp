#include "kernel/simd/quant/depthwise_last.h"

#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/conv.h"
#include "kernel/layouts.h"
#include "kernel/quant_storage.h"
#include "kernel/quant_store.h"
#include "kernel/simd/quant/depthwise_last_raw.h"
#include "op/quant/product.h"

namespace mge::simd_nn {
namespace {

const char* refuse(const KernelArgs& a) {
  if (a.in[0].dtype != DType::QI8 && a.in[0].dtype != DType::QU8) return "needs an 8-bit image";
  if (a.in[1].dtype != DType::QI8) return "needs a qint8 weight";
  if (is_packed(a.out[0].dtype)) return "4-bit result";
  if (!a.in[0].quant.per_tensor()) return "scales for each channel of the image";
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  if (g.groups != g.c || g.groups != g.o) return "not one filter per channel";
  if (g.kh * g.kw > simd::kDepthwiseBytesTaps) return "large filter";
  return g.empty() || g.c == 0 ? "empty" : nullptr;
}
const char* avoid(const KernelArgs& a) { return a.in[0].shape[1] < 8 ? "few channels; planes are faster" : nullptr; }
void layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  ask_channels_last(in[0]);
  for (size_t i = 1; i < a.in.size(); ++i) ask_row_major(in[i]);
  ask_channels_last(out[0]);
}

size_t prepared(const KernelArgs& a) {
  return static_cast<size_t>(simd::DepthwiseBytes(conv_geom_of<QConv2dAttrs>(a)).bytes());
}
void prepare(const KernelArgs& a, void* to) {
  simd::depthwise_bytes_weights(conv_geom_of<QConv2dAttrs>(a), centred<int16_t>(a.in[1]).data(), to);
}

template <class B>
void rows(const KernelArgs& a, const void* weight) {
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  const QuantStore store(a, a.as<QConv2dAttrs>().act, g.kh * g.kw, true);
  const B* x = a.in[0].data<B>();
  // Sums that stay in the first cache.
  constexpr int64_t kTogether = 4096;
  const int64_t most = std::clamp<int64_t>(kTogether / g.c / 4 * 4, 4, g.ow + 3);
  parallel_for(g.n * g.oh, fma_grain(g.kh * g.kw * g.c * g.ow), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> sums(static_cast<size_t>(most * g.c));
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < g.ow; i += most) {
        const int64_t stop = std::min(g.ow, i + most);
        simd::depthwise_bytes_row(g, x + row / g.oh * g.h * g.w * g.c, a.in[0].quant.zero_point, weight, row % g.oh, i,
                                  stop, sums.data());
        store.pixels(sums.data(), (row * g.ow + i) * g.c, stop - i, g.c);
      }
  });
  store.finish();
}

void run(const KernelArgs& a) {
  std::vector<int64_t> own;
  const void* weight = a.prepared;
  if (!weight) {
    own.resize(prepared(a) / sizeof(int64_t) + 1);
    prepare(a, own.data());
    weight = own.data();
  }
  a.in[0].dtype == DType::QI8 ? rows<int8_t>(a, weight) : rows<uint8_t>(a, weight);
}

}  // namespace

Kernel qconv2d_depthwise_last() {
  return {.name = "simd_qconv2d_depthwise_last",
          .refuse = refuse,
          .run = run,
          .layouts = layouts,
          .avoid = avoid,
          .prepare = {1, prepared, prepare}};
}

}  // namespace mge::simd_nn
