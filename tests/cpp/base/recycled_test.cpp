#include "base/recycled.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace mge {
namespace {

int g_alive = 0;

struct Small : Recycled<Small> {
  explicit Small(int x) : value(x) { ++g_alive; }
  virtual ~Small() { --g_alive; }
  int value;
};
struct Large : Small {
  explicit Large(int x) : Small(x) {}
  char more[100] = {};
};

TEST(Recycled, ObjectsAreWhatTheyWereMade) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Small>> all;
    for (int i = 0; i < 100; ++i)  // more than a thread keeps, of two sizes
      all.push_back(i % 3 ? std::make_unique<Small>(i) : std::make_unique<Large>(i));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<size_t>(i)]->value, i);
    EXPECT_EQ(g_alive, 100);
    all.clear();
    EXPECT_EQ(g_alive, 0);
  }
}

TEST(Recycled, NoMemoryIsGivenTwice) {
  auto a = std::make_unique<Small>(1);
  a.reset();
  a = std::make_unique<Small>(2);
  a.reset();
  auto x = std::make_unique<Small>(3), y = std::make_unique<Small>(4);
  EXPECT_NE(x.get(), y.get());
  EXPECT_EQ(x->value + y->value, 7);
}

// What one thread makes may die on another, which ends later or sooner. Leaks and uses after the end are for the
// sanitizers to find.
TEST(Recycled, ThreadsTakeAndGiveEachOthers) {
  std::vector<std::unique_ptr<Small>> made;
  std::thread([&] {
    for (int i = 0; i < 50; ++i) made.push_back(std::make_unique<Small>(i));
    made.resize(40);
  }).join();
  std::thread([&] { made.resize(20); }).join();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(made[static_cast<size_t>(i)]->value, i);
  made.clear();
  EXPECT_EQ(g_alive, 0);
}

// The last object of a thread may die after the list has: thread-local objects are destroyed in turn.
thread_local std::unique_ptr<Small> t_last;
TEST(Recycled, AnObjectThatOutlivesTheList) {
  std::thread([] {
    t_last = std::make_unique<Small>(1);
    std::make_unique<Small>(2).reset();
  }).join();
  EXPECT_EQ(g_alive, 0);
}

}  // namespace
}  // namespace mge
