#include "base/cpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/cost.h"
#include "base/error.h"

namespace mge {
namespace {

namespace fs = std::filesystem;

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  int cpus_of(const std::string& membership) { return cgroup_cpus(root_, membership); }
  fs::path root_ = fs::path(testing::TempDir()) / ("cgroup" + std::to_string(getpid()));
};

TEST_F(CgroupTest, VersionTwo) {
  file("a/b/cpu.max", "150000 100000");
  EXPECT_EQ(cpus_of("0::/a/b\n"), 2);  // part of a core is a core
  EXPECT_EQ(cpus_of("0::/a\n"), 0);
  EXPECT_EQ(cpus_of("0::/\n"), 0);
  file("a/b/cpu.max", "max 100000");
  EXPECT_EQ(cpus_of("0::/a/b\n"), 0);
  file("a/cpu.max", "300000 100000");
  EXPECT_EQ(cpus_of("0::/a/b\n"), 3);  // what is above bounds too
  file("a/b/cpu.max", "50000 100000");
  EXPECT_EQ(cpus_of("0::/a/b\n"), 1);
}

TEST_F(CgroupTest, VersionTwoInAContainerThatSeesOnlyItsOwn) {
  file("cpu.max", "400000 100000");
  EXPECT_EQ(cpus_of("0::/\n"), 4);
  EXPECT_EQ(cpus_of("0::/the/host/has/this\n"), 4);
}

TEST_F(CgroupTest, VersionOne) {
  const std::string lines = "12:memory:/m\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/s\n";
  EXPECT_EQ(cpus_of(lines), 0);
  file("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1");
  file("cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpus_of(lines), 0);
  file("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "600000");
  EXPECT_EQ(cpus_of(lines), 6);
  file("cpu/cpu.cfs_quota_us", "200000");
  file("cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpus_of(lines), 2);
}

TEST_F(CgroupTest, Nonsense) {
  EXPECT_EQ(cpus_of(""), 0);
  EXPECT_EQ(cpus_of("what is this\n::\n0:"), 0);
  file("cpu.max", "lots");
  EXPECT_EQ(cpus_of("0::/\n"), 0);
  file("cpu.max", "0 0");
  EXPECT_EQ(cpus_of("0::/\n"), 0);
}

TEST(Cpus, AtLeastOne) {
  EXPECT_GE(cpus().count, 1);
  EXPECT_NE(std::string(cpus().from), "");
}

TEST(DefaultThreads, VariablesThenCores) {
  const CpuLimit six{6, "CPU affinity"};
  auto expect = [&](const char* mge, const char* omp, int count, const std::string& from) {
    const ThreadDefault d = default_threads(mge, omp, six);
    EXPECT_EQ(d.count, count);
    EXPECT_EQ(d.from, from);
    EXPECT_EQ(d.warning, "");
  };
  expect(nullptr, nullptr, 6, "CPU affinity");
  expect("", "", 6, "CPU affinity");
  expect(nullptr, "3", 3, "OMP_NUM_THREADS");
  expect(nullptr, " 4 , 2", 4, "OMP_NUM_THREADS");
  expect("2", "3", 2, "MGE_NUM_THREADS");
  expect("256", nullptr, 256, "MGE_NUM_THREADS");
  EXPECT_EQ(default_threads(nullptr, nullptr, {1000, "cores of the machine"}).count, 256);
}

TEST(DefaultThreads, BadValuesAreNamed) {
  const CpuLimit six{6, "CPU affinity"};
  for (const char* bad : {"0", "-1", "257", "two", "2x", "1.5", "1e3"}) {
    for (const char* omp : {static_cast<const char*>(nullptr), "3"}) {
      try {
        default_threads(bad, omp, six);
        ADD_FAILURE() << bad;
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Value);
        EXPECT_EQ(e.text(), "MGE_NUM_THREADS: the number of threads must be 1..256; got '" + std::string(bad) +
                                "'. Unset it or mend it.");
      }
    }
    const ThreadDefault d = default_threads(nullptr, bad, six);
    EXPECT_EQ(d.count, 6);
    EXPECT_EQ(d.warning,
              "OMP_NUM_THREADS: the number of threads must be 1..256; got '" + std::string(bad) + "'. It is not used.");
  }
}

TEST(Cost, PiecesAreOfOneSizeInTime) {
  const Costs before = costs();
  set_costs({.piece = 1000});
  EXPECT_EQ(grain_of(1), 1000);
  EXPECT_EQ(grain_of(400), 2);
  EXPECT_EQ(grain_of(1e9), 1);
  EXPECT_GE(grain_of(0), 1);
  set_costs({.piece = 0});
  EXPECT_EQ(grain_of(1e-9), 1);
  set_costs(before);
}

TEST(Cost, Text) {
  const Costs c = parse_costs("piece=500,fma=0.5");
  EXPECT_EQ(c.piece, 500);
  EXPECT_EQ(c.fma, 0.5);
  EXPECT_EQ(c.value, Costs{}.value);
  for (const char* bad : {"piece", "piece=", "piece=x", "piece=-1", "size=3", "fma=1 2"}) try {
      parse_costs(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.text(),
                "MGE_COSTS: expected piece, fma, value, byte or step = nanoseconds, separated by commas; got '" +
                    std::string(bad) + "'.");
    }
}

}  // namespace
}  // namespace mge
