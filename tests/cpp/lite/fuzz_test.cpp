// Hostile models whose checksums are right, through the whole of Lite: load, compile, run. Any error is fine, a crash
// is not. MGE_FUZZ_ROUNDS and MGE_FUZZ_SEED make it longer and different.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>

#include "core/pool.h"
#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"
#include "models.h"
#include "serial/container.h"
#include "serial/xxh64.h"

namespace lite {
namespace {

using namespace mge::serial;

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

void reseal(std::vector<uint8_t>& b) {
  Header h;
  std::memcpy(&h, b.data(), sizeof h);
  auto* table = reinterpret_cast<Section*>(b.data() + sizeof h);
  for (uint32_t i = 0; i < h.n_sections; ++i) table[i].checksum = xxh64({b.data() + table[i].offset, table[i].size});
  Xxh64 sum;
  sum.update({b.data(), offsetof(Header, checksum)});
  sum.update({b.data() + sizeof h, h.n_sections * sizeof(Section)});
  h.checksum = sum.digest();
  std::memcpy(b.data(), &h, sizeof h);
}

// Many ops with many kinds of attributes, so that changed numbers reach their inference and their kernels.
constexpr const char* kText = R"(
graph g(%x: f32[2,3,6,6], %i: i32[4]) {
  const %w: f32[2,3,2,2] = 0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f
  const %c: f32[2] = 0000803f00000040
  %0 = conv2d %x, %w {stride=[2,1], pad=[1,0], dilate=[1,2]}
  %1 = avg_pool2d %0 {kernel=[2,2], stride=[1,1], pad=[1,1]}
  %2 = max_pool2d %x {kernel=[3,3], stride=[2,2], pad=[1,1]}
  %3 = reshape %2 {shape=[2,3,-1]}
  %4 = transpose %3 {perm=[0,2,1]}
  %5 = slice %4 {axes=[1,2], starts=[1,2], stops=[8,-1], steps=[3,-1]}
  %6 = broadcast_to %c {shape=[3,2]}
  %7 = concat %6, %6 {axis=1}
  %8 = softmax %7 {axis=1}
  %9 = expand_dims %8 {axes=[0,3]}
  %10 = squeeze %9 {axes=[0]}
  %11 = full {shape=[2,2], value=3.0}
  %12 = matmul %11, %11 {ta=true}
  %13 = mul %12, %c
  %14 = relu %13
  %15, %16, %17 = layer_norm %14
} returns(%1, %5, %10, %14)
)";

class Fuzz : public testing::Test {
 protected:
  // A hostile shape must meet a limit, not swallow the machine.
  void SetUp() override { mge::Pool::of({}).set_limit(mge::Pool::of({}).stats().allocated + (64 << 20)); }
  void TearDown() override { mge::Pool::of({}).set_limit(0); }

  static bool try_model(std::vector<uint8_t>& bytes, const Config& config = {}) {
    try {
      Network net(config);
      net.load_model(bytes.data(), bytes.size());
      for (size_t i = 0; i < net.get_all_input_name().size(); ++i) net.get_input_tensor(i)->fill_zero();
      net.forward();
      net.wait();
      return true;
    } catch (const Error& e) {
      EXPECT_STRNE(e.what(), "");
      return false;
    }
  }

  static void fuzz(const std::vector<uint8_t>& model) {
    std::mt19937 rng(static_cast<unsigned>(number("MGE_FUZZ_SEED", 11)));
    Section graph = open_container(model, "fuzz")[0];
    int accepted = 0, rounds = number("MGE_FUZZ_ROUNDS", 1500);
    for (int i = 0; i < rounds; ++i) {
      std::vector<uint8_t> b = model;
      for (unsigned edits = 1 + rng() % 3; edits > 0; --edits) {
        size_t at = graph.offset + rng() % graph.size;
        switch (rng() % 4) {
          case 0:
            b[at] ^= 1 << (rng() % 8);
            break;
          case 1:
            b[at] = static_cast<uint8_t>(rng());
            break;
          case 2:
            b[at] = static_cast<uint8_t>(rng() % 8);
            break;
          default: {  // numbers in attributes and shapes are 8-byte words
            static const int64_t words[] = {0, -1, 1, 2, 1 << 20, INT64_MAX, INT64_MIN, -2, 1ll << 32};
            at = graph.offset + (at - graph.offset) / 8 * 8;
            if (at + 8 <= graph.offset + graph.size) std::memcpy(b.data() + at, &words[rng() % 9], 8);
          }
        }
      }
      reseal(b);
      accepted += try_model(b);
    }
    EXPECT_GT(accepted, rounds / 50);
  }
};

// Bytes of any kind changed anywhere: files of the original, packs, encrypted models, caches.
class FuzzFiles : public Fuzz {
 protected:
  static void fuzz_bytes(const std::string& name, const Config& config, int rounds) {
    std::ifstream f(MGE_TEST_DATA + name, std::ios::binary);
    const std::vector<uint8_t> model{std::istreambuf_iterator<char>(f), {}};
    ASSERT_FALSE(model.empty()) << name;
    std::mt19937 rng(static_cast<unsigned>(number("MGE_FUZZ_SEED", 11)));
    for (int i = 0; i < rounds; ++i) {
      std::vector<uint8_t> b = model;
      if (rng() % 8 == 0) b.resize(rng() % b.size());
      for (unsigned edits = 1 + rng() % 4; edits > 0 && !b.empty(); --edits) {
        const size_t at = rng() % b.size();
        static const uint32_t words[] = {0, 1, 2, 0xffffffff, 0x7fffffff, 0x80000000, 1 << 20, 0xfffffffc};
        if (rng() % 2)
          b[at] = static_cast<uint8_t>(rng());
        else if (at + 4 <= b.size())
          std::memcpy(b.data() + at / 4 * 4, &words[rng() % 8], std::min<size_t>(4, b.size() - at / 4 * 4));
      }
      try_model(b, config);
    }
  }
};

TEST_F(FuzzFiles, OfTheOriginal) {
  const int rounds = number("MGE_FUZZ_ROUNDS", 1500) / 15;
  for (const char* name : {"mlp.v1", "mlp.v1test", "dynamic_reshape.v2", "dynamic_select.v1", "conv8.v2ohwcd4"})
    fuzz_bytes(std::string("/original/") + name + ".mge", {}, rounds);
}

TEST_F(FuzzFiles, PackedAndEncrypted) {
  const int rounds = number("MGE_FUZZ_ROUNDS", 1500) / 15;
  for (const char* name : {"mlp.packed", "mlp.packed_mixed", "lenet.packed_cache"})
    fuzz_bytes(std::string("/lite/original/") + name + ".lite", {}, rounds);
  Config c;
  c.bare_model_cryption_name = "AES_default";
  fuzz_bytes("/lite/original/mlp.aes.lite", c, rounds);
  c.bare_model_cryption_name = "RC4_default";
  fuzz_bytes("/lite/original/mlp.rc4.lite", c, rounds / 4);
}

// Calls of the C API in any order with anything: right and wrong handles, names, sizes and numbers.
TEST_F(Fuzz, CallsInC) {
  std::mt19937 rng(static_cast<unsigned>(number("MGE_FUZZ_SEED", 11)));
  std::vector<void*> handles = {nullptr, reinterpret_cast<void*>(16), &rng};  // NOLINT: an invented one
  static std::vector<char> memory(1 << 16);  // a network that was let go of may still be running
  int worked = 0;
  auto any = [&] { return handles[rng() % handles.size()]; };
  auto size = [&]() -> size_t {
    static const size_t some[] = {0, 1, 2, 3, 7, 8, 64, 512, 4096, SIZE_MAX, size_t{1} << 40};
    return some[rng() % 11];
  };
  auto text = [&] {
    static const char* const some[] = {nullptr, "", "data", "bias", "prob", "logits", "nope"};
    return some[rng() % 7];
  };
  auto layout = [&] {
    LiteLayout l = default_layout;
    l.ndim = rng() % 10;
    for (auto& d : l.shapes) d = size();
    l.data_type = static_cast<LiteDataType>(static_cast<int>(rng() % 12) - 1);
    return l;
  };
  auto number_of = [&] { return static_cast<int>(rng() % 12) - 2; };
  void* made = nullptr;
  void* out = nullptr;
  const char* name = nullptr;
  size_t n = 0;
  int v = 0;
  const std::function<int()> calls[] = {
      [&] {
        LiteConfig c = *default_config();
        if (rng() % 4 == 0) c.options.comp_node_seq_record_level = number_of();
        if (rng() % 4 == 0) c.options.graph_opt_level = number_of();
        if (rng() % 8 == 0) c.options.jit_level = number_of();
        if (rng() % 8 == 0) c.options.force_dynamic_alloc = 1;
        if (rng() % 8 == 0) c.options.const_shape = 1;
        if (rng() % 8 == 0) c.options.async_exec_level = number_of();
        if (rng() % 8 == 0) c.discrete_input_name = text();
        if (rng() % 8 == 0) c.device_type = static_cast<LiteDeviceType>(number_of());
        const int rc = LITE_make_network_config(&made, c);
        if (rc == 0) LITE_load_model_from_path(made, MGE_TEST_DATA "/lite/net_v1.mge");
        return rc;
      },
      [&] { return LITE_destroy_network(any()); },
      [&] { return LITE_destroy_tensor(any()); },
      [&] {
        return LITE_make_tensor({number_of(), layout(), static_cast<LiteDeviceType>(number_of()), 0}, &made);
      },
      [&] { return LITE_get_io_tensor(any(), text(), static_cast<LiteTensorPhase>(number_of()), &made); },
      [&] { return LITE_get_discrete_tensor(any(), text(), size(), static_cast<LiteTensorPhase>(1), &made); },
      [&] { return LITE_forward(any()); },
      [&] { return LITE_wait(any()); },
      [&] { return LITE_set_tensor_layout(any(), layout()); },
      [&] {  // what is said to be there is there
        const size_t bytes = std::min(size(), memory.size());
        return LITE_reset_tensor_memory(any(), rng() % 8 ? memory.data() : nullptr, bytes);
      },
      [&] { return LITE_tensor_fill_zero(any()); },
      [&] { return LITE_tensor_copy(any(), any()); },
      [&] { return LITE_tensor_share_memory_with(any(), any()); },
      [&] {
        const size_t a[9] = {size(), size()}, b[9] = {size(), size()}, s[9] = {size(), size()};
        return LITE_tensor_slice(any(), a, b, rng() % 2 ? s : nullptr, rng() % 10, &made);
      },
      [&] {
        const int shape[9] = {number_of(), number_of(), number_of()};
        return LITE_tensor_reshape(any(), shape, static_cast<int>(rng() % 5) - 1);
      },
      [&] {
        void* list[2] = {any(), any()};
        return LITE_tensor_concat(list, 2, number_of(), LITE_DEVICE_DEFAULT, -1, &made);
      },
      [&] { return LITE_get_tensor_memory(any(), &out); },
      [&] {
        const size_t index[9] = {size(), size()};
        return LITE_get_tensor_memory_with_index(any(), index, rng() % 10, &out);
      },
      [&] { return LITE_get_tensor_total_size_in_byte(any(), &n); },
      [&] { return LITE_shared_weight_with_network(any(), any()); },
      [&] { return LITE_share_runtime_memroy(any(), any()); },
      [&] { return LITE_set_network_algo_policy(any(), static_cast<LiteAlgoSelectStrategy>(number_of())); },
      [&] { return LITE_set_cpu_threads_number(any(), rng() % 3); },
      [&] { return LITE_get_input_name(any(), size(), &name); },
      [&] { return LITE_is_memory_continue(any(), &v); },
      [&] { return LITE_set_network_algo_workspace_limit(any(), size()); },
      [&] { return LITE_get_all_output_name(any(), &n, nullptr); },
      [&] { return LITE_load_model_from_mem(any(), memory.data(), std::min(size(), memory.size())); },
      [&] { return LITE_enable_global_layout_transform(any()); },
      [&] { return LITE_extra_configure(any(), {number_of()}); },
  };
  const int rounds = number("MGE_FUZZ_ROUNDS", 1500) * 4;
  for (int i = 0; i < rounds; ++i) {
    made = nullptr;
    const int rc = calls[rng() % std::size(calls)]();
    if (made) handles.push_back(made);
    EXPECT_TRUE(rc == 0 || *LITE_get_last_error());
    worked += rc == 0;
    if (handles.size() > 40) {  // let go of some, as handles or only here
      if (rng() % 2) LITE_destroy_network(handles[20]), LITE_destroy_tensor(handles[20]);
      handles.erase(handles.begin() + 20);
    }
  }
  EXPECT_GT(worked, rounds / 50);
  for (void* h : handles) LITE_destroy_network(h), LITE_destroy_tensor(h);
}

TEST_F(Fuzz, ManyOps) { fuzz(test::model_of(kText)); }

TEST_F(Fuzz, SmallNetwork) {
  std::ifstream f(test::net_path(), std::ios::binary);
  fuzz({std::istreambuf_iterator<char>(f), {}});
}

}  // namespace
}  // namespace lite
