#include "core/profile.h"

#include <gtest/gtest.h>
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <thread>

#include "base/error.h"

namespace mge::profile {
namespace {

Meta meta(std::initializer_list<int64_t> shape, DType t = DType::F32) {
  Meta m;
  m.shape = Shape(shape);
  m.dtype = t;
  return m;
}

const Lane* lane_with(const std::vector<Lane>& lanes, const std::string& name) {
  for (auto& l : lanes)
    for (auto& e : l.events)
      if (*e.name == name) return &l;
  return nullptr;
}

TEST(Profile, AnEventTellsItsTensors) {
  Event e(intern("matmul"));
  e.add(meta({2, 3}));
  e.add(meta({}, DType::I32));
  e.add(meta({2, 0, 4}, DType::U8), true);
  EXPECT_EQ(e.tensors(), "float32[2,3] int32[] -> uint8[2,0,4]");
  EXPECT_EQ(Event(intern("none")).tensors(), "");
}

TEST(Profile, EventsAreKeptByThreadUntilTheNextStart) {
  start();
  finish(Event(intern("here")), Device{});
  std::thread([] {
    name_thread("helper");
    finish(Event(intern("there")));
  }).join();
  stop();
  const auto lanes = take();
  const Lane *here = lane_with(lanes, "here"), *there = lane_with(lanes, "there");
  ASSERT_TRUE(here && there && here != there);
  EXPECT_EQ(there->name, "helper");
  EXPECT_NE(here->thread, there->thread);
  EXPECT_LE(here->events[0].begin, here->events[0].end);
  EXPECT_GE(here->events[0].device, 0);
  EXPECT_EQ(there->events[0].device, -1);
  start();
  stop();
  EXPECT_EQ(lane_with(take(), "here"), nullptr);
}

TEST(Profile, ScopesNestAndAreEventsOnlyWhenOn) {
  EXPECT_EQ(scope(), nullptr);
  push_scope("net");
  push_scope("conv");
  EXPECT_EQ(*scope(), "net.conv");
  EXPECT_THROW(pop_scope("net"), Error);
  pop_scope("conv");
  start();
  pop_scope("net");
  stop();
  EXPECT_EQ(scope(), nullptr);
  const auto lanes = take();
  EXPECT_TRUE(lane_with(lanes, "net"));
  EXPECT_FALSE(lane_with(lanes, "conv"));
  EXPECT_THROW(pop_scope("net"), Error);
}

#ifndef _WIN32
TEST(Profile, AForkedChildRecordsAnew) {
  start();
  finish(Event(intern("parent's")));
  const pid_t pid = fork();
  if (pid == 0) {
    start();
    finish(Event(intern("child's")));
    const auto lanes = take();
    _exit(lane_with(lanes, "child's") && !lane_with(lanes, "parent's") ? 0 : 1);
  }
  stop();
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}
#endif

TEST(Profile, OneStringForOneText) {
  EXPECT_EQ(intern("a"), intern(std::string("a")));
  EXPECT_NE(intern("a"), intern("b"));
}

}  // namespace
}  // namespace mge::profile
