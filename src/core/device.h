// Devices and comp nodes. A Device owns memory (who may share pointers); a CompNode is an ordered stream on a device,
// spelled "cpu0", "cpu0:1", "xpux", "gpu0:0", "multithread4:0". Comp nodes are interned: compare by pointer or
// same_device.
//   const CompNode* cn = CompNode::get("xpux");   cn->logical == "xpux:0", cn->physical == "cpu0:0"
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mge {

class Stream;

enum class DeviceKind : uint8_t { Cpu, Cuda, Fake };

constexpr int kDeviceKinds = 3;
constexpr int kMaxDevices = 256;  // of one kind

struct Device {
  DeviceKind kind = DeviceKind::Cpu;
  int16_t index = 0;
  bool operator==(const Device&) const = default;
  std::string name() const;  // "cpu0"
};

struct CompNode {
  std::string logical;        // as asked, stream always printed: "xpux:0"
  std::string physical;       // resolved: "cpu0:0"
  std::string type;           // physical type word: "cpu", "gpu", "multithread"
  int index = 0, stream = 0;  // of "multithread4:1": 4 threads, device 1
  Device device;
  int threads = 0;          // kernels use at most this many; 0: all there are
  Stream* queue = nullptr;  // where work is enqueued (core/backend.h); null: the calling thread does it

  /// Throws a Value error that says which forms are understood.
  static const CompNode* get(std::string_view name);
  /// True when `name` has the public form ([cxg]pu|rocm|multithread|cambricon|atlas)(x|N)[:stream].
  static bool is_valid_name(std::string_view name);
  static const CompNode* default_node();
  static void set_default(std::string_view name);
  /// The string given to set_default, not normalised.
  static std::string default_name();

  /// The streams of all comp nodes named so far.
  static std::vector<Stream*> queues();

  bool same_as(const CompNode& o) const { return this == &o || physical == o.physical; }
};

/// "cpu", "gpu", "xpu", …; 0 for a known kind with no hardware. Each core counts as a cpu device.
int device_count(std::string_view type);

}  // namespace mge
