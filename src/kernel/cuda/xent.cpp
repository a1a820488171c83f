// softmax_xent and its gradient along the last axis: a block for each row, two passes over memory and one.
#include "kernel/cuda/rows.h"
#include "kernel/cuda/written.h"
#include "op/index/indexing.h"
#include "op/loss/loss.h"
#include "op/loss/softmax.h"

namespace mge::cuda {
namespace {

AxisGeom geom(const KernelArgs& a) {
  const Shape& s = a.in[0].shape;
  return axis_geom(s, normalize_axis(a.op->name.c_str(), a.as<XentAttrs>().axis, s.rank));
}
void run(const KernelArgs& a) {
  const AxisGeom g = geom(a);
  if (a.in[0].numel() == 0) return;
  const bool backward = a.in.size() > 2;
  const TensorArg& y = a.out[backward ? 0 : 1];
  const DType t = y.dtype;
  Word* error = engine().error_words(a, [op = a.op->name, size = g.size](const Word* w) {
    throw_bad_index(op.c_str(), "label", w[1], 0, size, w[2]);
  });
  const int log = log_of_pack(t, g.size, address(a.in[0].ptr) | address(y.ptr));
  engine().launch(a, written(backward ? "mge_xent_bwd" : "mge_xent", "xent", {{"T", t}}, exp_and_log(t, log)),
                  {static_cast<unsigned>(std::min<int64_t>(g.outer, 1 << 16)), 256},
                  {g.outer, g.size, address(a.in[0].ptr), backward ? address(a.in[2].ptr) : 0, address(a.in[1].ptr),
                   backward ? 0 : address(a.out[0].ptr), address(y.ptr), address(error)});
}
const char* refuse(const KernelArgs& a) {
  for (size_t i = 0; i < a.in.size(); ++i)
    if (i != 1 && (!is_float(a.in[i].dtype) || a.in[i].dtype != a.in[0].dtype)) return "operands of several dtypes";
  if (a.in[1].dtype != DType::I32) return "labels are not int32";
  const AxisGeom g = geom(a);
  return g.inner == 1 && g.size > 0 ? nullptr : "needs the last axis, of one class or more";
}

}  // namespace

void register_cuda_xent(KernelRegistry& r) {
  for (const char* op : {"softmax_xent", "softmax_xent_bwd"})
    add(r, op, {.name = "nvrtc_xent", .refuse = refuse, .run = run});
}

}  // namespace mge::cuda
