// Programs that go band by band give the bits of those that do not: for random chains of convolutions and poolings, on
// every instruction set, with one thread and several, weights in order or not.
#include "plan/bands.h"

#include <random>

#include "base/parallel.h"
#include "ir/builder.h"
#include "kernel/each_target.h"
#include "kernel/on_machine.h"
#include "op/conv/conv2d.h"
#include "op/pool/pool.h"
#include "plan/plan_test_util.h"
#include "plan/program_impl.h"

namespace mge {
namespace {

using ir::Graph;
using ir::ValueId;

struct Threads {
  int before = num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

// A chain of ops over one image, and how its operands are filled.
struct Net {
  Graph g{"net"};
  std::mt19937 rng;
  bool constants;  // weights are constants of the graph, else inputs
  ValueId at = ir::kNone;
  std::vector<Meta> inputs;
  explicit Net(uint32_t seed, bool constant) : rng(seed), constants(constant) {}

  int64_t draw(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(rng); }
  static Meta floats_of(const Shape& s) {
    Meta m;
    m.shape = s;
    return m;
  }
  ValueId input(const Shape& s) {
    inputs.push_back(floats_of(s));
    return g.add_input("x" + std::to_string(inputs.size()), inputs.back());
  }
  ValueId weight(const Shape& s) {
    if (!constants) return input(s);
    const Meta m = floats_of(s);
    return g.add_constant(m, random_buffer(m, static_cast<uint32_t>(rng())).storage);
  }
  void add(const char* op, Attrs attrs, std::vector<ValueId> in) {
    at = g.node(g.add_node(OpRegistry::global().get(op), std::move(attrs), in)).outputs[0];
  }
  const Shape& shape() { return g.meta(at).shape; }

  void conv(int64_t o, int64_t k, int64_t stride, bool depthwise) {
    const int64_t c = shape()[1];
    Conv2dFusedAttrs a;
    a.stride = {stride, stride};
    a.pad = {k / 2, k / 2};
    a.groups = depthwise ? c : 1;
    a.has_bias = draw(0, 1);
    a.has_scale = draw(0, 1);
    a.act = std::array{"none", "relu", "relu6", "sigmoid"}[static_cast<size_t>(draw(0, 3))];
    std::vector<ValueId> in{at, weight(depthwise ? Shape{c, 1, 1, k, k} : Shape{o, c, k, k})};
    for (int i = 0; i < a.has_bias + 2 * a.has_scale; ++i) in.push_back(weight({1, o, 1, 1}));
    if (k == 1 && stride == 1 && draw(0, 2) == 0) {  // a summand from outside
      a.has_add = true;
      in.push_back(input({shape()[0], o, shape()[2], shape()[3]}));
    }
    add("conv2d_fused", make_attrs(a), in);
  }
  void grow() {
    const int64_t kind = draw(0, 4), c = shape()[1];
    if (kind <= 1) return conv(draw(16, 50), 1, draw(1, 3) == 3 ? 2 : 1, false);
    if (kind <= 3) return conv(c, 3, draw(1, 2), true);
    PoolAttrs a;
    a.kernel = {3, 3};
    a.stride = {2, 2};
    a.pad = {1, 1};
    add("max_pool2d", make_attrs(a), {at});
  }
};

std::vector<float> run(Net& n, bool bands, int* chains = nullptr) {
  CompileOptions o;
  o.poison = !bands;  // the checked executor runs op by op
  o.weight_preprocess = n.constants;
  const RefPtr<Program> p = Program::compile(n.g, o);
  for (size_t i = 0; i < n.inputs.size(); ++i)
    p->bind_input(i, random_buffer(n.inputs[i], static_cast<uint32_t>(i + 7)));
  p->run();
  if (chains) *chains += static_cast<int>(p->impl()->chains.size());
  return out(*p, 0);
}

TEST(Bands, RandomChainsKeepTheirBits) {
  // A second cache so small that every image is worth it.
  const testing_kernels::OnMachine small({.l1 = 2 << 10, .l2 = 4 << 10});
  simd::each_target([&] {
    int chains = 0;
    for (uint32_t seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      Net n(seed, seed % 2);
      const int64_t images = n.draw(1, 3), side = n.draw(17, 40);
      n.at = n.input({images, seed % 3 ? n.draw(16, 40) : 3, side, n.draw(17, 40)});
      if (seed % 3 == 0)
        n.conv(n.draw(16, 40), 3, n.draw(1, 2), false);
      else
        n.conv(n.draw(16, 50), 1, 1, false);
      for (int64_t ops = n.draw(1, 5); ops > 0 && n.shape()[2] > 3; --ops) n.grow();
      n.g.add_output("y", n.at);
      const std::vector<float> want = run(n, false);
      for (int threads : {1, 2, 5}) {
        const Threads t(threads);
        ASSERT_EQ(run(n, true, &chains), want) << threads << " threads";
      }
    }
    EXPECT_GT(chains, 20);
  });
}

}  // namespace
}  // namespace mge
