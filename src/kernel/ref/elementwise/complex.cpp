// complex64: making, taking apart, + - * and negation with broadcasting, and casts from and to the real numbers.
#include <complex>

#include "kernel/copy.h"
#include "kernel/ref/nn_ref.h"
#include "kernel/row_io.h"
#include "op/in_build.h"

namespace mge {
namespace {

using C = std::complex<float>;

const char* refuse_real(const KernelArgs& a) { return a.out[0].dtype == DType::C64 ? nullptr : "needs complex64"; }

// f(offset in the output, offsets in the inputs), all in elements.
template <class F>
void each_element(const KernelArgs& a, F f) {
  if (a.out[0].numel() == 0) return;
  const TensorArg* operands[4] = {&a.out[0]};
  for (size_t i = 0; i < a.in.size(); ++i) operands[i + 1] = &a.in[i];
  LoopNest nest = make_loop_nest(a.out[0].shape, {operands, a.in.size() + 1});
  int64_t at[kMaxRank] = {}, offset[4] = {};
  for (;;) {
    f(offset);
    int d = nest.rank - 1;
    for (; d >= 0; --d) {
      for (int k = 0; k < nest.operands; ++k) offset[k] += nest.stride[k][d];
      if (++at[d] < nest.size[d]) break;
      for (int k = 0; k < nest.operands; ++k) offset[k] -= nest.stride[k][d] * nest.size[d];
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

// The products are written out: std::complex asks the C library about NaN for each.
struct Add {
  static C eval(C a, C b) { return a + b; }
};
struct Sub {
  static C eval(C a, C b) { return a - b; }
};
struct Mul {
  static C eval(C a, C b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
};
template <class Op>
void run_binary(const KernelArgs& a) {
  const C *x = a.in[0].data<C>(), *y = a.in[1].data<C>();
  each_element(a, [&](const int64_t* o) { a.out[0].data<C>()[o[0]] = Op::eval(x[o[1]], y[o[2]]); });
}
void run_neg(const KernelArgs& a) {
  each_element(a, [&](const int64_t* o) { a.out[0].data<C>()[o[0]] = -a.in[0].data<C>()[o[1]]; });
}

void run_complex(const KernelArgs& a) {
  const float *re = a.in[0].data<float>(), *im = a.in[1].data<float>();
  for (int64_t i = 0; i < a.out[0].numel(); ++i) a.out[0].data<C>()[i] = {re[i], im[i]};
}
template <int part>
void run_part(const KernelArgs& a) {
  const float* z = a.in[0].data<float>();
  for (int64_t i = 0; i < a.out[0].numel(); ++i) a.out[0].data<float>()[i] = z[2 * i + part];
}

const char* refuse_no_complex(const KernelArgs& a) {
  return a.in[0].dtype == DType::C64 || a.out[0].dtype == DType::C64 ? nullptr : "needs complex64 on one side";
}
// A real number has no imaginary part; the way back drops it.
void run_typecvt(const KernelArgs& a) {
  const TensorArg &x = a.in[0], &y = a.out[0];
  for (int64_t i = 0; i < y.numel(); ++i) {
    if (x.dtype == y.dtype) {
      y.data<C>()[i] = x.data<C>()[i];
      continue;
    }
    double v = 0;
    if (x.dtype == DType::C64)
      v = static_cast<double>(x.data<C>()[i].real());
    else
      load_row(x.dtype, x.data<char>() + static_cast<size_t>(i) * dtype_size(x.dtype), 1, Compute::F64, &v, 1);
    if (y.dtype == DType::C64)
      y.data<C>()[i] = static_cast<float>(v);
    else
      store_row(y.dtype, y.data<char>() + static_cast<size_t>(i) * dtype_size(y.dtype), 1, Compute::F64, &v, 1);
  }
}

}  // namespace

void register_ref_complex(KernelRegistry& r) {
  auto add = [&](OpName op, const char* name, void (*run)(const KernelArgs&)) MGE_INLINED {
    r.add(op, KernelTier::Ref, Kernel{.name = name, .refuse = refuse_real, .run = run, .flags = kStridedInputs});
  };
  add("add", "ref_add_c64", run_binary<Add>);
  add("sub", "ref_sub_c64", run_binary<Sub>);
  add("mul", "ref_mul_c64", run_binary<Mul>);
  add("neg", "ref_neg_c64", run_neg);
  r.add("typecvt", KernelTier::Ref, Kernel{.name = "ref_typecvt_c64", .refuse = refuse_no_complex, .run = run_typecvt});
  r.add("complex", KernelTier::Ref, Kernel{.name = "ref_complex", .run = run_complex});
  r.add("real", KernelTier::Ref, Kernel{.name = "ref_real", .run = run_part<0>});
  r.add("imag", KernelTier::Ref, Kernel{.name = "ref_imag", .run = run_part<1>});
}

}  // namespace mge
