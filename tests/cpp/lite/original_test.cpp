// How files of MegEngine are held in memory.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <new>

#include "lite/engine.h"
#include "serial/model.h"

namespace lite {
namespace {

using Span = std::span<const uint8_t>;

struct Block {
  explicit Block(size_t n) : base(::operator new(n, std::align_val_t(64))), size(n) {}
  ~Block() { ::operator delete(base, std::align_val_t(64)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  uint8_t* at() const { return static_cast<uint8_t*>(base); }
  bool holds(const void* p) const { return p >= at() && p < at() + size; }
  void* base;
  size_t size;
};

std::shared_ptr<Block> bytes_of(const char* name) {
  std::ifstream f(std::string(MGE_TEST_DATA "/original/") + name, std::ios::binary);
  const std::vector<char> all{std::istreambuf_iterator<char>(f), {}};
  auto out = std::make_shared<Block>(all.size());
  std::memcpy(out->at(), all.data(), all.size());
  return out;
}

/// Bytes of weights that are used in the file, and all of them.
std::pair<size_t, size_t> in_place(const mge::serial::LoadedModel& m, const Block& file) {
  std::pair<size_t, size_t> n{0, 0};
  for (auto& c : m.graph.constants()) {
    if (c.value == mge::ir::kNone) continue;
    const size_t bytes = m.graph.meta(c.value).bytes();
    if (file.holds(c.storage->ptr)) {
      n.first += bytes;
      EXPECT_FALSE(c.storage->writable);
    }
    n.second += bytes;
  }
  return n;
}

TEST(OriginalFile, LargeWeightsStayWhereTheyAre) {
  const auto file = bytes_of("lenet.v2.mge");
  const auto m = mge::serial::read_model(Span{file->at(), file->size}, file, "lenet", read_options());
  const auto [used, all] = in_place(m, *file);
  EXPECT_GT(used, all * 3 / 4);
}

TEST(OriginalFile, WithoutAnOwnerTheyAreCopied) {
  const auto file = bytes_of("lenet.v2.mge");
  EXPECT_EQ(in_place(mge::serial::read_model(Span{file->at(), file->size}, "lenet", read_options()), *file).first, 0u);
}

}  // namespace
}  // namespace lite
