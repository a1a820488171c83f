// batch_norm_train and its gradient: statistics in one pass, elements in another, in whichever order x lies.
#include "op/norm/batch_norm.h"

#include "kernel/cuda/rows.h"
#include "kernel/cuda/written.h"
#include "kernel/layouts.h"

namespace mge::cuda {
namespace {

constexpr const char* kOrders[2][4] = {
    {"constexpr int V = 1;", "constexpr int V = 2;", "constexpr int V = 4;", "constexpr int V = 8;"},
    {"constexpr int V = 1;\n#define MGE_LAST", "constexpr int V = 2;\n#define MGE_LAST",
     "constexpr int V = 4;\n#define MGE_LAST", "constexpr int V = 8;\n#define MGE_LAST"}};
// Blocks that fill a large GPU twice with what its registers hold of them. The sums are added up in parts of that many,
// so the number is no question of the machine that runs: a GPU of another size gives the same bits.
constexpr int64_t kBlocks = 528;

void run(const KernelArgs& a) {
  const bool backward = a.op->name == "batch_norm_bwd";
  const TensorArg& x = a.in[0];
  const BatchNormGeom g = batch_norm_geom(x.shape);
  const int64_t total = x.numel();
  const bool last = in_channels_last(x);
  const DType t = x.dtype, p = a.in[2].dtype;
  // Elements that are moved at once lie in one plane, or in one pixel, at an aligned place.
  const Word places = address(x.ptr) | address(a.out[0].ptr) | (backward ? address(a.in[1].ptr) : 0);
  const int log = log_of_pack(t, last ? g.channels : g.inner, places);
  const int64_t pack = 1 << log;
  const char* define = kOrders[last][log];

  const int64_t lanes = last ? std::min<int64_t>(32, (g.channels + pack - 1) / pack) : 1;
  const int64_t groups = last ? (g.channels / pack + lanes - 1) / lanes : g.channels;
  const int64_t rows = g.outer * g.inner, step = last ? 256 / lanes * 4 : 1024;  // rows that a block reads at once
  const int64_t wanted = std::max<int64_t>(1, kBlocks / groups);
  const int64_t chunk = std::max<int64_t>(1, ((rows + wanted - 1) / wanted + step - 1) / step) * step;
  const int64_t parts = (rows + chunk - 1) / chunk;
  RefPtr<Storage> part = engine().scratch(a, static_cast<size_t>(2 * parts * g.channels) * 8),
                  factor = engine().scratch(a, static_cast<size_t>(4 * g.channels) * 8);
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
    engine().launch(a, written(kernel, "batch_norm", {{"X", t}, {"P", p}}, define), grid, {w.data(), w.size()});
  };
  const Grid tiles{static_cast<unsigned>(parts * groups), 256};
  launch(backward ? "mge_bn_sums_bwd" : "mge_bn_sums", tiles);
  launch("mge_bn_finish", {static_cast<unsigned>((g.channels + 31) / 32), 1024});
  launch(backward ? "mge_bn_elements_bwd" : "mge_bn_elements", last ? tiles : cover(total / pack));
}

const char* refuse(const KernelArgs& a) {
  const DType t = a.in[0].dtype, p = a.in.back().dtype;
  const bool mixed = p == DType::F32 && (t == DType::F16 || t == DType::BF16);
  const size_t images = a.op->name == "batch_norm_bwd" ? 2 : 1;
  for (size_t i = 0; i < a.in.size(); ++i)
    if (!is_float(t) || a.in[i].dtype != (mixed && i >= images ? p : t)) return "operands of several dtypes";
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
