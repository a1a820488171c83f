// Convolutions by a thread for each element of the result: what is there without cuDNN, and what it is compared with.
#include "kernel/cuda/conv.h"

#include "kernel/conv.h"
#include "kernel/cuda/written.h"
#include "op/conv/conv2d.h"

namespace mge::cuda {

template <class A>
void run_plain_conv(const KernelArgs& a) {
  const int64_t total = a.out[0].numel();
  if (total == 0) return;
  const ConvGeom g = conv_geom_of<A>(a);
  static constexpr const char* kNames[] = {"mge_conv", "mge_conv_dx", "mge_conv_dw"};
  const Code& code = written(kNames[static_cast<int>(A::kRole)], "conv", {{"T", a.out[0].dtype}});
  engine().launch(a, code, cover(total, 128),
                  {total,
                   address(a.out[0].ptr),
                   address(a.in[0].ptr),
                   address(a.in[1].ptr),
                   a.in.size() > 2 ? address(a.in[2].ptr) : 0,
                   g.n,
                   g.c,
                   g.d,
                   g.h,
                   g.w,
                   g.o,
                   g.od,
                   g.oh,
                   g.ow,
                   g.kd,
                   g.kh,
                   g.kw,
                   g.sd,
                   g.sh,
                   g.sw,
                   g.pd,
                   g.ph,
                   g.pw,
                   g.dd,
                   g.dh,
                   g.dw,
                   g.groups});
}
template void run_plain_conv<Conv2dAttrs>(const KernelArgs&);
template void run_plain_conv<Conv2dDxAttrs>(const KernelArgs&);
template void run_plain_conv<Conv2dDwAttrs>(const KernelArgs&);

const char* refuse_plain_conv(const KernelArgs& a) {
  if (!is_float(a.out[0].dtype)) return "needs floating point";
  for (auto& t : a.in)
    if (t.dtype != a.out[0].dtype) return "operands of several dtypes";
  return nullptr;
}

namespace {

template <class A>
void add_role(KernelRegistry& r) {
  add(r, A::kOp, {.name = "nvrtc_conv", .refuse = refuse_plain_conv, .run = run_plain_conv<A>}, KernelTier::Ref);
}

}  // namespace

void register_cuda_conv(KernelRegistry& r) {
  add_role<Conv2dAttrs>(r), add_role<Conv2dDxAttrs>(r), add_role<Conv2dDwAttrs>(r);
}

}  // namespace mge::cuda
