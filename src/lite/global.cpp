#include "lite/global.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "base/features.h"
#include "core/pool.h"
#include "lite/algo_cache.h"
#include "lite/crypt/crypt.h"
#include "lite/error.h"
#include "lite/info.h"
#include "lite/log.h"
#include "megengine/version.h"
#include "op/custom/custom.h"

namespace lite {
namespace {

std::atomic<LiteLogLevel> g_level{ERROR};
[[noreturn]] void refuse(const char* what, const char* why) {
  guarded([&] { mge::fail(mge::ErrorKind::NotImplemented, "lite: {}: {}.", what, why); });
  __builtin_unreachable();
}
constexpr const char* kNoTensorRt = "TensorRT needs a GPU, and this library runs on the CPU";
constexpr const char* kNoPairs =
    "addresses of a program and of a device are the same on the CPU, which is all that this library runs on";

}  // namespace

void log(LiteLogLevel level, std::string_view text) {
  if (level >= g_level.load(std::memory_order_relaxed))
    std::fprintf(stderr, "[lite] %.*s\n", static_cast<int>(text.size()), text.data());
}

void get_version(int& major, int& minor, int& patch) {
  major = MGE_VERSION_MAJOR;
  minor = MGE_VERSION_MINOR;
  patch = MGE_VERSION_PATCH;
}
void set_log_level(LiteLogLevel level) {
  guarded([&] {
    MGE_CHECK(level >= DEBUG && level <= ERROR, Value, "lite: {} is no LiteLogLevel.", static_cast<int>(level));
    g_level = level;
  });
}
LiteLogLevel get_log_level() { return g_level; }

size_t get_device_count(LiteDeviceType type) {
  guarded([&] {
    const int n = static_cast<int>(type);
    MGE_CHECK(n >= LITE_CPU && n <= LITE_DEVICE_DEFAULT && n != 2 && n != 6, Value, "lite: {} is no LiteDeviceType.",
              n);
  });
  // As MegEngine counts: each core is a device id that a network may have.
  return type == LITE_CPU || type == LITE_DEVICE_DEFAULT ? std::max(1u, std::thread::hardware_concurrency()) : 0;
}
void try_coalesce_all_free_memory() {
  guarded([] { mge::Pool::of({}).trim(); });
}

bool register_decryption_and_key(std::string name, const DecryptionFunc& func, const std::vector<uint8_t>& key) {
  guarded([&] { add_decryption(name, func, key); });
  return true;
}
bool update_decryption_or_key(std::string name, const DecryptionFunc& func, const std::vector<uint8_t>& key) {
  guarded([&] { update_decryption(name, func, key); });
  return true;
}
bool register_parse_info_func(std::string info_type, const ParseInfoFunc& func) {
  guarded([&] { add_info_parser(info_type, func); });
  return true;
}
void set_loader_lib_path(const std::string& path) {
  guarded([&] {
    mge::require("custom_ops", "lite: set_loader_lib_path");
    mge::load_custom_library(path, true);
  });
}
void set_persistent_cache(const std::string& path, bool always_sync) {
  guarded([&] { open_cache_file(path, always_sync); });
}
void dump_persistent_cache(const std::string& path) {
  guarded([&] { write_cache_file(path); });
}
void set_tensor_rt_cache(std::string) { refuse("set_tensor_rt_cache", kNoTensorRt); }
void dump_tensor_rt_cache() { refuse("dump_tensor_rt_cache", kNoTensorRt); }
bool register_memory_pair(void*, void*, size_t, LiteDeviceType, LiteBackend) {
  refuse("register_memory_pair", kNoPairs);
}
bool clear_memory_pair(void*, void*, LiteDeviceType, LiteBackend) { refuse("clear_memory_pair", kNoPairs); }
void* lookup_physic_ptr(void*, LiteDeviceType, LiteBackend) { refuse("lookup_physic_ptr", kNoPairs); }

}  // namespace lite
