// The registry, the arity and device checks of infer_op, and the promotion table of api/a §4.3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "op/in_build.h"
#include "op/promote.h"

namespace mge {
namespace {

using testing::HasSubstr;

std::string error_of(ErrorKind kind, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.text();
    return e.text();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(RegistryTest, NamesIdsAndDocs) {
  OpRegistry& r = OpRegistry::global();
  EXPECT_GE(r.size(), 30u);
  std::set<std::string> names;
  for (size_t i = 0; i < r.size(); ++i) {
    const OpDef& op = r.at(static_cast<OpId>(i));
    EXPECT_EQ(op.id, i);
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
    EXPECT_EQ(r.find(op.name), &op);
    EXPECT_FALSE(op.doc.empty()) << op.name << " has no doc";
    EXPECT_NE(op.infer, nullptr) << op.name;
    EXPECT_GE(op.outputs.size(), 1u) << op.name;
    EXPECT_LE(op.required, op.inputs.size()) << op.name;
    EXPECT_GE(op.version, 1) << op.name;
    EXPECT_EQ(op.is(kView), op.view != nullptr) << op.name;
    if (!op.variadic) {
      EXPECT_EQ(op.saves.inputs >> op.inputs.size(), 0u) << op.name << " saves an input it does not have";
    }
    EXPECT_EQ(op.saves.outputs >> op.outputs.size(), 0u) << op.name << " saves an output it does not have";
#ifndef MGE_LITE_ONLY  // which has no gradients
    // A backward that gets there raises.
    const bool first_order = op.doc.find("First order only") != std::string::npos;
    EXPECT_TRUE(op.vjp || op.decompose || op.is(kNoGrad) || first_order)
        << op.name << " has no gradient and does not say so";
#endif
  }
}

TEST(RegistryTest, UnknownNamesSuggestNearOnes) {
  OpRegistry& r = OpRegistry::global();
  EXPECT_EQ(r.find("no_such_op"), nullptr);
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { r.get("zzz"); }), "op: there is no op 'zzz'.");
  EXPECT_THAT(error_of(ErrorKind::Value, [&] { r.get("reshape2"); }),
              HasSubstr("there is no op 'reshape2'. Did you mean "));
  EXPECT_THAT(error_of(ErrorKind::Value, [&] { r.get("reshape2"); }), HasSubstr("reshape?"));
}

void infer_nothing(InferCtx& c) { c.out[0] = Meta(); }

TEST(RegistryTest, TwiceTheSameNameIsOurBug) {
  OpRegistry r;
  r.op("probe").in("x").out("y").infer(infer_nothing);
  EXPECT_THAT(error_of(ErrorKind::Internal, [&] { r.op("probe"); }), HasSubstr("op probe is registered twice"));
  EXPECT_EQ(r.size(), 1u);
}

TEST(RegistryTest, BuilderFillsTheDefinition) {
  OpRegistry r;
  r.op("probe")
      .in("x", "w")
      .opt("b")
      .out("y", "mean")
      .infer(infer_nothing)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .traits(kCommutative)
      .version(3)
      .doc("text");
  const OpDef& op = r.get("probe");
  EXPECT_THAT(op.inputs, testing::ElementsAre("x", "w", "b"));
  EXPECT_EQ(op.required, 2);
  EXPECT_EQ(op.outputs.size(), 2u);
  EXPECT_EQ(op.version, 3);
  EXPECT_TRUE(op.is(kComputeBound) && op.is(kCommutative) && !op.is(kView));
  EXPECT_FALSE(op.has_attrs);
  r.grad("probe", [](VjpCtx&) {}, {.inputs = 2, .outputs = 1});
  EXPECT_NE(op.vjp, nullptr);
  EXPECT_EQ(op.saves.inputs, 2u);
}

TEST(InferOpTest, Arity) {
  OpRegistry r;
  r.op("two").in("x", "y").out("z").infer(infer_nothing);
  r.op("maybe").in("x").opt("b").out("z").infer(infer_nothing);
  r.op("many").variadic_in("xs").out("z").infer(infer_nothing);
  Meta m, out;
  const Meta* in[5] = {&m, &m, &m, &m, &m};
  auto run = [&](const char* op, size_t n) { infer_op(r.get(op), nullptr, {in, n}, {&out, 1}); };
  run("two", 2), run("maybe", 1), run("maybe", 2), run("many", 1), run("many", 5);
  EXPECT_EQ(error_of(ErrorKind::Type, [&] { run("two", 1); }), "two: takes 2 inputs; got 1.");
  EXPECT_EQ(error_of(ErrorKind::Type, [&] { run("two", 3); }), "two: takes 2 inputs; got 3.");
  EXPECT_EQ(error_of(ErrorKind::Type, [&] { run("maybe", 0); }), "maybe: takes 1..2 inputs; got 0.");
  EXPECT_EQ(error_of(ErrorKind::Type, [&] { run("maybe", 3); }), "maybe: takes 1..2 inputs; got 3.");
  EXPECT_EQ(error_of(ErrorKind::Type, [&] { run("many", 0); }), "many: takes 1 or more inputs; got 0.");
}

TEST(InferOpTest, DevicesMustAgree) {
  OpRegistry r;
  r.op("many").variadic_in("xs").out("z").infer(infer_nothing);
  Meta a, b, c, out;
  a.cn = CompNode::get("xpux"), b.cn = CompNode::get("cpu0"), c.cn = CompNode::get("cpu0:1");
  auto run = [&](std::initializer_list<const Meta*> in) {
    infer_op(r.get("many"), nullptr, {in.begin(), in.size()}, {&out, 1});
  };
  run({&a, &b});
  EXPECT_EQ(out.cn, a.cn);
  EXPECT_EQ(error_of(ErrorKind::Value,
                     [&] {
                       run({&a, &c});
                     }),
            "many: ambiguous device; inputs are on xpux:0 and cpu0:1. Move one with .to().");
  Meta nowhere;  // a meta without a device goes with any
  run({&nowhere, &c});
  EXPECT_EQ(out.cn, c.cn);
  EXPECT_EQ(error_of(ErrorKind::Value,
                     [&] {
                       run({&nowhere, &a, &c});
                     }),
            "many: ambiguous device; inputs are on xpux:0 and cpu0:1. Move one with .to().");
  run({&nowhere});
  EXPECT_EQ(out.cn, nullptr);
}

TEST(InferOpTest, ResultShapesAreChecked) {
  OpRegistry r;
  r.op("big").in("x").out("y").infer([](InferCtx& c) { c.out[0].shape = {int64_t{1} << 40, int64_t{1} << 40}; });
  Meta m, out;
  const Meta* in[] = {&m};
  EXPECT_EQ(error_of(ErrorKind::Value,
                     [&] {
                       infer_op(r.get("big"), nullptr, in, {&out, 1});
                     }),
            "big: the size of shape [1099511627776,1099511627776] overflows.");
}

// The table, written as the rules of the document rather than as our code has them.
std::string promoted(DType a, DType b) {
  auto name = [](DType t) { return std::string(dtype_name(t)); };
  if (a == b) return name(a);
  bool qa = is_quant(a), qb = is_quant(b);
  if (qa && qb) return "error";
  if (qa || qb) return name(qa ? a : b);
  auto kind = [](DType t) {
    switch (t) {
      case DType::F16:
      case DType::BF16:
      case DType::F32:
      case DType::F64:
        return 'f';
      case DType::I8:
      case DType::I16:
      case DType::I32:
      case DType::I64:
        return 'i';
      case DType::U8:
      case DType::U16:
        return 'u';
      case DType::Bool:
        return 'b';
      default:
        return '?';
    }
  };
  char ka = kind(a), kb = kind(b);
  if ((a == DType::C64 && kb != '?') || (b == DType::C64 && ka != '?')) return "complex64";
  if (ka == '?' || kb == '?') return "error";
  if (a == DType::F64 || b == DType::F64) return "float64";
  if (ka == 'f' || kb == 'f') return "float32";  // f2 counts as f4; other categories give f4; bf16 with f4 is f4
  if (ka == 'b' || kb == 'b') return "float32";  // bool with int: not NumPy's rule
  if (ka != kb) return "error";                  // signedness
  return name(dtype_info(a).bits > dtype_info(b).bits ? a : b);
}

TEST(PromoteTest, EveryPairFollowsTheTable) {
  for (int i = 0; i < kDTypeCount; ++i)
    for (int k = 0; k < kDTypeCount; ++k) {
      auto a = static_cast<DType>(i), b = static_cast<DType>(k);
      std::string got;
      try {
        got = dtype_name(promote_types("add", a, b));
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Type);
        got = "error";
      }
      EXPECT_EQ(got, promoted(a, b)) << dtype_name(a) << " with " << dtype_name(b);
    }
}

TEST(PromoteTest, ErrorTexts) {
  EXPECT_EQ(error_of(ErrorKind::Type, [] { promote_types("add", DType::U8, DType::I32); }),
            "add: dtype promotion rule between different signedness is undefined; got uint8 and int32. Cast one with "
            "astype.");
  EXPECT_EQ(error_of(ErrorKind::Type, [] { promote_types("add", DType::QI8, DType::QU8); }),
            "add: quantised dtypes qint8 and quint8 differ.");
  EXPECT_EQ(error_of(ErrorKind::Type, [] { promote_types("add", DType::C64, DType::IB1); }),
            "add: no common dtype for complex64 and intb1. Cast one with astype.");
}

struct Promoted {
  bool any;
  std::vector<DType> want;
};
Promoted promote(Promote rule, std::vector<DType> types) {
  OpDef op;
  op.name = "op";
  op.promote = rule;
  std::vector<Meta> metas(types.size());
  std::vector<const Meta*> in;
  for (size_t i = 0; i < types.size(); ++i) metas[i].dtype = types[i], in.push_back(&metas[i]);
  Promoted p{false, std::vector<DType>(types.size())};
  p.any = promote_op(op, in, p.want);
  return p;
}

TEST(PromoteTest, RulesOfOps) {
  using testing::Each;
  using testing::ElementsAre;
  auto none = promote(Promote::None, {DType::I8, DType::F32});
  EXPECT_FALSE(none.any);
  EXPECT_THAT(none.want, ElementsAre(DType::I8, DType::F32));
  auto arith = promote(Promote::Arith, {DType::I8, DType::I32, DType::I16});
  EXPECT_TRUE(arith.any);
  EXPECT_THAT(arith.want, Each(DType::I32));
  EXPECT_FALSE(promote(Promote::Arith, {DType::I8, DType::I8}).any);
  EXPECT_THAT(promote(Promote::Arith, {DType::I8, DType::I8}).want, Each(DType::I8));
  // int ** int and exp(int) are computed in float32.
  EXPECT_THAT(promote(Promote::Float, {DType::I32, DType::I8}).want, Each(DType::F32));
  EXPECT_THAT(promote(Promote::Float, {DType::I64}).want, Each(DType::F32));
  EXPECT_THAT(promote(Promote::Float, {DType::F16}).want, Each(DType::F16));
  EXPECT_THAT(promote(Promote::Float, {DType::F64, DType::I32}).want, Each(DType::F64));
  // Products of integers are summed in 32 bits at least.
  EXPECT_THAT(promote(Promote::Product, {DType::I8, DType::U8}).want, Each(DType::I32));
  EXPECT_THAT(promote(Promote::Product, {DType::Bool, DType::Bool}).want, Each(DType::I32));
  EXPECT_THAT(promote(Promote::Product, {DType::I64, DType::U8}).want, Each(DType::I64));
  EXPECT_THAT(promote(Promote::Product, {DType::I32, DType::F32}).want, Each(DType::F32));
  EXPECT_FALSE(promote(Promote::Product, {DType::I32, DType::I32}).any);
  EXPECT_FALSE(promote(Promote::Bool, {DType::Bool, DType::Bool}).any);
  EXPECT_FALSE(promote(Promote::Arith, {}).any);
  EXPECT_EQ(error_of(ErrorKind::Type,
                     [] {
                       promote(Promote::Bool, {DType::Bool, DType::F32});
                     }),
            "op: needs bool tensors; got float32. Compare first, for example x > 0.");
  EXPECT_EQ(error_of(ErrorKind::Type,
                     [] {
                       promote(Promote::Same, {DType::F32, DType::F16});
                     }),
            "op: inputs must share one dtype; got float32 and float16. Cast one with astype.");
}

TEST(PromoteTest, ConstantsFollowTensors) {
  EXPECT_EQ(number_beside(DType::F32, DType::I32), DType::F32);
  EXPECT_EQ(number_beside(DType::I32, DType::U8), DType::U8);
  EXPECT_EQ(number_beside(DType::I32, DType::F16), DType::F16);
  EXPECT_EQ(number_beside(DType::I32, DType::Bool), DType::I32);
  EXPECT_EQ(number_beside(DType::F32, DType::BF16), DType::BF16);
  EXPECT_EQ(number_beside(DType::I32, DType::I64), DType::I64);
  EXPECT_EQ(number_beside(DType::I32, DType::QI8), DType::F32);
  EXPECT_EQ(array_beside(DType::F64, DType::I32), DType::F32);
  EXPECT_EQ(array_beside(DType::I64, DType::F16), DType::F16);
  EXPECT_EQ(array_beside(DType::F64, DType::F16), DType::F32);
  EXPECT_EQ(array_beside(DType::F16, DType::BF16), DType::F32);
  EXPECT_EQ(array_beside(DType::F32, DType::BF16), DType::F32);
  EXPECT_EQ(array_beside(DType::U8, DType::I8), DType::I16);
  EXPECT_EQ(array_beside(DType::I8, DType::U16), DType::I32);
  EXPECT_EQ(array_beside(DType::I64, DType::I64), DType::I64);
  auto all = [](std::vector<DType> strong, std::vector<DType> weak) { return constant_dtype(strong, weak); };
  EXPECT_EQ(all({DType::U8, DType::I8}, {DType::I32}), DType::I16);
  EXPECT_EQ(all({DType::I32}, {DType::F32}), DType::F32);
  EXPECT_EQ(all({DType::F16, DType::I32}, {}), DType::F16);
  EXPECT_EQ(all({DType::F64}, {}), DType::F64) << "of a tensor; arrays come in 32 bits";
  EXPECT_EQ(all({DType::BF16}, {}), DType::BF16);
  EXPECT_EQ(all({DType::BF16}, {DType::I32}), DType::BF16);
  EXPECT_THAT(error_of(ErrorKind::Value, [&] { all({}, {}); }), HasSubstr("needs at least one"));
}

#ifndef MGE_LITE_ONLY  // the tape's
TEST(RegistryTest, WhatCanBePutBackGoesWhereItWasTaken) {
  OpRegistry& r = OpRegistry::global();
  EXPECT_EQ(r.get("slice").put_back, &r.get("set_slice"));
  for (size_t i = 0; i < r.size(); ++i) {
    const OpDef& op = r.at(static_cast<OpId>(i));
    if (!op.put_back) continue;
    EXPECT_EQ(op.inputs.size(), 1u) << op.name;  // the tape adds into the gradient of input 0
    EXPECT_EQ(op.put_back->inputs.size(), 2u) << op.name;
    EXPECT_EQ(op.schema.defaults.size(), op.put_back->schema.defaults.size()) << op.name;
  }
}
#endif

}  // namespace
}  // namespace mge
