#include "pass/move_casts.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

TEST(MoveCasts, WideningCastsComeLast) {
  expect_rewrite(move_casts, R"(graph g(%x: u8[1,4,4,3]) {
  %0 = typecvt %x                                   loc net.py:1
  %1 = transpose %0 {perm=[0,3,1,2]}                loc net.py:2
  %2 = slice %1 {axes=[2], starts=[0], stops=[2], steps=[1]} loc net.py:3
  %3 = relu %2                                      loc net.py:4
} returns(%3)
)",
                 R"(graph g(%x: u8[1,4,4,3]) {
  %0 = transpose %x {perm=[0,3,1,2]}                loc net.py:2
  %1 = slice %0 {axes=[2], starts=[0], stops=[2], steps=[1]}  loc net.py:3
  %2 = typecvt %1                                   loc net.py:1
  %3 = relu %2                                      loc net.py:4
} returns(%3)
)");
}

TEST(MoveCasts, NarrowingCastsComeFirst) {
  expect_rewrite(move_casts, R"(graph g(%x: f32[2,3]) {
  %0 = transpose %x {perm=[1,0]}
  %1 = reshape %0 {shape=[6]}
  %2 = typecvt %1 {dtype=float16}
} returns(%2)
)",
                 R"(graph g(%x: f32[2,3]) {
  %0 = typecvt %x {dtype=float16}
  %1 = transpose %0 {perm=[1,0]}
  %2 = reshape %1 {shape=[6]}
} returns(%2)
)");
}

TEST(MoveCasts, StaysWhereNothingIsGained) {
  for (const char* body : {
           "  %0 = typecvt %x\n  %1 = broadcast_to %0 {shape=[5,2,3]}\n",                  // a cast for each copy
           "  %0 = typecvt %x\n  %1 = relu %0\n",                                          // fused anyhow
           "  %0 = typecvt %x\n  %2 = neg %0\n  %1 = transpose %0 {perm=[1,0]}\n",         // the wide one is needed
           "  %0 = typecvt %x\n  %2 = transpose %0 {perm=[1,0]}\n  %1 = matmul %0, %2\n",  // a product reads it
       })
    expect_unchanged(move_casts, "graph g(%x: u8[2,3]) {\n" + std::string(body) + "} returns(%1)\n");
  expect_unchanged(move_casts, R"(graph g(%x: f32[4]) {
  %0 = slice %x {axes=[0], starts=[0], stops=[2], steps=[1]}
  %1 = typecvt %0 {dtype=float16}
} returns(%1)
)");
}

}  // namespace
}  // namespace mge::pass
