// Random graphs of images, with inputs in either order: whatever orders are assigned, the bits are those that every
// kernel deciding for itself gives, and the program agrees with the oracle.
//   MGE_FUZZ_CASES=100000 MGE_FUZZ_SEED=7 mge_test_plan --gtest_filter='*LayoutFuzz*'
#include <cmath>
#include <cstdlib>

#include "plan/plan_test_util.h"

namespace mge {
namespace {

struct Images {
  uint32_t seed;
  ir::Graph g{"images"};
  std::vector<ir::ValueId> values = {};

  uint32_t next(uint32_t n) { return seed = seed * 1664525u + 1013904223u, (seed >> 8) % n; }
  const Shape& shape(ir::ValueId v) { return g.meta(v).shape; }
  ir::ValueId pick() { return values[next(static_cast<uint32_t>(values.size()))]; }
  ir::ValueId add(const char* op, std::vector<ir::ValueId> in, std::vector<NamedAttr> attrs = {}) {
    const OpDef& d = OpRegistry::global().get(op);
    const Attrs a = d.has_attrs ? d.schema.build(op, attrs) : nullptr;
    return g.node(g.add_node(d, a, in, g.loc("images.py", 1))).outputs[0];
  }
  ir::ValueId image(const Shape& s) {
    Meta m;
    m.shape = s;
    if (next(3)) return g.add_input(format("x{}", g.inputs().size()), m);
    return g.add_constant_copy(m, random_buffer(m, next(1000)).storage->ptr);
  }
  ir::ValueId like(ir::ValueId v) {
    for (int tries = 0; tries < 4; ++tries)
      if (ir::ValueId w = pick(); shape(w) == shape(v)) return w;
    return image(shape(v));
  }

  ir::ValueId step() {
    const ir::ValueId v = pick();
    const Shape s = shape(v);
    const int64_t n = s[0], c = s[1], h = s[2], w = s[3];
    switch (next(13)) {
      case 0:
        return add("relu", {v});
      case 1:
        return add("add", {v, like(v)});
      case 2:
        return add("mul", {like(v), v});
      case 3:
        return add("sub", {v, image(Shape{1, c, 1, 1})});
      case 4:
        if (h < 3 || w < 3) return v;
        return add(next(2) ? "max_pool2d" : "avg_pool2d", {v},
                   {{"kernel", Ints{3, 3}}, {"stride", Ints{2, 2}}, {"pad", Ints{1, 1}}});
      case 5: {
        const ir::ValueId k = image(Shape{c});
        return add("batch_norm_infer", {v, k, k, k, add("square", {k})}, {{"eps", 1.0}});
      }
      case 6:
        return n * c * h * w > 4000 ? v : add("concat", {v, like(v), v}, {{"axis", static_cast<int64_t>(next(4))}});
      case 7: {  // halves, as slices
        if (c < 2) return v;
        const int64_t start = next(2), by = 1 + next(2);
        return add("slice", {v}, {{"axes", Ints{1}}, {"starts", Ints{start}}, {"stops", Ints{c}}, {"steps", Ints{by}}});
      }
      case 8: {  // a shuffle of channels
        if (c % 2) return v;
        const ir::ValueId a = add("reshape", {v}, {{"shape", Ints{n, 2, c / 2, h, w}}});
        const ir::ValueId b = add("transpose", {a}, {{"perm", Ints{0, 2, 1, 3, 4}}});
        return add("reshape", {b}, {{"shape", Ints{n, c, h, w}}});
      }
      case 9:
        return add("transpose", {v}, {{"perm", next(2) ? Ints{0, 2, 3, 1} : Ints{0, 3, 1, 2}}});
      case 10:
        return add("softmax", {v}, {{"axis", int64_t{1}}});
      case 11:
        return add("mul",
                   {v, add("reduce", {v}, {{"mode", std::string("mean")}, {"axes", Ints{2, 3}}, {"keepdims", true}})});
      default: {
        const ir::ValueId k = image(Shape{16, c, 1, 1});
        return add("tanh", {add("conv2d", {v, k})});
      }
    }
  }
  void build(int nodes) {
    values.push_back(image(Shape{static_cast<int64_t>(1 + next(2)), static_cast<int64_t>(4 + 4 * next(5)), 7, 6}));
    for (int i = 0; i < nodes; ++i) values.push_back(step());
    for (int i = 0; i < 3; ++i) g.add_output(format("o{}", i), values[values.size() - 1 - next(4)]);
  }
};

uint32_t setting(const char* name, uint32_t otherwise) {
  const char* s = std::getenv(name);
  return s ? static_cast<uint32_t>(std::atol(s)) : otherwise;
}

class LayoutFuzz : public testing::TestWithParam<int> {};

TEST_P(LayoutFuzz, NoBitDependsOnTheOrders) {
  const uint32_t cases = setting("MGE_FUZZ_CASES", 400) / 10, seed = setting("MGE_FUZZ_SEED", 0);
  for (uint32_t round = 0; round < cases; ++round) {
    Images f{(seed * 10 + static_cast<uint32_t>(GetParam())) * 1000003 + round};
    f.build(4 + static_cast<int>(f.next(16)));
    SCOPED_TRACE(format("case {} of seed {}", round, seed * 10 + static_cast<uint32_t>(GetParam())));
    CompileOptions opt;
    for (ir::ValueId v : f.g.inputs())
      opt.input_layouts.push_back(f.shape(v).rank == 4 && f.next(2) ? Layout::channels_last(f.shape(v))
                                                                    : Layout::contiguous(f.shape(v)));
    opt.poison = f.next(2);
    std::vector<std::vector<float>> want;
    for (OrderTarget t : {OrderTarget::Local, OrderTarget::Cost, OrderTarget::ChannelsLast}) {
      opt.orders = t;
      opt.compare_oracle = t == OrderTarget::Local;
      auto p = Program::compile(f.g, opt);
      verify_program(*p);
      for (size_t i = 0; i < p->n_inputs(); ++i)
        p->bind_input(i, random_buffer(p->input_meta(i), static_cast<uint32_t>(i)));
      p->run();
      std::vector<std::vector<float>> got;
      for (size_t i = 0; i < p->n_outputs(); ++i) got.push_back(out(*p, i));
      if (want.empty()) want = got;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(0, std::memcmp(got[i].data(), want[i].data(), got[i].size() * sizeof(float)))
            << "output " << i << " for target " << static_cast<int>(t) << "\n"
            << p->dump();
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, LayoutFuzz, testing::Range(0, 10));

}  // namespace
}  // namespace mge
