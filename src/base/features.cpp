#include "base/features.h"

#include <atomic>

#include "base/error.h"

namespace mge {
namespace {
std::atomic<bool> g_noted[std::size(kFeatures)], g_all{false};
}

void fail_left_out(int feature, const char* who) {
  const std::string_view name = kFeatures[feature].name;
  fail(ErrorKind::NotImplemented,
       "{}: was left out of this runtime. `tools/trim --with {}` builds one that has it; MGE_OPS=inference has all.",
       who, name);
}

void note_all_features(bool on) { g_all = on; }
bool notes_all_features() { return g_all; }
void note_feature(int feature) { g_noted[feature].store(true, std::memory_order_relaxed); }
void note_feature(std::string_view name) {
  if (const int i = feature_index(name); i >= 0) note_feature(i);
}
std::vector<std::string_view> noted_features() {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < std::size(kFeatures); ++i)
    if (g_noted[i].load(std::memory_order_relaxed)) out.push_back(kFeatures[i].name);
  return out;
}

}  // namespace mge
