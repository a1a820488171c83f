// What tools/fuzz/cpp found, each as small as it can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <numeric>
#include <thread>

#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"
#include "lite/error.h"
#include "lite/pack_model.h"
#include "models.h"
#include "serial/packed.h"

namespace lite {
namespace {

using test::error_of;
using testing::HasSubstr;

Layout floats_of(std::initializer_list<size_t> dims) {
  Layout l;
  for (size_t d : dims) l.shapes[l.ndim++] = d;
  return l;
}

// 65536 four times is 0 in 64 bits.
TEST(Misuse, ReshapeOfNothingToMoreThanThereIs) {
  Tensor t(LITE_CPU, floats_of({0}));
  EXPECT_THAT(error_of([&] { t.reshape({65536, 65536, 65536, 65536}); }), HasSubstr("too large for this machine"));
  EXPECT_EQ(t.get_layout(), floats_of({0}));
}

TEST(Misuse, SliceWithAStepBeyondTheTensor) {
  Tensor t(LITE_CPU, floats_of({4}));
  test::fill(t, [](size_t i) { return static_cast<float>(i); });
  for (size_t step : {size_t{5}, SIZE_MAX / 2}) {
    const auto s = t.slice({1}, {4}, {step});
    EXPECT_EQ(s->get_layout(), floats_of({1}));
    EXPECT_EQ(*static_cast<float*>(s->get_memory_ptr()), 1.f);
  }
  for (size_t step : {SIZE_MAX, SIZE_MAX / 2 + 1}) {  // -1 and the smallest number: from 3 down to 0
    const auto s = t.slice({3}, {0}, {step});
    EXPECT_EQ(s->get_layout(), floats_of({step == SIZE_MAX ? 3u : 1u}));
    EXPECT_EQ(*static_cast<float*>(s->get_memory_ptr()), 3.f);
    EXPECT_EQ(t.slice({1}, {4}, {step})->get_layout(), floats_of({0}));
  }
  EXPECT_EQ(t.slice({2}, {2}, {1})->get_layout(), floats_of({0}));
}

TEST(Misuse, CopyBetweenViewsThatOverlap) {
  Tensor t(LITE_CPU, floats_of({6}));
  test::fill(t, [](size_t i) { return static_cast<float>(i); });
  const auto front = t.slice({0}, {5}), back = t.slice({1}, {6});
  back->copy_from(*front);
  EXPECT_EQ(test::floats(t), (std::vector<float>{0, 0, 1, 2, 3, 4}));
  front->copy_from(*back);
  EXPECT_EQ(test::floats(t), (std::vector<float>{0, 1, 2, 3, 4, 4}));
}

// Memory of a program may begin at any byte.
TEST(Misuse, MemoryAtOddAddresses) {
  std::vector<char> memory(200);
  char* odd = memory.data() + (reinterpret_cast<uintptr_t>(memory.data()) % 2 ? 0 : 1);
  for (int i = 0; i < 6; ++i) {
    const auto x = static_cast<float>(i);
    std::memcpy(odd + 4 * i, &x, 4);
  }
  Tensor t(LITE_CPU, floats_of({2, 3}));
  t.reset(odd, 24);
  const auto column = t.slice({0, 1}, {2, 2});
  Tensor copy;
  copy.copy_from(*column);
  EXPECT_EQ(test::floats(copy), (std::vector<float>{1, 4}));
  EXPECT_EQ(test::floats(*TensorUtils::concat({*column, *column}, 1)), (std::vector<float>{1, 1, 4, 4}));
  auto net = test::load(test::kAffine);
  net->get_input_tensor(0)->share_memory_with(t);
  Tensor wide(LITE_CPU, floats_of({2, 4}));
  wide.reset(odd + 32, 32);
  wide.fill_zero();
  net->get_output_tensor(0)->share_memory_with(*wide.slice({0, 1}, {2, 4}));
  test::run(*net);
  copy.copy_from(wide);
  EXPECT_EQ(test::floats(copy), (std::vector<float>{0, 0, 1, 2, 0, 3, 4, 5}));
}

// An output that is an input, in the same memory.
TEST(Misuse, OutputInTheMemoryOfItsInput) {
  auto net = test::load("graph g(%x: f32[6]) { %y = reshape %x {shape=[6]} } returns(%y)");
  std::vector<float> memory(8);
  std::iota(memory.begin(), memory.end(), 0.f);
  net->get_input_tensor(0)->reset(memory.data(), 6 * sizeof(float));
  net->get_output_tensor(0)->reset(memory.data() + 2, 6 * sizeof(float));
  net->forward();
  net->wait();
  EXPECT_EQ(memory, (std::vector<float>{0, 1, 0, 1, 2, 3, 4, 5}));
}

// Tables of parameters whose fields lie behind the end of the file, and inputs without their tensor.
TEST(Misuse, FieldsOutsideOfTheFile) {
  for (const char* name : {"bool_out.v2", "dynamic_select.v1"}) {
    std::ifstream f(MGE_TEST_DATA + std::string("/original/") + name + ".mge", std::ios::binary);
    const std::vector<uint8_t> good{std::istreambuf_iterator<char>(f), {}};
    int outside = 0;
    for (size_t at = 0; at + 2 <= good.size(); at += 2) {
      std::vector<uint8_t> bad = good;
      bad[at] = 0xfc;
      bad[at + 1] = 0xff;
      const std::string text = error_of([&] { Runtime::get_model_io_info(bad.data(), bad.size()); });
      EXPECT_EQ(text.find("internal error"), std::string::npos) << name << " " << at << ": " << text;
      EXPECT_EQ(text.find("_M_"), std::string::npos) << name << " " << at << ": " << text;
      outside += text.find("a parameter lies outside of the file") != std::string::npos;
    }
    EXPECT_GT(outside, 0) << name;
  }
}

// Record level 2 drops the graph that a dump would name values by.
TEST(Misuse, DumpsOfANetworkThatDropsItsGraph) {
  const std::string folder = testing::TempDir() + "lite_misuse_dump";
  Config c;
  c.options.comp_node_seq_record_level = 2;
  auto before = std::make_shared<Network>(c);
  Runtime::enable_io_bin_dump(before, folder);
  EXPECT_THAT(error_of([&] { before->load_model(test::net_path()); }), HasSubstr("Use level 1."));
  auto after = test::load_net(c);
  EXPECT_THAT(error_of([&] { Runtime::enable_io_txt_dump(after, folder); }), HasSubstr("Use level 1."));
  for (int i = 0; i < 2; ++i) {
    after->forward();
    after->wait();
  }
  EXPECT_THAT(error_of([&] { Runtime::enable_io_txt_dump(after, folder); }), HasSubstr("use level 1."));
  after->forward();
}

// Found when memory was too short to fold: the second constant of four bits each was read at half its place.
TEST(Misuse, ConstantsOfFewBitsBehindOthers) {
  const std::string text = R"(
graph g(%x: f32[4]) {
  const %a: qint4(0.25,0)[4] = 2143
  const %b: qint4(0.25,0)[4] = 7654
  %0 = dequantize %a
  %1 = dequantize %b
  %2 = add %0, %x
  %3 = add %1, %x
} returns(%2, %3)
)";
  for (uint8_t level : {0, 1, 2, 3}) {
    Config c;
    c.options.graph_opt_level = level;
    auto net = test::load(text, c);
    net->get_input_tensor(0)->fill_zero();
    EXPECT_EQ(test::run(*net), (std::vector<float>{0.25, 0.5, 0.75, 1}));
    EXPECT_EQ(test::floats(*net->get_output_tensor(1)), (std::vector<float>{1.5, 1.75, 1, 1.25}));
  }
}

std::vector<uint8_t> packed(const std::string& info) {
  mge::serial::PackedModel p;
  p.model = test::model_of(test::kAffine);
  p.info.assign(info.begin(), info.end());
  return mge::serial::pack(p);
}

TEST(Misuse, NumbersInTheInfoOfAPack) {
  auto load = [](const std::string& info) {
    return error_of([&] {
      auto bytes = packed(info);
      Network().load_model(bytes.data(), bytes.size());
    });
  };
  EXPECT_EQ(load(R"({"version": "99999999999999.99999.1"})"), "no error");  // newer, which is logged
  EXPECT_EQ(load(R"({"version": "2147483647.2147483647.2147483647"})"), "no error");
  EXPECT_EQ(load(R"({"version": "x"})"), "no error");
  EXPECT_THAT(load(R"({"IO": {"inputs": [{"name": "x", "shape": {"dim0": 18446744073709551616}}]}})"),
              HasSubstr("must be an integer"));
}

// The callback of each of two networks uses the other one. Both waits cannot end; one of them is refused.
class Ring : public testing::Test {
 public:
  void meet() {
    std::unique_lock lock(mutex_);
    ++there_;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return there_ >= 2; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int there_ = 0;
};

TEST_F(Ring, OfStartCallbacks) {
  auto a = test::load_net(), b = test::load_net();
  std::atomic<int> refused{0};
  auto use = [&](Network& other) {
    meet();
    const std::string text = error_of([&] { other.get_input_name(0); });
    refused += text.find("would never return") != std::string::npos;
  };
  a->set_start_callback([&](auto&) { use(*b); });
  b->set_start_callback([&](auto&) { use(*a); });
  std::thread other([&] { a->forward(); });
  b->forward();
  other.join();
  EXPECT_EQ(refused, 1);
}

TEST_F(Ring, OfAsyncCallbacks) {
  static Ring* ring;
  static LiteNetwork a, b;
  static std::atomic<int> refused;
  ring = this;
  refused = 0;
  for (LiteNetwork* n : {&a, &b}) {
    ASSERT_EQ(LITE_make_default_network(n), 0);
    ASSERT_EQ(LITE_load_model_from_path(*n, test::net_path().c_str()), 0);
  }
  auto count = [](int status) {
    if (status) refused += std::strstr(LITE_get_last_error(), "would never return") != nullptr;
  };
  static const std::function<void(int)> counted = count;
  ASSERT_EQ(LITE_set_async_callback(a, [] { return ring->meet(), counted(LITE_wait(b)), 0; }), 0);
  ASSERT_EQ(LITE_set_async_callback(b, [] { return ring->meet(), counted(LITE_destroy_network(a)), 0; }), 0);
  ASSERT_EQ(LITE_forward(a), 0);
  ASSERT_EQ(LITE_forward(b), 0);
  EXPECT_EQ(LITE_destroy_network(b), 0);  // waits for both
  LITE_destroy_network(a);
  EXPECT_EQ(refused, 1);
}

// The run would need the outer network, and whoever asked for it, inside the outer network's callback, would have to
// wait for the run: the last to use a network waits for its runs.
TEST_F(Ring, OfARunWhoseNetworkIsDestroyed) {
  static LiteNetwork outer, inner;
  static size_t number;
  static std::string text;
  for (LiteNetwork* n : {&outer, &inner}) {
    ASSERT_EQ(LITE_make_default_network(n), 0);
    ASSERT_EQ(LITE_load_model_from_path(*n, test::net_path().c_str()), 0);
  }
  ASSERT_EQ(LITE_set_async_callback(inner, [] { return LITE_get_cpu_threads_number(outer, &number), 0; }), 0);
  ASSERT_EQ(LITE_set_start_callback(
                inner, [](const LiteIO*, const LiteTensor*, size_t) { return LITE_destroy_network(inner); }),
            0);
  ASSERT_EQ(LITE_set_start_callback(outer,
                                    [](const LiteIO*, const LiteTensor*, size_t) {
                                      if (LITE_forward(inner)) text = LITE_get_last_error();
                                      return 0;
                                    }),
            0);
  EXPECT_EQ(LITE_forward(outer), 0);
  EXPECT_THAT(text, HasSubstr("forward: the network was destroyed meanwhile"));
  EXPECT_NE(LITE_destroy_network(inner), 0);
  EXPECT_EQ(LITE_destroy_network(outer), 0);
}

}  // namespace
}  // namespace lite
