// Hostile models whose checksums are right, through the whole of Lite: load, compile, run. Any error is fine, a crash
// is not. MGE_FUZZ_ROUNDS and MGE_FUZZ_SEED make it longer and different.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "core/pool.h"
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

  static bool try_model(std::vector<uint8_t>& bytes) {
    try {
      Network net;
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

TEST_F(Fuzz, ManyOps) { fuzz(test::model_of(kText)); }

TEST_F(Fuzz, SmallNetwork) {
  std::ifstream f(test::net_path(), std::ios::binary);
  fuzz({std::istreambuf_iterator<char>(f), {}});
}

}  // namespace
}  // namespace lite
