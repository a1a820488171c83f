// SmallVec, RefPtr, FunctionRef: the small tools everything else stands on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/ref.h"
#include "base/small_vec.h"

namespace mge {
namespace {

using testing::ElementsAre;

/// Counts live objects and notices a use of a dead one.
struct Tracked {
  static inline int live = 0;
  int value;
  uint32_t alive = 0xA11FE;
  Tracked(int v = 0) : value(v) { ++live; }
  Tracked(const Tracked& o) : value(o.value) {
    o.check();
    ++live;
  }
  Tracked(Tracked&& o) noexcept : value(std::exchange(o.value, -1)) {
    o.check();
    ++live;
  }
  Tracked& operator=(const Tracked& o) {
    check(), o.check();
    value = o.value;
    return *this;
  }
  Tracked& operator=(Tracked&& o) noexcept {
    check(), o.check();
    value = std::exchange(o.value, -1);
    return *this;
  }
  ~Tracked() {
    check();
    alive = 0xDEAD;
    --live;
  }
  void check() const { EXPECT_EQ(alive, 0xA11FEu) << "a dead object was used"; }
  bool operator==(const Tracked& o) const { return value == o.value; }
};

class SmallVecTest : public testing::Test {
 protected:
  void SetUp() override { Tracked::live = 0; }
  void TearDown() override { EXPECT_EQ(Tracked::live, 0) << "objects leaked or destroyed twice"; }
};
using Vec = SmallVec<Tracked, 3>;

std::vector<int> ints(const Vec& v) {
  std::vector<int> out;
  for (auto& t : v) out.push_back(t.value);
  return out;
}

TEST_F(SmallVecTest, StartsInsideTheObjectAndMovesToTheHeap) {
  Vec v{1, 2, 3};
  auto inside = [&] {
    return reinterpret_cast<char*>(v.data()) >= reinterpret_cast<char*>(&v) &&
           reinterpret_cast<char*>(v.data()) < reinterpret_cast<char*>(&v + 1);
  };
  EXPECT_TRUE(inside());
  v.push_back(4);
  EXPECT_FALSE(inside());
  EXPECT_THAT(ints(v), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(v.front().value, 1);
  EXPECT_EQ(v.back().value, 4);
}

TEST_F(SmallVecTest, CopyAndMoveInlineAndHeap) {
  for (int n : {0, 1, 3, 4, 20}) {
    Vec a;
    for (int i = 0; i < n; ++i) a.push_back(i);
    Vec copy(a), assigned{7, 8, 9, 10, 11};
    assigned = a;
    EXPECT_TRUE(copy == a) << n;
    EXPECT_TRUE(assigned == a) << n;
    Vec moved(std::move(copy));
    EXPECT_TRUE(moved == a) << n;
    EXPECT_TRUE(copy.empty()) << n;  // NOLINT(bugprone-use-after-move): emptied is the contract here
    copy.push_back(5);
    EXPECT_THAT(ints(copy), ElementsAre(5));
    assigned = std::move(moved);
    EXPECT_TRUE(assigned == a) << n;
    Vec* self = &assigned;
    assigned = *self;
    assigned = std::move(*self);
    EXPECT_TRUE(assigned == a) << n;
  }
}

TEST_F(SmallVecTest, ArgumentsMayLiveInsideTheVector) {
  Vec v{1, 2, 3};
  v.push_back(v[0]);  // grows while reading v[0]
  EXPECT_THAT(ints(v), ElementsAre(1, 2, 3, 1));
  Vec w{5, 6, 7};
  w.resize(9, w[1]);  // so does resize
  EXPECT_THAT(ints(w), ElementsAre(5, 6, 7, 6, 6, 6, 6, 6, 6));
  Vec shrink{5, 6, 7};
  shrink.resize(1, shrink[2]);
  EXPECT_THAT(ints(shrink), ElementsAre(5));
}

TEST_F(SmallVecTest, EraseResizeClear) {
  Vec v{1, 2, 3, 4, 5};
  v.erase_at(0);
  v.erase_at(3);
  v.erase_at(1);
  EXPECT_THAT(ints(v), ElementsAre(2, 4));
  v.resize(4);
  EXPECT_THAT(ints(v), ElementsAre(2, 4, 0, 0));
  v.resize(1);
  EXPECT_THAT(ints(v), ElementsAre(2));
  v.clear();
  EXPECT_TRUE(v.empty());
  EXPECT_FALSE(v == Vec{2});
}

TEST_F(SmallVecTest, HoldsMoveOnlyAndOverAlignedTypes) {
  SmallVec<std::unique_ptr<int>, 2> owners;
  for (int i = 0; i < 9; ++i) owners.push_back(std::make_unique<int>(i));
  SmallVec<std::unique_ptr<int>, 2> taken(std::move(owners));
  EXPECT_EQ(*taken[8], 8);
  struct alignas(64) Line {
    char bytes[64];
  };
  SmallVec<Line, 1> lines;
  for (int i = 0; i < 5; ++i) {
    lines.emplace_back();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(lines.data()) % 64, 0u) << i;
  }
}

TEST_F(SmallVecTest, BehavesLikeStdVectorUnderRandomEdits) {
  std::mt19937 rng(7);
  Vec v;
  std::vector<int> ref;
  for (int step = 0; step < 4000; ++step) {
    int what = static_cast<int>(rng() % 6), value = static_cast<int>(rng() % 100);
    if (what <= 2) {
      v.push_back(value), ref.push_back(value);
    } else if (what == 3 && !ref.empty()) {
      v.pop_back(), ref.pop_back();
    } else if (what == 4 && !ref.empty()) {
      size_t at = rng() % ref.size();
      v.erase_at(at), ref.erase(ref.begin() + static_cast<int64_t>(at));
    } else if (what == 5 && step % 50 == 0) {
      size_t n = rng() % 12;
      v.resize(n, value), ref.resize(n, value);
    }
    ASSERT_EQ(ints(v), ref) << "step " << step;
  }
}

struct Node : RefCounted {
  static inline std::atomic<int> live{0};
  RefPtr<Node> next;
  Node() { ++live; }
  virtual ~Node() { --live; }
};
struct Leaf final : Node {};

TEST(RefPtrTest, LastOwnerDeletes) {
  {
    RefPtr<Node> a = make_ref<Node>();
    EXPECT_EQ(a->ref_count(), 1u);
    RefPtr<Node> b = a;
    EXPECT_EQ(a->ref_count(), 2u);
    RefPtr<Node> c = std::move(b);
    EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(a->ref_count(), 2u);
    RefPtr<Node>& alias = c;
    c = alias;
    EXPECT_EQ(a->ref_count(), 2u);
    c = nullptr;
    EXPECT_EQ(a->ref_count(), 1u);
    a.reset();
    EXPECT_EQ(Node::live, 0);
    RefPtr<Node> base = make_ref<Leaf>();  // deleted through the virtual destructor
    EXPECT_EQ(Node::live, 1);
  }
  EXPECT_EQ(Node::live, 0);
}

TEST(RefPtrTest, AssigningFromOwnMemberIsSafe) {
  RefPtr<Node> list = make_ref<Node>();
  list->next = make_ref<Node>();
  list->next->next = make_ref<Node>();
  while (list) list = list->next;  // the node that holds the source dies during the assignment
  EXPECT_EQ(Node::live, 0);
}

TEST(RefPtrTest, CopyOfACountedObjectStartsUnowned) {
  RefPtr<Node> a = make_ref<Node>(), b = a;
  RefPtr<Node> c(new Node(*a));
  EXPECT_EQ(c->ref_count(), 1u);
  EXPECT_EQ(a->ref_count(), 2u);
  ++Node::live;  // the implicit copy constructor does not count
  a = b = c = nullptr;
  EXPECT_EQ(Node::live, 0);
}

TEST(RefPtrTest, CountIsAtomic) {
  RefPtr<Node> shared = make_ref<Node>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&shared] {
      for (int i = 0; i < 20000; ++i) RefPtr<Node> copy = shared;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(shared->ref_count(), 1u);
  shared.reset();
  EXPECT_EQ(Node::live, 0);
}

int twice(int x) { return 2 * x; }

TEST(FunctionRefTest, BorrowsLambdasFunctorsAndPointers) {
  int sum = 0;
  auto add = [&](int x) { return sum += x; };
  FunctionRef<int(int)> f = add;
  EXPECT_EQ(f(3), 3);
  EXPECT_EQ(f(4), 7);
  EXPECT_EQ(sum, 7);
  FunctionRef<int(int)> copy = f;
  EXPECT_EQ(copy(1), 8);
  int (*pointer)(int) = twice;
  FunctionRef<int(int)> g = pointer;
  EXPECT_EQ(g(21), 42);
  const auto constant = [](int x) { return x + 1; };
  EXPECT_EQ(FunctionRef<int(int)>(constant)(1), 2);
}

TEST(FunctionRefTest, ForwardsArgumentsWithoutCopies) {
  auto take = [](std::unique_ptr<int> p, std::string& out) { out = std::to_string(*p); };
  FunctionRef<void(std::unique_ptr<int>, std::string&)> f = take;
  std::string out;
  f(std::make_unique<int>(5), out);
  EXPECT_EQ(out, "5");
}

}  // namespace
}  // namespace mge
