#include "lite/global.h"

#include <atomic>
#include <cstdio>

#include "core/pool.h"
#include "lite/error.h"
#include "lite/log.h"
#include "lite/pack_model.h"
#include "megengine/version.h"
#include "op/custom/custom.h"

namespace lite {
namespace {

std::atomic<LiteLogLevel> g_level{ERROR};
[[noreturn]] void refuse(const char* what) {
  guarded([&] { not_supported(what); });
  __builtin_unreachable();
}

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

size_t get_device_count(LiteDeviceType type) { return type == LITE_CPU || type == LITE_DEVICE_DEFAULT ? 1 : 0; }
void try_coalesce_all_free_memory() {
  guarded([] { mge::Pool::of({}).trim(); });
}

bool register_decryption_and_key(std::string, const DecryptionFunc&, const std::vector<uint8_t>&) {
  refuse("decryption");
}
bool update_decryption_or_key(std::string, const DecryptionFunc&, const std::vector<uint8_t>&) { refuse("decryption"); }
bool register_parse_info_func(std::string, const ParseInfoFunc&) { refuse("register_parse_info_func (packed models)"); }
void set_loader_lib_path(const std::string& path) {
  guarded([&] { mge::load_custom_library(path, true); });
}
void set_persistent_cache(const std::string&, bool) { refuse("the persistent cache"); }
void dump_persistent_cache(const std::string&) { refuse("the persistent cache"); }
void set_tensor_rt_cache(std::string) { refuse("TensorRT"); }
void dump_tensor_rt_cache() { refuse("TensorRT"); }
bool register_memory_pair(void*, void*, size_t, LiteDeviceType, LiteBackend) { refuse("register_memory_pair"); }
bool clear_memory_pair(void*, void*, LiteDeviceType, LiteBackend) { refuse("clear_memory_pair"); }
void* lookup_physic_ptr(void*, LiteDeviceType, LiteBackend) { refuse("lookup_physic_ptr"); }

ModelPacker::ModelPacker(std::string, std::string, std::string, std::string, std::string) {}
ModelPacker::ModelPacker(std::vector<uint8_t>, std::string, std::vector<uint8_t>, std::vector<uint8_t>,
                         std::vector<uint8_t>) {}
void ModelPacker::set_header(std::string, std::string, bool) {}
void ModelPacker::pack_model() { refuse("packing models"); }

}  // namespace lite
