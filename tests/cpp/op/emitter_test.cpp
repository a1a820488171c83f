// The vocabulary of vjp rules on an emitter that writes down what is emitted.
#include "op/emitter.h"
#include "op/in_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mge {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Noted : ValImpl {
  Meta meta;
};
class Notebook final : public Emitter {
 public:
  std::vector<std::string> lines;
  void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) override {
    std::vector<const Meta*> metas;
    for (auto& v : in) metas.push_back(&meta(v));
    std::vector<Meta> results(out.size());
    infer_op(op, attrs.get(), metas, results);
    for (size_t i = 0; i < out.size(); ++i) out[i] = value(results[i]);
    lines.push_back(op.name + (attrs ? attrs->print() : "") + " -> " + results[0].str());
  }
  const Meta& meta(const Val& v) override { return static_cast<Noted*>(v.p.get())->meta; }
  Val constant(double value, DType dtype, const Val&) override {
    lines.push_back("constant " + print_attr(AttrValue(value)));
    Meta m;
    m.dtype = dtype;
    return this->value(m);
  }
  Val value(const Meta& m) {
    auto n = make_ref<Noted>();
    n->meta = m;
    return {this, n};
  }
  Val value(Shape s, DType t = DType::F32) {
    Meta m;
    m.shape = s;
    m.dtype = t;
    return value(m);
  }
};

TEST(EmitterTest, NoOpsEmitNothing) {
  Notebook n;
  Val x = n.value({2, 3});
  EXPECT_EQ(reshape(x, Shape{2, 3}).p, x.p);
  EXPECT_EQ(broadcast_to(x, Shape{2, 3}).p, x.p);
  EXPECT_EQ(cast(x, DType::F32).p, x.p);
  EXPECT_EQ(unbroadcast(x, Shape{2, 3}).p, x.p);
  EXPECT_THAT(n.lines, IsEmpty());
}

TEST(EmitterTest, OperatorsAreOneOpEach) {
  Notebook n;
  Val x = n.value({2, 3}), b = n.value({3});
  EXPECT_EQ((x * b).shape().str(), "[2,3]");
  EXPECT_EQ((-x).shape().str(), "[2,3]");
  (void)(1 - x);
  (void)cast(x, DType::F64);
  (void)reduce(x, "max", {1}, true);
  (void)matmul(x, x, false, true);
  EXPECT_THAT(n.lines, ElementsAre("mul -> float32[2,3]", "neg -> float32[2,3]", "constant 1.0", "sub -> float32[2,3]",
                                   "typecvt{dtype=float64} -> float64[2,3]",
                                   "reduce{mode=\"max\", axes=[1], keepdims=true} -> float32[2,1]",
                                   "matmul{ta=false, tb=true} -> float32[2,2]"));
}

TEST(EmitterTest, ScalarsTakeTheDtypeOfTheirPartner) {
  Notebook n;
  Val h = n.value({2}, DType::F16);
  EXPECT_EQ((h * 2.0).dtype(), DType::F16);
  EXPECT_EQ(zeros_like(h).shape().str(), "[2]");
  EXPECT_EQ(zeros_like(h).dtype(), DType::F16);
}

TEST(EmitterTest, UnbroadcastSumsWhatWasRepeated) {
  auto lines = [](Shape from, Shape to) {
    Notebook n;
    Val r = unbroadcast(n.value(from), to);
    EXPECT_EQ(r.shape().str(), to.str());
    return n.lines;
  };
  EXPECT_THAT(lines({4, 2, 3}, {2, 3}), ElementsAre("reduce{mode=\"sum\", axes=[0], keepdims=false} -> float32[2,3]"));
  EXPECT_THAT(lines({4, 2, 3}, {1, 3}), ElementsAre("reduce{mode=\"sum\", axes=[0,1], keepdims=false} -> float32[3]",
                                                    "reshape{shape=[1,3]} -> float32[1,3]"));
  EXPECT_THAT(lines({4, 3}, {}), ElementsAre("reduce{mode=\"sum\", axes=[0,1], keepdims=false} -> float32[]"));
  EXPECT_THAT(lines({1, 3}, {3}), ElementsAre("reduce{mode=\"sum\", axes=[0], keepdims=false} -> float32[3]"));
  EXPECT_THAT(lines({2, 0}, {2, 1}), ElementsAre("reduce{mode=\"sum\", axes=[1], keepdims=false} -> float32[2]",
                                                 "reshape{shape=[2,1]} -> float32[2,1]"));
}

TEST(EmitterTest, WantsHandlesMoreInputsThanTheMaskHasBits) {
  VjpCtx c;
  std::vector<Meta> metas(100);
  c.in_metas = metas;
  c.wanted = 0b101;
  EXPECT_TRUE(c.wants(0) && !c.wants(1) && c.wants(2) && !c.wants(63));
  EXPECT_TRUE(c.wants(64) && c.wants(99)) << "beyond the mask a gradient is always computed";
  EXPECT_FALSE(c.wants(100));
}

TEST(EmitterTest, UnknownOpNamesAreErrors) {
  Notebook n;
  Val x = n.value({2});
  EXPECT_THROW(unary("no_such_op", x), Error);
  std::string reused = "exp";  // the lookup cache is keyed by address: other text at the same address must not hit
  EXPECT_EQ(unary(reused.c_str(), x).shape().str(), "[2]");
  reused = "neg";
  (void)unary(reused.c_str(), x);
  EXPECT_EQ(n.lines.back(), "neg -> float32[2]");
}

}  // namespace
}  // namespace mge
