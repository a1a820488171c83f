#include "plan/memory.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace mge {
namespace {

using testing::HasSubstr;

std::string error_of(std::span<const MemInterval> v, const MemPlan& p) {
  try {
    verify_mem_plan(v, p);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Internal);
    return e.text();
  }
  return "no error";
}

TEST(MemPlan, AChainNeedsTwoBuffers) {
  std::vector<MemInterval> v;
  for (int i = 0; i < 10; ++i) v.push_back({i, i + 1, 1000});
  MemPlan p = plan_memory(v);
  verify_mem_plan(v, p);
  EXPECT_EQ(p.lower_bound, 2u * 1024);
  EXPECT_EQ(p.bytes, p.lower_bound);
}

TEST(MemPlan, EmptyAndZeroBytes) {
  EXPECT_EQ(plan_memory({}).bytes, 0u);
  std::vector<MemInterval> v{{0, 5, 0}, {0, 5, 0}, {2, 3, 1}};
  MemPlan p = plan_memory(v);
  verify_mem_plan(v, p);
  EXPECT_EQ(p.bytes, 64u);
}

TEST(MemPlan, MoreThanAnyMachineHas) {
  const size_t large = size_t{1} << 62;
  EXPECT_EQ(plan_memory(std::vector<MemInterval>{{0, 1, large}}).bytes, large);
  for (size_t n : {2, 4}) {  // 2^63 and 2^64
    try {
      plan_memory(std::vector<MemInterval>(n, {0, 1, large}));
      ADD_FAILURE() << n;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Memory);
      EXPECT_THAT(e.text(), HasSubstr("the values of this program have more bytes than any machine"));
    }
  }
}

TEST(MemPlan, BeatsBestFitWhereOrderMisleadsIt) {
  // Time order leaves a hole between two survivors that the large buffer cannot use.
  std::vector<MemInterval> v{{0, 2, 64}, {0, 1, 64}, {0, 9, 64}, {2, 9, 128}, {3, 9, 128}};
  MemPlan best = plan_memory(v);
  verify_mem_plan(v, best);
  EXPECT_LE(best.bytes, plan_best_fit(v).bytes);
}

TEST(MemPlan, RandomIntervalsAreProvedDisjoint) {
  uint32_t seed = 7;
  auto next = [&](uint32_t n) { return seed = seed * 1664525u + 1013904223u, (seed >> 8) % n; };
  size_t sum_bytes = 0, sum_bound = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<MemInterval> v(1 + next(60));
    for (auto& i : v) {
      i.begin = static_cast<int>(next(50));
      i.end = i.begin + static_cast<int>(next(12));
      i.bytes = next(4) ? next(5000) : next(200000);
    }
    MemPlan a = plan_best_fit(v), b = plan_greedy_by_size(v), c = plan_pushdown(v, a), best = plan_memory(v);
    for (auto* p : {&a, &b, &c, &best}) {
      verify_mem_plan(v, *p);
      EXPECT_GE(p->bytes, p->lower_bound);
      EXPECT_GE(p->bytes, best.bytes);
    }
    EXPECT_LE(c.bytes, a.bytes);
    sum_bytes += best.bytes;
    sum_bound += best.lower_bound;
  }
  EXPECT_LT(static_cast<double>(sum_bytes), 1.02 * static_cast<double>(sum_bound));  // 1.006 measured
}

TEST(MemPlanVerifier, SeesOverlap) {
  std::vector<MemInterval> v{{0, 4, 128}, {2, 6, 128}, {5, 6, 64}};
  MemPlan p;
  p.bytes = 512;
  p.offset = {0, 64, 256};
  EXPECT_THAT(error_of(v, p), HasSubstr("buffers 0 [0,4] at 0+128 and 1 [2,6] at 64+128 overlap"));
  p.offset = {0, 128, 192};
  EXPECT_THAT(error_of(v, p), HasSubstr("buffers 1 [2,6] at 128+128 and 2 [5,6] at 192+64 overlap"));
  p.offset = {0, 128, 64};
  EXPECT_EQ(error_of(v, p), "no error");  // 0 and 2 are never alive together
}
TEST(MemPlanVerifier, SeesIdenticalOffsets) {
  std::vector<MemInterval> v{{3, 3, 64}, {3, 3, 64}};
  MemPlan p;
  p.bytes = 128;
  p.offset = {0, 0};
  EXPECT_THAT(error_of(v, p), HasSubstr("overlap"));
}
TEST(MemPlanVerifier, SeesArenaAndAlignment) {
  std::vector<MemInterval> v{{0, 1, 100}};
  MemPlan p;
  p.bytes = 99;
  p.offset = {0};
  EXPECT_THAT(error_of(v, p), HasSubstr("leaves the arena"));
  p.bytes = 999;
  p.offset = {32};
  EXPECT_THAT(error_of(v, p), HasSubstr("not aligned"));
  p.offset = {};
  EXPECT_THAT(error_of(v, p), HasSubstr("0 offsets for 1"));
}

}  // namespace
}  // namespace mge
