// Simulated quantisation.
#include "compat/emit.h"
#include "op/elementwise/fake_quant.h"

namespace mge::compat {
namespace {

/// The original has these for float32 alone.
template <const auto& kOp>
void emit_fake_quant(Emitter& em, const FakeQuantAttrs& p, In in, Out& out) {
  MGE_CHECK(in[0].dtype() == DType::F32, Type, "{}: takes float32; got {}.", kOp.cls, dtype_name(in[0].dtype()));
  out = emit_all(em, kOp.op, in, make_attrs(FakeQuantAttrs(p)));
}
struct Names {
  const char *cls, *op;
};
constexpr Names kFakeQuant{"FakeQuant", "fake_quant"}, kTqt{"TQT", "tqt"}, kLsq{"LSQ", "lsq"};

}  // namespace

void add_quantisation(Table& t) {
  t.add<FakeQuantAttrs, emit_fake_quant<kFakeQuant>>("FakeQuant", {3, 3}, "FakeQuant@1");
  t.add<FakeQuantAttrs, emit_fake_quant<kTqt>>("TQT", {2, 2}, "TQT@1");
  t.add<FakeQuantAttrs, emit_fake_quant<kLsq>>("LSQ", {4, 4}, "LSQ@1");
}

}  // namespace mge::compat
