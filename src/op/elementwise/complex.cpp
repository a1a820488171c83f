// complex64: a pair of float32. What can be done with it: make it, take it apart, move it, + - * and negation (whose
// rows are in kernel/ref/elementwise/complex.cpp).
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

void infer_complex(InferCtx& c) {
  for (size_t i = 0; i < 2; ++i) nn::check_dtype(c, i, DType::F32);
  nn::check_shape_is(c, 1, c.shape(0), "(that of re)");
  c.out[0].dtype = DType::C64;
  c.out[0].shape = c.shape(0);
}

void infer_part(InferCtx& c) {
  nn::check_dtype(c, 0, DType::C64);
  c.out[0].dtype = DType::F32;
  c.out[0].shape = c.shape(0);
}

}  // namespace

void register_complex(OpRegistry& r) {
  r.op("complex").in("re", "im").out("z").infer(infer_complex).doc("re + i*im as complex64; both are float32.");
  r.op("real").in("z").out("re").infer(infer_part).doc("The real part, float32.");
  r.op("imag").in("z").out("im").infer(infer_part).doc("The imaginary part, float32.");
}

}  // namespace mge
