// Random ops: the words, and the bits, of the CPU's vector kernels.
#include "op/rng/rng.h"

#include "kernel/cuda/emit.h"
#include "kernel/cuda/written.h"

namespace mge::cuda {
namespace {

void draw(const KernelArgs& a, const char* kernel, DType t, const char* define, const TensorArg& state, Word mask,
          Word x, double p, double q) {
  const int64_t n = a.out[0].numel();
  engine().launch(a, written(kernel, "rng", {{"O", t}}, define), cover((n + 3) / 4),
                  {n, address(state.ptr), address(a.out[a.out.size() - 1].ptr), address(a.out[0].ptr), mask, x,
                   bits_of(p), bits_of(q)});
}
void run_bits(const KernelArgs& a) { draw(a, "mge_rng_bits", DType::I32, "#define MGE_BITS", a.in[0], 0, 0, 0, 0); }
void run_uniform(const KernelArgs& a) {
  const auto& at = a.as<RngUniformAttrs>();
  draw(a, "mge_rng_uniform", a.out[0].dtype, "", a.in[0], 0, 0, at.lo, at.hi);
}
void run_normal(const KernelArgs& a) {
  const auto& at = a.as<RngNormalAttrs>();
  static const std::string* bodies = [] {
    auto* text = new std::string("#define MGE_NORMAL\n");
    const DType one[] = {DType::F32};
    for (const char* op : {"log", "sin", "cos"})
      *text += body_text(region_of(OpRegistry::global().get(op), nullptr, one), (std::string(op) + "_body").c_str());
    return text;
  }();
  draw(a, "mge_rng_normal", a.out[0].dtype, bodies->c_str(), a.in[0], 0, 0, at.mean, at.std);
}
void run_dropout(const KernelArgs& a) {
  draw(a, "mge_dropout", a.out[0].dtype, "", a.in[1], address(a.out[1].ptr), address(a.in[0].ptr),
       a.as<DropoutAttrs>().p, 0);
}
void run_permutation(const KernelArgs& a) {
  engine().launch(
      a, written("mge_rng_permutation", "rng", {{"O", DType::I32}}, "#define MGE_BITS"), {1, 32},
      {2 * a.as<PermutationAttrs>().n, address(a.in[0].ptr), address(a.out[1].ptr), address(a.out[0].ptr), 0, 0, 0, 0});
}
const char* refuse_not_f32(const KernelArgs& a) { return a.out[0].dtype == DType::F32 ? nullptr : "needs float32"; }
const char* refuse_whole(const KernelArgs& a) { return is_float(a.out[0].dtype) ? nullptr : "needs floating point"; }

}  // namespace

void register_cuda_rng(KernelRegistry& r) {
  add(r, "rng_bits", {.name = "nvrtc_rng_bits", .run = run_bits});
  add(r, "rng_permutation", {.name = "nvrtc_rng_permutation", .run = run_permutation});
  add(r, "rng_uniform", {.name = "nvrtc_rng_uniform", .refuse = refuse_not_f32, .run = run_uniform});
  add(r, "rng_normal", {.name = "nvrtc_rng_normal", .refuse = refuse_not_f32, .run = run_normal});
  add(r, "dropout", {.name = "nvrtc_dropout", .refuse = refuse_whole, .run = run_dropout});
}

}  // namespace mge::cuda
