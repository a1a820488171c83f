// What fails inside a model names the op that was written, its inputs and its line, through both interfaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"
#include "models.h"

namespace lite {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A division that becomes a product, a lookup, and ops that run as one with it.
constexpr const char* kLookup = R"(
graph lookup(%table: f32[4,3], %i: i32[2]) {
  const %two: f32[] = 00000040
  %a = div %table, %two          loc model.py:7 in forward
  %b = take %a, %i {axis=0}      loc model.py:8 in forward of net.embed
  %c = neg %b                    loc model.py:9 in forward
  %d = exp %c                    loc model.py:10 in forward
} returns(%d)
)";

void set_index(Tensor& t, int32_t second) {
  auto* p = static_cast<int32_t*>(t.get_memory_ptr());
  p[0] = 0;
  p[1] = second;
}

auto is_told() {
  return AllOf(HasSubstr("index 9"), HasSubstr("take("), HasSubstr("float32[4,3]"), HasSubstr("i: int32[2]"),
               HasSubstr("model.py:8 in forward"));
}

TEST(LiteErrorLines, Network) {
  auto net = test::load(kLookup);
  test::fill(*net->get_io_tensor("table"), [](size_t i) { return static_cast<float>(i); });
  set_index(*net->get_io_tensor("i"), 3);
  const auto want = test::run(*net);
  set_index(*net->get_io_tensor("i"), 9);
  EXPECT_THAT(test::error_of([&] { test::run(*net); }), is_told());
  set_index(*net->get_io_tensor("i"), 3);
  EXPECT_EQ(test::run(*net), want) << "it goes on";
}

TEST(LiteErrorLines, RecordLevels) {
  for (int level : {1, 2}) {
    Config config;
    config.options.comp_node_seq_record_level = static_cast<uint8_t>(level);
    auto net = test::load(kLookup, config);
    set_index(*net->get_io_tensor("i"), 3);
    test::run(*net);
    set_index(*net->get_io_tensor("i"), 9);
    EXPECT_THAT(test::error_of([&] { test::run(*net); }), is_told()) << level;
  }
}

TEST(LiteErrorLines, Async) {
  auto net = test::load(kLookup);
  bool called = false;
  net->set_async_callback([&] { called = true; });
  set_index(*net->get_io_tensor("i"), 9);
  EXPECT_THAT(test::error_of([&] {
                net->forward();
                net->wait();
              }),
              is_told());
}

TEST(LiteErrorLines, C) {
  auto bytes = test::model_of(kLookup);
  LiteNetwork net = nullptr;
  ASSERT_EQ(LITE_make_default_network(&net), 0);
  ASSERT_EQ(LITE_load_model_from_mem(net, bytes.data(), bytes.size()), 0) << LITE_get_last_error();
  LiteTensor index;
  ASSERT_EQ(LITE_get_io_tensor(net, "i", LITE_INPUT, &index), 0);
  void* p;
  ASSERT_EQ(LITE_get_tensor_memory(index, &p), 0);
  static_cast<int32_t*>(p)[0] = 0;
  static_cast<int32_t*>(p)[1] = 9;
  std::string text;
  if (LITE_forward(net) != 0 || LITE_wait(net) != 0) text = LITE_get_last_error();
  EXPECT_THAT(text, is_told());
  LITE_clear_last_error();
  EXPECT_EQ(LITE_destroy_network(net), 0);
}

}  // namespace
}  // namespace lite
