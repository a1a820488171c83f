#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <vector>

#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"

namespace {

using testing::HasSubstr;

const char* net_path() { return MGE_TEST_DATA "/lite/net_v1.mge"; }

// Expects -1 and returns the text.
std::string failed(int rc) {
  EXPECT_EQ(rc, -1);
  EXPECT_EQ(LITE_get_last_error_code(), LITE_INTERNAL_ERROR);
  std::string text = LITE_get_last_error();
  LITE_clear_last_error();
  EXPECT_STREQ(LITE_get_last_error(), "");
  EXPECT_EQ(LITE_get_last_error_code(), OK);
  return text;
}
#define ASSERT_OK(call) ASSERT_EQ((call), 0) << LITE_get_last_error()

class CNetwork : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(LITE_make_default_network(&net_));
    ASSERT_OK(LITE_load_model_from_path(net_, net_path()));
  }
  void TearDown() override { EXPECT_EQ(LITE_destroy_network(net_), 0); }
  LiteNetwork net_ = nullptr;
};

TEST(CLayouts, AreTheOnesOfTheAbi) {
  EXPECT_EQ(sizeof(LiteOptions), 20 * sizeof(int));
  EXPECT_EQ(sizeof(LiteLayout), 9 * 8u);
  EXPECT_EQ(offsetof(LiteLayout, ndim), 56u);
  EXPECT_EQ(offsetof(LiteConfig, bare_model_cryption_name), 16u);
  EXPECT_EQ(offsetof(LiteConfig, options), 24u);
  EXPECT_EQ(offsetof(LiteConfig, discrete_input_name), 24 + 80 + 8u);
  EXPECT_EQ(offsetof(LiteIO, config_layout), 16u);
  EXPECT_EQ(offsetof(LiteNetworkIO, input_size), 16u);
  EXPECT_EQ(offsetof(LiteTensorDesc, layout), 8u);
  EXPECT_EQ(default_option.graph_opt_level, 2);
  EXPECT_EQ(default_option.async_exec_level, 1);
  EXPECT_EQ(default_option.var_sanity_check_first_run, 1);
  EXPECT_EQ(default_config()->device_id, -1);
  EXPECT_EQ(default_io.is_host, 1);
  EXPECT_EQ(default_network_io()->input_size, 0u);
}

TEST_F(CNetwork, LoadFeedForwardRead) {
  LiteTensor x, y;
  ASSERT_OK(LITE_get_io_tensor(net_, "data", LITE_INPUT, &x));
  std::vector<float> pixels(128, 0.5f);
  ASSERT_OK(LITE_reset_tensor_memory(x, pixels.data(), 512));
  ASSERT_OK(LITE_forward(net_));
  ASSERT_OK(LITE_wait(net_));
  ASSERT_OK(LITE_get_io_tensor(net_, "prob", LITE_OUTPUT, &y));
  LiteLayout l;
  ASSERT_OK(LITE_get_tensor_layout(y, &l));
  EXPECT_EQ(l.ndim, 2u);
  EXPECT_EQ(l.shapes[1], 5u);
  void* data;
  ASSERT_OK(LITE_get_tensor_memory(y, &data));
  auto* p = static_cast<float*>(data);
  EXPECT_NEAR(p[0] + p[1] + p[2] + p[3] + p[4], 1, 1e-5);
  LiteTensor again;
  ASSERT_OK(LITE_get_io_tensor(net_, "prob", LITE_IO, &again));
  EXPECT_EQ(again, y);
  EXPECT_EQ(LITE_destroy_tensor(y), 0);  // belongs to the network: nothing happens
  ASSERT_OK(LITE_get_tensor_memory(y, &data));
}

TEST_F(CNetwork, Names) {
  const char* name;
  ASSERT_OK(LITE_get_input_name(net_, 0, &name));
  EXPECT_STREQ(name, "data");
  size_t n = 0;
  ASSERT_OK(LITE_get_all_output_name(net_, &n, nullptr));
  ASSERT_EQ(n, 2u);
  const char* names[2];
  ASSERT_OK(LITE_get_all_output_name(net_, nullptr, names));
  EXPECT_STREQ(names[1], "prob");
  LiteTensor t;
  EXPECT_THAT(failed(LITE_get_io_tensor(net_, "nope", LITE_IO, &t)),
              HasSubstr("no input or output 'nope'. Inputs: data, bias"));
  EXPECT_THAT(failed(LITE_get_input_name(net_, 7, &name)), HasSubstr("input 7 of 2"));
}

TEST_F(CNetwork, Settings) {
  int i;
  size_t n;
  LiteDeviceType type;
  const char* text;
  ASSERT_OK(LITE_get_device_id(net_, &i));
  ASSERT_OK(LITE_get_stream_id(net_, &i));
  ASSERT_OK(LITE_get_device_type(net_, &type));
  EXPECT_EQ(type, LITE_CPU);
  ASSERT_OK(LITE_get_cpu_threads_number(net_, &n));
  EXPECT_EQ(n, 1u);
  ASSERT_OK(LITE_is_cpu_inplace_mode(net_, &i));
  ASSERT_OK(LITE_get_model_extra_info(net_, &text, &i));
  EXPECT_STREQ(text, "{}");
  EXPECT_THAT(failed(LITE_set_cpu_threads_number(net_, 2)), HasSubstr("before load_model"));
  LiteNetwork fresh;
  ASSERT_OK(LITE_make_network(&fresh, *default_config(), *default_network_io()));
  ASSERT_OK(LITE_set_cpu_threads_number(fresh, 2));
  EXPECT_THAT(failed(LITE_set_cpu_threads_number(fresh, 0)), HasSubstr("must be 1..256"));
  ASSERT_OK(LITE_set_cpu_inplace_mode(fresh));
  ASSERT_OK(LITE_shared_weight_with_network(fresh, net_));
  ASSERT_OK(LITE_forward(fresh));
  ASSERT_OK(LITE_destroy_network(fresh));
}

TEST_F(CNetwork, CallbacksWithUserData) {
  struct Counts {
    int start = 0, finish = 0;
  } counts;
  ASSERT_OK(LITE_set_start_callback_with_userdata(
      net_,
      [](const LiteIO* io, const LiteTensor* t, size_t n, void* data) {
        static_cast<Counts*>(data)->start += static_cast<int>(n);
        LiteLayout l;
        return io[0].name && LITE_get_tensor_layout(t[0], &l) == 0 ? 0 : 1;
      },
      &counts));
  ASSERT_OK(LITE_set_finish_callback_with_userdata(
      net_,
      [](const LiteIO*, const LiteTensor*, size_t n, void* data) {
        return static_cast<Counts*>(data)->finish += static_cast<int>(n), 0;
      },
      &counts));
  ASSERT_OK(LITE_forward(net_));
  ASSERT_OK(LITE_wait(net_));
  EXPECT_EQ(counts.start, 2);
  EXPECT_EQ(counts.finish, 2);
  ASSERT_OK(LITE_set_start_callback(net_, [](const LiteIO*, const LiteTensor*, size_t) { return 3; }));
  EXPECT_THAT(failed(LITE_forward(net_)), HasSubstr("start callback returned 3"));
}

TEST_F(CNetwork, AsyncAndDestroyInsideTheCallback) {
  static std::atomic<int> done;
  static LiteNetwork self;
  static int destroyed;
  done = 0;
  self = net_;
  ASSERT_OK(LITE_set_async_callback(net_, [] {
    destroyed = LITE_destroy_network(self);
    ++done;
    return 0;
  }));
  ASSERT_OK(LITE_forward(net_));
  ASSERT_OK(LITE_wait(net_));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(destroyed, -1);
}

TEST(CApi, NullPointersEverywhere) {
  LiteNetwork net, loaded;
  ASSERT_OK(LITE_make_default_network(&net));
  ASSERT_OK(LITE_make_default_network(&loaded));
  ASSERT_OK(LITE_load_model_from_path(loaded, net_path()));
  LiteTensor t;
  size_t n = 0;
  const char* s;
  void* p;
  int i;
  LiteLayout l = default_layout;
  LiteDeviceType d;
  LiteNetworkIO io;
  const LiteConfig config = *default_config();
  // No output pointer.
  EXPECT_THAT(failed(LITE_make_default_network(nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_make_network(nullptr, config, *default_network_io())), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_make_network_config(nullptr, config)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_make_tensor(default_desc, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_io_tensor(net, "x", LITE_IO, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_input_name(loaded, 0, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_output_name(loaded, 0, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_device_id(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_stream_id(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_device_type(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_cpu_threads_number(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_is_cpu_inplace_mode(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_version(nullptr, nullptr, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_device_count(LITE_CPU, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_log_level(nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_model_io_info_by_path(net_path(), config, nullptr)), HasSubstr("null pointer"));
  // No input pointer.
  EXPECT_THAT(failed(LITE_load_model_from_path(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_load_model_from_mem(net, nullptr, 10)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_io_tensor(net, nullptr, LITE_IO, &t)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_set_async_callback(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_set_start_callback(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_set_finish_callback(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_set_runtime_thread_affinity(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_enable_io_txt_dump(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_enable_io_bin_dump(net, nullptr)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_model_io_info_by_path(nullptr, config, &io)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_get_model_io_info_by_memory(nullptr, 4, config, &io)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_tensor_concat(nullptr, 1, 0, LITE_CPU, 0, &t)), HasSubstr("null pointer"));
  // No handle.
  EXPECT_THAT(failed(LITE_destroy_network(nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_forward(nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_wait(nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_load_model_from_path(nullptr, "x")), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_get_io_tensor(nullptr, "x", LITE_IO, &t)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_get_all_input_name(nullptr, &n, nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_get_model_extra_info(nullptr, &s, &i)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_use_tensorrt(nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_extra_configure(nullptr, {0})), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_shared_weight_with_network(net, nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_share_runtime_memroy(nullptr, nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_set_memory_allocator(nullptr, nullptr, nullptr)), HasSubstr("network handle is null"));
  EXPECT_THAT(failed(LITE_destroy_tensor(nullptr)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_set_tensor_layout(nullptr, l)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_reset_tensor_memory(nullptr, &n, 8)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_reset_tensor(nullptr, l, &n)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_tensor_reshape(nullptr, &i, 1)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_tensor_fill_zero(nullptr)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_tensor_copy(nullptr, nullptr)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_tensor_share_memory_with(nullptr, nullptr)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_get_tensor_memory(nullptr, &p)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_get_tensor_memory_with_index(nullptr, &n, 1, &p)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_get_tensor_total_size_in_byte(nullptr, &n)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_get_tensor_layout(nullptr, &l)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_get_tensor_device_type(nullptr, &d)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_get_tensor_device_id(nullptr, &i)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_is_pinned_host(nullptr, &i)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_is_memory_continue(nullptr, &i)), HasSubstr("tensor handle is null"));
  EXPECT_THAT(failed(LITE_tensor_slice(nullptr, &n, &n, nullptr, 1, &t)), HasSubstr("tensor handle is null"));
  ASSERT_OK(LITE_destroy_network(loaded));
  ASSERT_OK(LITE_destroy_network(net));
}

TEST(CApi, WrongHandles) {
  LiteNetwork net;
  LiteTensor tensor, io;
  ASSERT_OK(LITE_make_default_network(&net));
  ASSERT_OK(LITE_load_model_from_path(net, net_path()));
  ASSERT_OK(LITE_make_tensor(default_desc, &tensor));
  ASSERT_OK(LITE_get_io_tensor(net, "data", LITE_IO, &io));
  int on_stack = 0;
  void* p;
  EXPECT_THAT(failed(LITE_forward(tensor)), HasSubstr("is no network"));
  EXPECT_THAT(failed(LITE_forward(&on_stack)), HasSubstr("is no network"));
  EXPECT_THAT(failed(LITE_get_tensor_memory(net, &p)), HasSubstr("is no tensor"));
  ASSERT_OK(LITE_destroy_network(net));
  EXPECT_THAT(failed(LITE_destroy_network(net)), HasSubstr("destroyed or never made"));
  EXPECT_THAT(failed(LITE_forward(net)), HasSubstr("destroyed or never made"));
  EXPECT_THAT(failed(LITE_get_tensor_memory(io, &p)), HasSubstr("was destroyed"));
  ASSERT_OK(LITE_destroy_tensor(tensor));
  EXPECT_THAT(failed(LITE_destroy_tensor(tensor)), HasSubstr("is no tensor"));
}

TEST(CApi, WrongNumbers) {
  LiteTensor t, u;
  LiteTensorDesc d = default_desc;
  d.layout.ndim = 99;
  EXPECT_THAT(failed(LITE_make_tensor(d, &t)), HasSubstr("at most 7 dimensions; got 99"));
  d.layout = {{2, 3}, 2, LITE_FLOAT};
  ASSERT_OK(LITE_make_tensor(d, &t));
  size_t index[9] = {};
  int shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 6};
  void* p;
  EXPECT_THAT(failed(LITE_get_tensor_memory_with_index(t, index, 9, &p)), HasSubstr("at most 7"));
  EXPECT_THAT(failed(LITE_tensor_reshape(t, shape, 9)), HasSubstr("1 to 7"));
  EXPECT_THAT(failed(LITE_tensor_reshape(t, shape, -1)), HasSubstr("1 to 7"));
  EXPECT_THAT(failed(LITE_tensor_slice(t, index, index, nullptr, 9, &u)), HasSubstr("at most 7"));
  EXPECT_THAT(failed(LITE_set_log_level(static_cast<LiteLogLevel>(9))), HasSubstr("no LiteLogLevel"));
  LiteNetworkIO io = {nullptr, nullptr, 3, 0};
  LiteNetwork net;
  EXPECT_THAT(failed(LITE_make_network(&net, *default_config(), io)),
              HasSubstr("says 3 inputs and gives a null pointer"));
  LiteIO nameless = default_io;
  io = {&nameless, nullptr, 1, 0};
  EXPECT_THAT(failed(LITE_make_network(&net, *default_config(), io)), HasSubstr("name of a LiteIO is a null pointer"));
  ASSERT_OK(LITE_destroy_tensor(t));
}

TEST(CApi, TensorFunctions) {
  LiteTensorDesc d = default_desc;
  d.layout = {{2, 2}, 2, LITE_INT};
  LiteTensor a, b, c, s;
  ASSERT_OK(LITE_make_tensor(d, &a));
  ASSERT_OK(LITE_make_tensor(default_desc, &b));
  int data[4] = {1, 2, 3, 4};
  ASSERT_OK(LITE_reset_tensor_memory(a, data, sizeof data));
  ASSERT_OK(LITE_tensor_copy(b, a));
  LiteTensor both[2] = {a, b};
  ASSERT_OK(LITE_tensor_concat(both, 2, 0, LITE_DEVICE_DEFAULT, -1, &c));
  size_t bytes, start[] = {1}, end[] = {3};
  ASSERT_OK(LITE_get_tensor_total_size_in_byte(c, &bytes));
  EXPECT_EQ(bytes, 32u);
  ASSERT_OK(LITE_tensor_slice(c, start, end, nullptr, 1, &s));
  void* p;
  ASSERT_OK(LITE_get_tensor_memory(s, &p));
  EXPECT_EQ(static_cast<int*>(p)[0], 3);
  int yes;
  ASSERT_OK(LITE_is_memory_continue(s, &yes));
  EXPECT_EQ(yes, 1);
  for (LiteTensor t : {a, b, c, s}) ASSERT_OK(LITE_destroy_tensor(t));
}

TEST(CApi, ModelIoInfo) {
  LiteNetworkIO io;
  ASSERT_OK(LITE_get_model_io_info_by_path(net_path(), *default_config(), &io));
  ASSERT_EQ(io.input_size, 2u);
  EXPECT_STREQ(io.inputs[0].name, "data");
  EXPECT_EQ(io.inputs[0].config_layout.shapes[3], 8u);
  EXPECT_STREQ(io.outputs[1].name, "prob");
  ASSERT_OK(LITE_get_model_io_info_by_path(net_path(), *default_config(), &io));
  EXPECT_THAT(failed(LITE_get_model_io_info_by_path("/nowhere", *default_config(), &io)), HasSubstr("cannot open"));
}

TEST(CApi, ErrorsBelongToTheirThread) {
  LITE_clear_last_error();
  std::thread([] {
    EXPECT_THAT(failed(LITE_forward(nullptr)), HasSubstr("null"));
    EXPECT_EQ(LITE_forward(nullptr), -1);
  }).join();
  EXPECT_STREQ(LITE_get_last_error(), "");
}

}  // namespace
