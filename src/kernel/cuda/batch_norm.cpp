// batch_norm_train and its gradient: statistics in one pass, elements in another, in whichever order x lies.
#include "op/norm/batch_norm.h"

#include "kernel/cuda/written.h"
#include "kernel/layouts.h"

namespace mge::cuda {
namespace {

constexpr const char* kOrders[2][3] = {
    {"constexpr int V = 1;\n#define MGE_CHANNEL c", "constexpr int V = 2;\n#define MGE_CHANNEL c",
     "constexpr int V = 4;\n#define MGE_CHANNEL c"},
    {"constexpr int V = 1;\n#define MGE_LAST\n#define MGE_CHANNEL c + k",
     "constexpr int V = 2;\n#define MGE_LAST\n#define MGE_CHANNEL c + k",
     "constexpr int V = 4;\n#define MGE_LAST\n#define MGE_CHANNEL c + k"}};

void run(const KernelArgs& a) {
  const bool backward = a.op->name == "batch_norm_bwd";
  const TensorArg& x = a.in[0];
  const BatchNormGeom g = batch_norm_geom(x.shape);
  const int64_t total = x.numel();
  const bool last = in_channels_last(x);
  const DType t = x.dtype;
  const auto size = static_cast<int64_t>(dtype_size(t));
  // Elements that are moved at once lie in one plane, or in one pixel, at an aligned place.
  const Word places = address(x.ptr) | address(a.out[0].ptr) | (backward ? address(a.in[1].ptr) : 0);
  int64_t pack = 4;
  while (pack > 1 && ((last ? g.channels : g.inner) % pack || places % (pack * size) || pack * size > 16)) pack /= 2;
  const char* define = kOrders[last][pack / 2];

  const int64_t lanes = last ? std::min<int64_t>(32, (g.channels + pack - 1) / pack) : 1;
  const int64_t groups = last ? (g.channels / pack + lanes - 1) / lanes : g.channels;
  const int64_t rows = g.outer * g.inner, chunk = last ? 256 / lanes * 64 : 8192, parts = (rows + chunk - 1) / chunk;
  RefPtr<Storage> part = engine().scratch(a, static_cast<size_t>(2 * parts * g.channels) * 8),
                  factor = engine().scratch(a, static_cast<size_t>(3 * g.channels) * 8);
  auto in = [&](size_t k) { return address(a.in[k].ptr); };
  auto out = [&](size_t k) { return address(a.out[k].ptr); };
  Words w{in(0),
          backward ? in(1) : 0,
          backward ? in(2) : in(1),
          backward ? 0 : in(2),
          backward ? in(3) : 0,
          backward ? in(4) : 0,
          out(0),
          backward ? 0 : out(1),
          backward ? 0 : out(2),
          backward ? 0 : out(3),
          backward ? out(1) : 0,
          backward ? out(2) : 0,
          address(part->ptr),
          address(factor->ptr),
          total,
          g.channels,
          g.inner,
          rows,
          parts,
          groups,
          lanes,
          chunk,
          backward ? 0 : bits_of(a.as<BatchNormAttrs>().eps)};
  auto launch = [&](const char* kernel, Grid grid) {
    engine().launch(a, written(kernel, "batch_norm", {{"T", t}}, define), grid, {w.data(), w.size()});
  };
  launch("mge_bn_sums", {static_cast<unsigned>(parts * groups), 256});
  launch("mge_bn_finish", cover(g.channels * 32, 128));
  launch("mge_bn_elements", cover(total / pack));
}

const char* refuse(const KernelArgs& a) {
  for (auto& t : a.in)
    if (!is_float(t.dtype) || t.dtype != a.in[0].dtype) return "operands of several dtypes";
  const int64_t n = a.in[0].numel();
  return n > 0 && n < int64_t{1} << 31 ? nullptr : "no elements, or more than 2^31";
}

// The order of x, and where it has none of its own that of its gradient.
void layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const size_t images = a.op->name == "batch_norm_bwd" ? 2 : 1;
  bool last = false;
  for (size_t i = 0; i < images; ++i) last |= in_channels_last(in[i]);
  for (size_t i = 0; i < a.in.size(); ++i) last&& i < images ? ask_channels_last(in[i]) : ask_row_major(in[i]);
  if (last) ask_channels_last(out[0]);
}

}  // namespace

void register_cuda_batch_norm(KernelRegistry& r) {
  for (const char* op : {"batch_norm_train", "batch_norm_bwd"})
    add(r, op, {.name = "nvrtc_batch_norm", .refuse = refuse, .run = run, .layouts = layouts});
}

}  // namespace mge::cuda
