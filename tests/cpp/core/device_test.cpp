// Device names of api/a §2.1.
#include "core/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "core/fake_device.h"

namespace mge {
namespace {

struct NameCase {
  const char *given, *logical, *physical, *type;
  int index, stream;
};

TEST(DeviceNames, LogicalKeepsXAndPrintsTheStream) {
  for (const NameCase& c : {
           NameCase{"cpu0", "cpu0:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"cpux", "cpux:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"xpux", "xpux:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"xpu0", "xpu0:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"xpux:2", "xpux:2", "cpu0:2", "cpu", 0, 2},
           NameCase{"cpu1:3", "cpu1:3", "cpu1:3", "cpu", 1, 3},
           NameCase{"multithread4", "multithread4:0", "multithread4:0", "multithread", 4, 0},
           NameCase{"multithread4:1", "multithread4:1", "multithread4:1", "multithread", 4, 1},
           // The lower-level parser takes these too.
           NameCase{"xpu", "xpux:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"cpu", "cpux:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"cpu:0", "cpu0:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"cpu:default", "cpu0:0", "cpu0:0", "cpu", 0, 0},
           NameCase{"multithread:default:3", "multithread3:0", "multithread3:0", "multithread", 3, 0},
       }) {
    const CompNode* n = CompNode::get(c.given);
    EXPECT_EQ(n->logical, c.logical) << c.given;
    EXPECT_EQ(n->physical, c.physical) << c.given;
    EXPECT_EQ(n->type, c.type) << c.given;
    EXPECT_EQ(n->index, c.index) << c.given;
    EXPECT_EQ(n->stream, c.stream) << c.given;
    EXPECT_EQ(n, CompNode::get(c.logical)) << "one object per logical name: " << c.given;
  }
}

TEST(DeviceNames, PublicFormIsTheRegexOfTheApi) {
  for (const char* good : {"cpu0", "xpux", "gpu7", "gpu0:1", "rocm0", "multithread4", "multithread4:12", "cambricon0",
                           "atlasx", "cpux:0", "cpu123456"})
    EXPECT_TRUE(CompNode::is_valid_name(good)) << good;
  for (const char* bad : {"", "cpu", "xpu", "cpu:0", "cpu:default", "cpu0:", "cpu0:x", "cpu0:1:2", "cpu-1", "Cpu0",
                          "cpu0 ", " cpu0", "tpu0", "cpuxx", "cpu0x", "multithread", "multithread:default:2"})
    EXPECT_FALSE(CompNode::is_valid_name(bad)) << bad;
}

TEST(DeviceNames, WrongNamesSayWhatIsUnderstood) {
  try {
    CompNode::get("tpu0");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    EXPECT_EQ(e.text(), "device: 'tpu0' is not a device name. Use cpu0, cpu0:1, gpu0, xpux or multithread4:0.");
  }
  try {
    CompNode::get("gpu0");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    EXPECT_EQ(e.text(),
              "device: 'gpu0' names a gpu device, and there is none: this build has none. Devices here: cpu0.");
  }
  for (const char* bad : {"", "cpu0:", "multithread:default:", "multithread:default:x", "cpu:default:1", ":", "x"})
    EXPECT_THROW(CompNode::get(bad), Error) << bad;
}

TEST(DeviceNames, SameDeviceUnderTwoNames) {
  EXPECT_TRUE(CompNode::get("xpux")->same_as(*CompNode::get("cpu0")));
  EXPECT_FALSE(CompNode::get("cpu0")->same_as(*CompNode::get("cpu0:1")));
  EXPECT_FALSE(CompNode::get("cpu0")->same_as(*CompNode::get("multithread2")));
  EXPECT_TRUE(CompNode::get("cpu0")->device == CompNode::get("multithread2:0")->device) << "they share pointers";
}

TEST(DeviceNames, EachIndexIsADeviceAndEachStreamACompNode) {
  EXPECT_EQ(CompNode::get("cpu3:2")->device.name(), "cpu3");
  EXPECT_FALSE(CompNode::get("cpu0")->device == CompNode::get("cpu1")->device);
  EXPECT_TRUE(CompNode::get("cpu1")->device == CompNode::get("cpu1:5")->device);
  EXPECT_EQ(CompNode::get("multithread4:1")->device.name(), "cpu1");
  EXPECT_EQ(CompNode::get("multithread4:1")->threads, 4);
  EXPECT_EQ(CompNode::get("cpu0")->threads, 0);
  for (const char* bad : {"cpu256", "multithread4:256", "multithread0", "multithread257", "multithreadx", "fake0"})
    EXPECT_THROW(CompNode::get(bad), Error) << bad;
}

TEST(DeviceNames, TheFakeDeviceIsThereWhenAskedFor) {
  EXPECT_FALSE(CompNode::is_valid_name("fake0"));
  enable_fake_devices();
  const CompNode* n = CompNode::get("fake1:2");
  EXPECT_EQ(n->physical, "fake1:2");
  EXPECT_TRUE(n->queue);
  EXPECT_EQ(n->device.name(), "fake1");
}

TEST(DeviceNames, DefaultIsKeptAsGiven) {
  EXPECT_EQ(CompNode::default_name(), "xpux");
  EXPECT_EQ(CompNode::default_node()->logical, "xpux:0");
  CompNode::set_default("cpu0:1");
  EXPECT_EQ(CompNode::default_name(), "cpu0:1");
  EXPECT_EQ(CompNode::default_node()->logical, "cpu0:1");
  EXPECT_THROW(CompNode::set_default("nowhere"), Error);
  EXPECT_EQ(CompNode::default_name(), "cpu0:1") << "a wrong name changes nothing";
  CompNode::set_default("xpux");
  EXPECT_EQ(CompNode::default_node(), CompNode::get("xpux"));
}

TEST(DeviceNames, Counts) {
  EXPECT_GE(device_count("cpu"), 1);
  EXPECT_EQ(device_count("xpu"), device_count("cpu"));
  EXPECT_EQ(device_count("gpu"), 0);
  EXPECT_EQ(device_count("rocm"), 0);
}

TEST(DeviceNames, ManyThreadsInternTheSameObjects) {
  std::vector<std::thread> threads;
  std::vector<const CompNode*> got(8);
  for (size_t t = 0; t < got.size(); ++t)
    threads.emplace_back([&got, t] {
      for (int i = 0; i < 200; ++i) {
        CompNode::get("multithread" + std::to_string(1 + i % 17));
        CompNode::default_node();
        CompNode::default_name();
      }
      got[t] = CompNode::get("cpu7:3");
    });
  for (auto& t : threads) t.join();
  for (auto* n : got) EXPECT_EQ(n, got[0]);
}

}  // namespace
}  // namespace mge
