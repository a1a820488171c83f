// The vector kernels of conv3d and its adjoints against the reference: chunks that do not divide the output, every
// padding and stride a tap can meet, groups, and the same bits for 1, 2 and 3 threads.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernel/each_target.h"
#include "kernel/nn_arrays.h"
#include "op/conv/conv3d.h"

namespace mge::testing_nn {
namespace {

struct Geometry {
  Shape x, w;
  Conv3dAttrs at;
};
const Geometry kGeometries[] = {
    {{2, 3, 4, 5, 6}, {4, 3, 3, 3, 3}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1}},
    {{1, 2, 5, 7, 9}, {3, 2, 2, 3, 5}, {{2, 1, 3}, {0, 2, 4}, {1, 1, 1}, 1}},
    {{1, 4, 6, 6, 8}, {2, 3, 2, 2, 2, 3}, {{1, 2, 1}, {1, 0, 3}, {2, 1, 2}, 2}},
    {{1, 1, 1, 1, 1}, {2, 1, 1, 1, 1}, {{1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1}},
    {{1, 1, 2, 2, 2}, {1, 1, 3, 3, 3}, {{1, 1, 1}, {3, 3, 3}, {1, 1, 1}, 1}},      // rows that see padding alone
    {{2, 24, 6, 20, 20}, {8, 24, 3, 3, 3}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1}},  // several chunks
    {{0, 3, 4, 4, 4}, {2, 3, 1, 1, 1}, {{1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1}},
};

Array uniform(const Shape& s) {
  static std::mt19937 gen(3);
  std::uniform_real_distribution<double> d(-1, 1);
  Array a{s, {}, true};
  for (int64_t i = 0; i < s.numel(); ++i) a.v.push_back(static_cast<double>(static_cast<float>(d(gen))));
  return a;
}

void expect_close(const char* op, const Attrs& attrs, const std::vector<Array>& in) {
  Array want = run_one(op, attrs, in, DType::F64, KernelTier::Ref)[0];
  simd::each_target([&] {
    std::vector<double> first;
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      Array got = run_one(op, attrs, in, DType::F32, KernelTier::Simd)[0];
      ASSERT_EQ(got.shape, want.shape);
      for (size_t i = 0; i < want.v.size(); ++i)
        ASSERT_NEAR(got.v[i], want.v[i], 3e-5 * (1 + std::abs(want.v[i]))) << op << attrs->print() << " at " << i;
      if (threads == 1) first = got.v;
      ASSERT_EQ(got.v, first) << op << " depends on threads";
    }
    set_num_threads(1);
  });
}

TEST(Conv3d, VectorKernelsAgreeWithTheReference) {
  for (auto& g : kGeometries) {
    Array x = uniform(g.x), w = uniform(g.w);
    Array y = run_one("conv3d", make_attrs(g.at), {x, w}, DType::F64, KernelTier::Ref)[0];
    Array gy = uniform(y.shape);
    expect_close("conv3d", make_attrs(g.at), {x, w});
    expect_close("conv3d_dx", make_attrs(Conv3dDxAttrs{g.at, to_ints(g.x)}), {gy, w});
    expect_close("conv3d_dw", make_attrs(Conv3dDwAttrs{g.at, to_ints(g.w)}), {x, gy});
  }
}

}  // namespace
}  // namespace mge::testing_nn
