// softmax, logsoftmax and layer_norm along the last axes, forward and backward: a warp for each row.
#include "kernel/cuda/rows.h"

#include <array>

#include "kernel/cuda/emit.h"
#include "kernel/cuda/written.h"
#include "op/loss/softmax.h"
#include "op/norm/layer_norm.h"

namespace mge::cuda {

const char* exp_and_log(DType t, int log) {
  static const auto* texts = [] {
    auto* all = new std::array<std::string, 8>;
    for (DType d : {DType::F32, DType::F64})
      for (int k = 0; k < 4; ++k) {
        const DType one[] = {d};
        std::string& s = (*all)[static_cast<size_t>((d == DType::F64) << 2 | k)];
        s = format("constexpr int V = {};\n#include \"kernel/cuda/device/math64.cuh\"\n", 1 << k);
        for (const char* op : {"exp", "log"})
          s += body_text(region_of(OpRegistry::global().get(op), nullptr, one), (std::string(op) + "_body").c_str());
      }
    return all;
  }();
  return (*texts)[static_cast<size_t>((t == DType::F64) << 2 | log)].c_str();
}

namespace {

struct Rows {
  int64_t rows, size;
  const void *x = nullptr, *g = nullptr, *mean_in = nullptr, *rstd_in = nullptr, *weight = nullptr, *bias = nullptr;
  void *y = nullptr, *mean = nullptr, *rstd = nullptr, *gw = nullptr, *gb = nullptr, *part = nullptr;
  int64_t chunks = 0;
  double eps = 0;
  int log = 0;  // of the elements in a pack
  void choose_pack(DType t) {
    log = log_of_pack(t, size, address(x) | address(g) | address(weight) | address(bias) | address(y));
  }
  void launch(const KernelArgs& a, const char* kernel, Grid grid) const {
    const DType t = a.in[0].dtype;
    engine().launch(
        a, written(kernel, "rows", {{"T", t}}, exp_and_log(t, log)), grid,
        {rows, size, address(x), address(g), address(mean_in), address(rstd_in), address(weight), address(bias),
         address(y), address(mean), address(rstd), address(gw), address(gb), address(part), chunks, bits_of(eps)});
  }
};

AxisGeom geom(const KernelArgs& a) {
  const Shape& s = a.in[0].shape;
  return axis_geom(s, normalize_axis(a.op->name.c_str(), a.as<SoftmaxAttrs>().axis, s.rank));
}
void run_softmax(const KernelArgs& a) {
  const AxisGeom g = geom(a);
  if (a.out[0].numel() == 0) return;
  Rows r{g.outer, g.size, a.in[0].ptr};
  r.g = a.in.size() > 1 ? a.in[1].ptr : nullptr;
  r.y = a.out[0].ptr;
  r.launch(a, ("mge_" + a.op->name).c_str(), cover(r.rows * 32, 128));
}
const char* refuse_dtypes(const KernelArgs& a) {
  for (auto& t : a.in)
    if (!is_float(t.dtype) || t.dtype != a.in[0].dtype) return "operands of several dtypes";
  return nullptr;
}
const char* refuse_softmax(const KernelArgs& a) {
  if (const char* why = refuse_dtypes(a)) return why;
  return geom(a).inner == 1 ? nullptr : "needs the last axis";
}

void run_layer_norm(const KernelArgs& a) {
  const auto& at = a.as<LayerNormAttrs>();
  const LayerNormGeom g = layer_norm_geom(a.in[0].shape, at.n_axes);
  if (g.rows == 0) return;
  Rows r{g.rows, g.size, a.in[0].ptr};
  if (a.in.size() > 2) r.weight = a.in[1].ptr, r.bias = a.in[2].ptr;
  r.y = a.out[0].ptr, r.mean = a.out[1].ptr, r.rstd = a.out[2].ptr;
  r.eps = at.eps;
  r.choose_pack(a.in[0].dtype);
  r.launch(a, "mge_layer_norm", cover(r.rows * 32, 128));
}
void run_layer_norm_bwd(const KernelArgs& a) {
  const LayerNormGeom g = layer_norm_geom(a.in[0].shape, a.as<LayerNormBwdAttrs>().n_axes);
  Rows r{g.rows, g.size, a.in[0].ptr, a.in[1].ptr, a.in[2].ptr, a.in[3].ptr};
  if (a.in.size() > 4) r.weight = a.in[4].ptr;
  r.y = a.out[0].ptr;
  r.choose_pack(a.in[0].dtype);
  if (g.rows) r.launch(a, "mge_layer_norm_bwd", cover(r.rows * 32, 128));
  if (!r.weight || !g.size) return;
  r.chunks = (g.rows + 31) / 32;
  RefPtr<Storage> part = engine().scratch(a, static_cast<size_t>(2 * r.chunks * g.size) * 8);
  r.part = part->ptr;
  if (g.rows) r.launch(a, "mge_layer_norm_parts", cover(r.chunks * (g.size >> r.log), 128));
  r.gw = a.out[1].ptr, r.gb = a.out[2].ptr;
  r.launch(a, "mge_layer_norm_columns", {static_cast<unsigned>((g.size + 31) / 32), 1024});
}

}  // namespace

void register_cuda_rows(KernelRegistry& r) {
  for (const char* op : {"softmax", "softmax_bwd", "logsoftmax", "logsoftmax_bwd"})
    add(r, op, {.name = "nvrtc_rows", .refuse = refuse_softmax, .run = run_softmax});
  add(r, "layer_norm", {.name = "nvrtc_rows", .refuse = refuse_dtypes, .run = run_layer_norm});
  add(r, "layer_norm_bwd", {.name = "nvrtc_rows", .refuse = refuse_dtypes, .run = run_layer_norm_bwd});
}

}  // namespace mge::cuda
