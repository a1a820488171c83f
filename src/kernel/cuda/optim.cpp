// Optimizer steps: one pass over memory each.
#include <array>

#include "kernel/cuda/rows.h"
#include "kernel/cuda/written.h"
#include "kernel/optim_step.h"

namespace mge::cuda {
namespace {

template <class A>
struct Numbers;  // the attributes in the order of `hyper`, and the one that is a switch
template <>
struct Numbers<SgdAttrs> {
  static Words of(const SgdAttrs& a) { return {bits_of(a.weight_decay), 0, 0, 0, 0}; }
};
template <>
struct Numbers<SgdMomentumAttrs> {
  static Words of(const SgdMomentumAttrs& a) {
    return {bits_of(a.momentum), bits_of(a.weight_decay), 0, 0, a.nesterov};
  }
};
template <>
struct Numbers<AdamAttrs> {
  static Words of(const AdamAttrs& a) {
    return {bits_of(a.beta1), bits_of(a.beta2), bits_of(a.eps), bits_of(a.weight_decay), a.decoupled};
  }
};
template <>
struct Numbers<AdagradAttrs> {
  static Words of(const AdagradAttrs& a) {
    return {bits_of(a.lr_decay), bits_of(a.eps), bits_of(a.weight_decay), 0, 0};
  }
};
template <>
struct Numbers<AdadeltaAttrs> {
  static Words of(const AdadeltaAttrs& a) { return {bits_of(a.rho), bits_of(a.eps), bits_of(a.weight_decay), 0, 0}; }
};
template <>
struct Numbers<LambAttrs> {
  static Words of(const LambAttrs& a) {
    return {bits_of(a.beta1), bits_of(a.beta2), bits_of(a.eps), bits_of(a.weight_decay), a.bias_correction};
  }
};

constexpr int64_t kBlocks = 1056;  // what a large GPU runs at once: each block works out what its elements share

/// Inputs by number; -1: none.
struct Inputs {
  const char* kernel;
  int in[4], lr, t;
  StepAlias alias;
};
constexpr Inputs kSgd{"mge_sgd", {0, 1, -1, -1}, 2, -1, kSgdAlias},
    kMomentum{"mge_sgd_momentum", {0, 1, 3, -1}, 2, -1, kSgdMomentumAlias},
    kAdam{"mge_adam", {0, 1, 2, 3}, 4, 5, kAdamAlias}, kAdagrad{"mge_adagrad", {0, 1, 2, -1}, 3, 4, kAdagradAlias},
    kAdadelta{"mge_adadelta", {0, 1, 2, 3}, 4, -1, kAdadeltaAlias}, kLamb{"mge_lamb", {0, 1, 2, 3}, -1, 4, kLambAlias};
// By the count of numbers, log2 of the pack, and whether powers of the step's count are asked for.
const char* define_of(int numbers, int log, bool powers) {
  static const auto* all = [] {
    auto* texts = new std::array<std::string, 40>;
    for (int i = 0; i < 40; ++i)
      (*texts)[static_cast<size_t>(i)] =
          format("constexpr int kNumbers = {}, V = {};{}", i >> 3, 1 << (i & 3), i & 4 ? "\n#define MGE_POWERS" : "");
    return texts;
  }();
  return (*all)[static_cast<size_t>(numbers << 3 | powers << 2 | log)].c_str();
}

template <class A, const Inputs& inputs>
void run(const KernelArgs& a) {
  const int64_t n = a.out[0].numel();
  if (n == 0) return;
  const size_t hyper = static_cast<size_t>(a.op->required);
  auto in = [&](int k) { return k < 0 ? 0 : address(a.in[static_cast<size_t>(k)].ptr); };
  auto dtype = [&](size_t k) { return k < a.in.size() ? a.in[k].dtype : DType::F32; };
  Words w{n};
  for (int k : inputs.in) w.push_back(in(k));
  for (size_t o = 0; o < 4; ++o) w.push_back(o < a.out.size() ? address(a.out[o].ptr) : 0);
  for (size_t o = 0; o < 4; ++o) w.push_back(o < a.out.size() ? in(inputs.alias[o]) : 0);
  w.push_back(static_cast<Word>(a.out.size()));
  w.push_back(in(inputs.lr));
  w.push_back(in(inputs.t));
  w.push_back(a.in.size() > hyper ? in(static_cast<int>(hyper)) : 0);
  w.push_back(a.in.size() > hyper + 1 ? in(static_cast<int>(hyper) + 1) : 0);
  for (Word x : Numbers<A>::of(a.as<A>())) w.push_back(x);
  const DType lr = inputs.lr < 0 ? DType::F32 : dtype(static_cast<size_t>(inputs.lr)),
              t = inputs.t < 0 ? DType::F32 : dtype(static_cast<size_t>(inputs.t));
  Word places = 0;  // of all that is moved in packs
  for (size_t i = 1; i <= 12; ++i) places |= w[i];
  const int log = log_of_pack(a.out[0].dtype, 0, places);
  engine().launch(a,
                  written(inputs.kernel, "optim", {{"T", a.out[0].dtype}, {"L", lr}, {"S", t}, {"H", dtype(hyper)}},
                          define_of(static_cast<int>(A::kNumbers), log, &inputs == &kAdam || &inputs == &kLamb)),
                  cover((n >> log) + 1, 256, kBlocks), {w.data(), w.size()});
}
const char* refuse(const KernelArgs& a) {
  const DType t = a.out[0].dtype;
  if (!is_float(t)) return "needs floating point";
  for (auto& x : step_inputs(a))
    if (!is_float(x.dtype) || (x.dtype != t && x.numel() != 1)) return "operands of several dtypes";
  return nullptr;
}
template <class A, const Inputs& inputs>
void add_step(KernelRegistry& r, const char* op) {
  add(r, op, {.name = "nvrtc_optim", .refuse = refuse, .run = run<A, inputs>, .alias = inputs.alias});
}

}  // namespace

void register_cuda_optim(KernelRegistry& r) {
  add_step<SgdAttrs, kSgd>(r, "sgd_update");
  add_step<SgdMomentumAttrs, kMomentum>(r, "sgd_momentum_update");
  add_step<AdamAttrs, kAdam>(r, "adam_update");
  add_step<AdagradAttrs, kAdagrad>(r, "adagrad_update");
  add_step<AdadeltaAttrs, kAdadelta>(r, "adadelta_update");
  add_step<LambAttrs, kLamb>(r, "lamb_direction");
}

}  // namespace mge::cuda
