#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace mge {
namespace {

namespace fs = std::filesystem;

class Caches : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(root_); }
  void cache(int level, const char* type, const char* size) {
    const fs::path at = root_ / ("index" + std::to_string(next_++));
    fs::create_directories(at);
    std::ofstream(at / "level") << level << "\n";
    std::ofstream(at / "type") << type << "\n";
    std::ofstream(at / "size") << size << "\n";
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("caches" + std::to_string(getpid()));
  int next_ = 0;
};

TEST_F(Caches, AsTheSystemListsThem) {
  cache(1, "Data", "48K");
  cache(1, "Instruction", "64K");
  cache(2, "Unified", "2048K");
  cache(3, "Unified", "33M");
  const Machine m = read_caches(root_);
  EXPECT_EQ(m.l1, 48 << 10);
  EXPECT_EQ(m.l2, 2 << 20);
  EXPECT_EQ(m.l3, 33 << 20);
  EXPECT_EQ(m.gflops, Machine{}.gflops);
}

TEST_F(Caches, ALastOneThatIsHidden) {
  cache(1, "Data", "32K");
  cache(2, "Unified", "512K");
  EXPECT_EQ(read_caches(root_).l3, 2 << 20);
}

TEST_F(Caches, NoneOrNonsense) {
  EXPECT_EQ(read_caches(root_), Machine{});
  cache(1, "Data", "");
  cache(2, "Unified", "0K");
  EXPECT_EQ(read_caches(root_), Machine{});
}

TEST(Machine, IsReadOnceAndMakesSense) {
  EXPECT_EQ(&machine(), &machine());
  EXPECT_GE(machine().l1, 4096);
  EXPECT_GE(machine().l2, 4096);
  EXPECT_GE(machine().l3, 4096);
  EXPECT_GT(machine().gflops, 0);
  EXPECT_EQ(describe({.gflops = 80}), std::string("L1 32 KiB, L2 1024 KiB, L3 32768 KiB; ") + instruction_set() +
                                          ", 80 GFLOP/s and 6.25 GB/s of a core");
}

TEST(Machine, Text) {
  const Machine m = parse_machine("l2=2097152,gbytes=10.5");
  EXPECT_EQ(m.l2, 2 << 20);
  EXPECT_EQ(m.gbytes, 10.5);
  EXPECT_EQ(m.l1, Machine{}.l1);
  for (const char* bad : {"l2", "l2=", "l2=x", "l2=-1", "l2=100", "l2=5000.5", "gflops=0", "l4=8192", "l1=8192 1"})
    try {
      parse_machine(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.text(), std::string("MGE_MACHINE: expected l1, l2, l3 (bytes, at least 4096), gflops or gbytes (per "
                                      "second, of a core) = number, separated by commas; got '") +
                              bad + "'.");
    }
}

}  // namespace
}  // namespace mge
