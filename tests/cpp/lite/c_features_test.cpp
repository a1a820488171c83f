// Decryption, packs, allocators, fast-run and discrete inputs through the C API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"
#include "serial/packed.h"

namespace {

using testing::HasSubstr;

#define ASSERT_OK(call) ASSERT_EQ((call), 0) << LITE_get_last_error()

const char* net_path() { return MGE_TEST_DATA "/lite/net_v1.mge"; }
std::vector<uint8_t> file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}
std::string failed(int rc) {
  EXPECT_EQ(rc, -1);
  return LITE_get_last_error();
}

struct Net {
  explicit Net(LiteConfig c = *default_config()) { EXPECT_EQ(LITE_make_network_config(&handle, c), 0); }
  ~Net() { EXPECT_EQ(LITE_destroy_network(handle), 0); }
  operator LiteNetwork() const { return handle; }
  LiteNetwork handle = nullptr;
};

size_t xor_with_key(const void* in, size_t n, const uint8_t* key, size_t key_size, const void* out) {
  if (key_size != 1) return 0;
  auto* to = static_cast<uint8_t*>(const_cast<void*>(out));
  for (size_t i = 0; to && i < n; ++i) to[i] = static_cast<const uint8_t*>(in)[i] ^ key[0];
  return n;
}
size_t too_much(const void*, size_t, const uint8_t*, size_t, const void*) { return SIZE_MAX; }

TEST(CDecryption, OfTheLibraryAndOfTheProgram) {
  LiteConfig c = *default_config();
  c.bare_model_cryption_name = "RC4_default";
  {
    Net net(c);
    ASSERT_OK(LITE_load_model_from_path(net, MGE_TEST_DATA "/lite/original/mlp.rc4.lite"));
    ASSERT_OK(LITE_forward(net));
    ASSERT_OK(LITE_wait(net));
  }
  const uint8_t key[] = {0x5a}, other[] = {1, 2};
  ASSERT_OK(LITE_register_decryption_and_key("c_xor", xor_with_key, key, 1));
  std::vector<uint8_t> secret = file(net_path());
  for (auto& b : secret) b ^= key[0];
  c.bare_model_cryption_name = "c_xor";
  {
    Net net(c);
    ASSERT_OK(LITE_load_model_from_mem(net, secret.data(), secret.size()));
    LiteNetworkIO io;
    ASSERT_OK(LITE_get_model_io_info_by_memory(secret.data(), secret.size(), c, &io));
    EXPECT_EQ(io.input_size, 2u);
  }
  ASSERT_OK(LITE_update_decryption_or_key("c_xor", nullptr, other, 2));
  Net net(c);
  EXPECT_THAT(failed(LITE_load_model_from_mem(net, secret.data(), secret.size())), HasSubstr("c_xor gave nothing"));
  ASSERT_OK(LITE_update_decryption_or_key("c_xor", too_much, nullptr, 0));
  EXPECT_THAT(failed(LITE_load_model_from_mem(net, secret.data(), secret.size())), HasSubstr("bytes come out of"));
  EXPECT_THAT(failed(LITE_register_decryption_and_key("c_xor", xor_with_key, key, 1)), HasSubstr("registered already"));
  EXPECT_THAT(failed(LITE_register_decryption_and_key(nullptr, xor_with_key, key, 1)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_register_decryption_and_key("c_y", nullptr, key, 1)), HasSubstr("'c_y' is empty"));
  EXPECT_THAT(failed(LITE_register_decryption_and_key("c_y", xor_with_key, nullptr, 1)),
              HasSubstr("null pointer of 1"));
  EXPECT_THAT(failed(LITE_update_decryption_or_key("c_none", nullptr, key, 1)), HasSubstr("no decryption method"));
}

int parse(const void*, size_t size, const char* name, LiteConfig* config, LiteNetworkIO* io, int* device_id,
          size_t* threads, int* inplace, int* tensorrt) {
  if (size != 3) return 7;
  EXPECT_STREQ(name, "c_model");
  EXPECT_EQ(io->input_size, 0u);
  config->options.graph_opt_level = 1;
  *device_id = 3;
  *threads = 2;
  *inplace = 1;
  *tensorrt = 0;
  static LiteIO output;
  output = default_io;
  output.name = "prob";
  output.io_type = LITE_IO_SHAPE;
  io->outputs = &output;
  io->output_size = 1;
  return 0;
}

TEST(CPack, AParserOfTheProgram) {
  ASSERT_OK(LITE_register_parse_info_func("c_parser", parse));
  EXPECT_THAT(failed(LITE_register_parse_info_func("c_parser", parse)), HasSubstr("registered already"));
  EXPECT_THAT(failed(LITE_register_parse_info_func("c_p", nullptr)), HasSubstr("'c_p' is a null pointer"));
  mge::serial::PackedModel p;
  p.name = "c_model";
  p.info = {1, 2, 3};
  p.info_parser = "c_parser";
  p.model = file(net_path());
  std::vector<uint8_t> bytes = mge::serial::pack(p);
  Net net;
  ASSERT_OK(LITE_load_model_from_mem(net, bytes.data(), bytes.size()));
  int id, inplace;
  size_t threads;
  ASSERT_OK(LITE_get_device_id(net, &id));
  ASSERT_OK(LITE_get_cpu_threads_number(net, &threads));
  ASSERT_OK(LITE_is_cpu_inplace_mode(net, &inplace));
  EXPECT_EQ(id, 3);
  EXPECT_EQ(threads, 2u);
  EXPECT_EQ(inplace, 1);
  p.info = {1};
  bytes = mge::serial::pack(p);
  Net other;
  EXPECT_THAT(failed(LITE_load_model_from_mem(other, bytes.data(), bytes.size())), HasSubstr("returned 7"));
  Net plain;
  ASSERT_OK(LITE_extra_configure(plain, {1}));
  p.info = {1, 2, 3};
  bytes = mge::serial::pack(p);
  ASSERT_OK(LITE_load_model_from_mem(plain, bytes.data(), bytes.size()));
  ASSERT_OK(LITE_get_cpu_threads_number(plain, &threads));
  EXPECT_EQ(threads, 1u);
}

std::atomic<int> g_taken, g_given;
void* take(LiteDeviceType, int, size_t size, size_t align) {
  ++g_taken;
  return aligned_alloc(align, (size + align - 1) / align * align);
}
void give(LiteDeviceType, int, void* p) {
  ++g_given;
  free(p);
}

TEST(CMemory, AllocatorAndSharing) {
  LiteNetwork net, other;
  ASSERT_OK(LITE_make_default_network(&net));
  ASSERT_OK(LITE_set_memory_allocator(net, take, give));
  EXPECT_THAT(failed(LITE_set_memory_allocator(net, nullptr, give)), HasSubstr("allocate_fun is a null pointer"));
  ASSERT_OK(LITE_load_model_from_path(net, net_path()));
  ASSERT_OK(LITE_make_default_network(&other));
  ASSERT_OK(LITE_share_runtime_memroy(other, net));
  ASSERT_OK(LITE_load_model_from_path(other, net_path()));
  for (LiteNetwork n : {net, other}) {
    ASSERT_OK(LITE_forward(n));
    ASSERT_OK(LITE_wait(n));
  }
  EXPECT_GT(g_taken, 0);
  ASSERT_OK(LITE_destroy_network(net));
  ASSERT_OK(LITE_destroy_network(other));
  EXPECT_EQ(g_taken, g_given);
}

TEST(CNetworkFeatures, DiscreteInputs) {
  LiteConfig c = *default_config();
  c.discrete_input_name = "data";
  Net net(c);
  ASSERT_OK(LITE_load_model_from_path(net, net_path()));
  std::vector<float> pixels(128);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i % 9);
  LiteTensor t;
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_OK(LITE_get_discrete_tensor(net, "data", i, LITE_INPUT, &t));
    ASSERT_OK(LITE_reset_tensor_memory(t, pixels.data() + 64 * i, 256));
  }
  EXPECT_THAT(failed(LITE_get_discrete_tensor(net, "data", 2, LITE_INPUT, &t)), HasSubstr("tensor 2 of the discrete"));
  EXPECT_THAT(failed(LITE_get_discrete_tensor(net, "bias", 0, LITE_INPUT, &t)), HasSubstr("no discrete input"));
  EXPECT_THAT(failed(LITE_get_io_tensor(net, "data", LITE_INPUT, &t)), HasSubstr("Use get_discrete_tensors"));
  Net plain;
  ASSERT_OK(LITE_load_model_from_path(plain, net_path()));
  ASSERT_OK(LITE_get_io_tensor(plain, "data", LITE_INPUT, &t));
  ASSERT_OK(LITE_reset_tensor_memory(t, pixels.data(), 512));
  void* y[2];
  LiteNetwork nets[] = {net, plain};
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(LITE_forward(nets[i]));
    ASSERT_OK(LITE_wait(nets[i]));
    ASSERT_OK(LITE_get_io_tensor(nets[i], "logits", LITE_OUTPUT, &t));
    ASSERT_OK(LITE_get_tensor_memory(t, &y[i]));
  }
  EXPECT_EQ(std::memcmp(y[0], y[1], 40), 0);
}

TEST(CNetworkFeatures, FastRunItsCacheAndTheLayoutDump) {
  const std::string path = testing::TempDir() + "lite_c_" + std::to_string(::getpid());
  ASSERT_OK(LITE_set_persistent_cache((path + ".cache").c_str(), 1));
  Net net;
  ASSERT_OK(LITE_set_network_algo_policy(net, LITE_ALGO_PROFILE));
  ASSERT_OK(LITE_set_network_algo_fastrun_config(net, 2, 0));
  ASSERT_OK(LITE_enable_global_layout_transform(net));
  ASSERT_OK(LITE_load_model_from_path(net, net_path()));
  ASSERT_OK(LITE_set_network_algo_workspace_limit(net, 1 << 20));
  ASSERT_OK(LITE_forward(net));
  ASSERT_OK(LITE_wait(net));
  ASSERT_OK(LITE_dump_persistent_cache((path + ".dump").c_str()));
  EXPECT_GT(file(path + ".dump").size(), 4u);
  ASSERT_OK(LITE_dump_layout_transform_model(net, (path + ".mge").c_str()));
  Net again;
  ASSERT_OK(LITE_load_model_from_path(again, (path + ".mge").c_str()));
  for (const char* end : {".cache", ".dump", ".mge"}) std::remove((path + end).c_str());
  EXPECT_THAT(failed(LITE_use_tensorrt(net)), HasSubstr("TensorRT needs a GPU"));
  EXPECT_THAT(failed(LITE_set_tensor_rt_cache("x")), HasSubstr("TensorRT needs a GPU"));
  EXPECT_THAT(failed(LITE_dump_tensor_rt_cache()), HasSubstr("TensorRT needs a GPU"));
  EXPECT_THAT(failed(LITE_set_persistent_cache(nullptr, 0)), HasSubstr("null pointer"));
  EXPECT_THAT(failed(LITE_set_persistent_cache("/nowhere/x", 1)), HasSubstr("/nowhere"));
}

TEST(CMistakes, NumbersThatAreNoEnums) {
  size_t n;
  LiteTensor t;
  EXPECT_THAT(failed(LITE_get_device_count(static_cast<LiteDeviceType>(99), &n)), HasSubstr("99 is no LiteDeviceType"));
  Net net;
  EXPECT_THAT(failed(LITE_set_network_algo_policy(net, static_cast<LiteAlgoSelectStrategy>(-1))), HasSubstr("is no"));
  ASSERT_OK(LITE_load_model_from_path(net, net_path()));
  EXPECT_THAT(failed(LITE_get_io_tensor(net, "data", static_cast<LiteTensorPhase>(9), &t)),
              HasSubstr("9 is no LiteTensorPhase"));
  LiteIO io = default_io;
  io.name = "data";
  io.io_type = static_cast<LiteIOType>(5);
  LiteNetwork other;
  ASSERT_OK(LITE_make_network(&other, *default_config(), {&io, nullptr, 1, 0}));
  EXPECT_THAT(failed(LITE_load_model_from_path(other, net_path())), HasSubstr("io_type of 'data' is 5"));
  ASSERT_OK(LITE_destroy_network(other));
  LiteConfig c = *default_config();
  c.options.graph_opt_level = 258;  // would be 2 in the field of C++
  EXPECT_THAT(failed(LITE_make_network_config(&other, c)), HasSubstr("graph_opt_level is a small number; got 258"));
  c = *default_config();
  c.device_type = static_cast<LiteDeviceType>(77);
  ASSERT_OK(LITE_make_network_config(&other, c));
  EXPECT_THAT(failed(LITE_load_model_from_path(other, net_path())), HasSubstr("device type 77"));
  ASSERT_OK(LITE_destroy_network(other));
}

}  // namespace
