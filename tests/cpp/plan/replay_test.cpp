#include "plan/replay.h"

#include <gtest/gtest.h>

namespace mge {
namespace {

using Plan = Replays::Plan;

const std::vector<const void*> kA{&kA, nullptr}, kB{&kB, nullptr};

TEST(Replays, ARunIsRecordedAtItsSecondTime) {
  Replays r;
  EXPECT_EQ(r.plan(kA), Plan::Plain);
  EXPECT_EQ(r.plan(kB), Plan::Plain);  // results that change places: both are kept
  EXPECT_EQ(r.plan(kA), Plan::Record);
  auto a = std::make_shared<int>(1), b = std::make_shared<int>(2);
  r.keep(a);
  EXPECT_EQ(r.plan(kB), Plan::Record);
  r.keep(b);
  EXPECT_EQ(r.plan(kA), Plan::Replay);
  EXPECT_EQ(r.recording(), a);
  EXPECT_EQ(r.plan(kB), Plan::Replay);
  EXPECT_EQ(r.recording(), b);
}

TEST(Replays, WhatCannotBeRecordedIsNotTriedAgain) {
  Replays r;
  r.plan(kA);
  EXPECT_EQ(r.plan(kA), Plan::Record);
  r.keep(nullptr);
  EXPECT_FALSE(r.recording());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(r.plan(kA), Plan::Plain);
}

TEST(Replays, AddressesThatNeverSettleAreLeftAlone) {
  Replays r;
  std::vector<char> memory(1000);
  for (char& at : memory) {
    const std::vector<const void*> once{&at};
    EXPECT_EQ(r.plan(once), Plan::Plain);
  }
  int recorded = 0;
  for (char& at : memory) {
    const std::vector<const void*> twice{&at};
    r.plan(twice);
    if (r.plan(twice) != Plan::Record) continue;
    ++recorded;
    r.keep(std::make_shared<int>(0));
  }
  EXPECT_LE(recorded, 16);
}

}  // namespace
}  // namespace mge
