#include "core/mapped.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace mge {
namespace {

TEST(Mapped, PagesComeBackFromTheFile) {
  char name[] = "/tmp/mge_mapped_XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  unlink(name);
  const std::vector<char> data(1 << 16, 7);
  ASSERT_EQ(write(fd, data.data(), data.size()), static_cast<ssize_t>(data.size()));
  auto* p = static_cast<char*>(mmap(nullptr, data.size(), PROT_READ, MAP_PRIVATE, fd, 0));
  close(fd);
  EXPECT_FALSE(is_mapped(p, 1));
  note_mapped(p, data.size());
  EXPECT_TRUE(is_mapped(p, data.size()));
  EXPECT_TRUE(is_mapped(p + 100, data.size() - 100));
  EXPECT_FALSE(is_mapped(p + 100, data.size()));
  EXPECT_FALSE(is_mapped(p - 1, 1));
  drop_mapped(p + 10, data.size() - 10);
  for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(p[i], 7);
  forget_mapped(p);
  EXPECT_FALSE(is_mapped(p, 1));
  munmap(p, data.size());
}

}  // namespace
}  // namespace mge
