#include "core/device.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "core/backend.h"

namespace mge {
namespace {

struct Parsed {
  std::string_view type;
  bool any = false;  // index given as x
  int index = 0, stream = 0;
};

bool parse_number(std::string_view s, int* out) {
  if (s.empty() || s.size() > 9) return false;
  int v = 0;
  for (char c : s) {
    if (c < '0' || c > '9') return false;
    v = v * 10 + (c - '0');
  }
  *out = v;
  return true;
}

bool parse(std::string_view name, Parsed* p) {
  for (std::string_view type : {"cpu", "xpu", "gpu", "rocm", "multithread", "cambricon", "atlas", "fake"}) {
    if (type == "fake" && !Backend::has(DeviceKind::Fake)) continue;
    if (name.substr(0, type.size()) != type) continue;
    p->type = type;
    std::string_view rest = name.substr(type.size());
    size_t colon = rest.find(':');
    std::string_view index = rest.substr(0, colon);
    if (colon != std::string_view::npos && !parse_number(rest.substr(colon + 1), &p->stream)) return false;
    if (index == "x") {
      p->any = true;
      return true;
    }
    return parse_number(index, &p->index);
  }
  return false;
}

struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<CompNode>> nodes;
  std::string default_name = "xpux";
  std::atomic<const CompNode*> default_node{nullptr};  // read on every op
};
Table& table() {
  static Table* t = new Table;  // comp nodes live as long as the process: tensors may outlive static destruction
  return *t;
}

std::unique_ptr<CompNode> make(std::string_view name) {
  Parsed p;
  std::string_view body = name;
  if (body == "xpu" || body == "cpu" || body == "gpu") {
    p.type = body;
    p.any = true;
  } else if (body == "cpu:default" || body == "cpu:0") {
    p.type = "cpu";
  } else if (constexpr std::string_view kPool = "multithread:default:";
             body.substr(0, kPool.size()) == kPool && parse_number(body.substr(kPool.size()), &p.index)) {
    p.type = "multithread";
  } else {
    MGE_CHECK(parse(body, &p), Value,
              "device: '{}' is not a device name. Use cpu0, cpu0:1, gpu0, xpux or multithread4:0.", name);
  }
  auto node = std::make_unique<CompNode>();
  std::string index = p.any ? "x" : std::to_string(p.index);
  node->logical = std::string(p.type) + index + ":" + std::to_string(p.stream);
  node->type = p.type == "xpu" ? "cpu" : std::string(p.type);
  node->index = p.any ? 0 : p.index;
  node->stream = p.stream;
  bool threaded = node->type == "multithread", fake = node->type == "fake", gpu = node->type == "gpu";
  MGE_CHECK(node->type == "cpu" || threaded || fake || gpu, Value,
            "device: '{}' names a {} device, and this build has none. Devices here: cpu0.", name, node->type);
  int device = threaded ? node->stream : node->index;
  MGE_CHECK(!gpu || Backend::has(DeviceKind::Cuda), Value,
            "device: '{}' names a gpu device, and there is none: {}. Devices here: cpu0.", name,
            Backend::missing(DeviceKind::Cuda));
  MGE_CHECK(!gpu || device < Backend::of(DeviceKind::Cuda).count(), Value,
            "device: '{}' names gpu device {}; the highest is {}.", name, device,
            Backend::of(DeviceKind::Cuda).count() - 1);
  MGE_CHECK(device < kMaxDevices, Value, "device: '{}' is device {}; the highest is {}.", name, device,
            kMaxDevices - 1);
  MGE_CHECK(!threaded || (!p.any && node->index >= 1 && node->index <= 256), Value,
            "device: '{}' must name 1..256 threads, as multithread4:0 does.", name);
  node->physical = node->type + std::to_string(node->index) + ":" + std::to_string(node->stream);
  const DeviceKind kind = fake ? DeviceKind::Fake : gpu ? DeviceKind::Cuda : DeviceKind::Cpu;
  node->device = {kind, static_cast<int16_t>(device)};
  node->threads = threaded ? node->index : 0;
  node->queue = Backend::of(node->device.kind).stream(node->device, node->stream);
  return node;
}

}  // namespace

namespace {

const CompNode* intern(Table& t, std::string_view name) {  // under the lock
  auto it = t.nodes.find(std::string(name));
  if (it != t.nodes.end()) return it->second.get();
  auto node = make(name);
  std::string logical = node->logical;
  if (logical != name) {  // one object per logical name, however it was spelled
    auto& canonical = t.nodes[logical];
    if (!canonical) canonical = std::move(node);
    return canonical.get();
  }
  return (t.nodes[logical] = std::move(node)).get();
}

}  // namespace

const CompNode* CompNode::get(std::string_view name) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  return intern(t, name);
}

bool CompNode::is_valid_name(std::string_view name) {
  Parsed p;
  return parse(name, &p);
}

const CompNode* CompNode::default_node() {
  Table& t = table();
  if (auto* node = t.default_node.load(std::memory_order_acquire)) return node;
  std::lock_guard<std::mutex> lock(t.mutex);
  const CompNode* node = intern(t, t.default_name);
  t.default_node.store(node, std::memory_order_release);
  return node;
}

void CompNode::set_default(std::string_view name) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  const CompNode* node = intern(t, name);
  t.default_name = std::string(name);
  t.default_node.store(node, std::memory_order_release);
}

std::string CompNode::default_name() {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  return t.default_name;
}

std::vector<Stream*> CompNode::queues() {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  std::vector<Stream*> all;
  for (auto& [name, node] : t.nodes)
    if (node->queue && std::find(all.begin(), all.end(), node->queue) == all.end()) all.push_back(node->queue);
  return all;
}

int device_count(std::string_view type) {
  if (type == "gpu") return Backend::has(DeviceKind::Cuda) ? Backend::of(DeviceKind::Cuda).count() : 0;
  if (type != "cpu" && type != "xpu") return 0;
  return Backend::of(DeviceKind::Cpu).count();
}

std::string Device::name() const {
  static constexpr const char* kNames[] = {"cpu", "gpu", "fake"};
  return kNames[static_cast<int>(kind)] + std::to_string(index);
}

}  // namespace mge
