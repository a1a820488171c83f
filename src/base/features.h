// Parts of the runtime beside ops that a build may leave out (MGE_OPS, docs/lite.md#size). Of what is left out nothing
// stays but the refusal: whoever calls it says so first, and the linker drops what nothing then reaches.
//   require("profiling", "lite: enable_profile_performance");    throws, naming the option that brings it
//   if (has("bands")) ...                                          the compiler drops the rest
//   note("bands");                                                 a model made use of it: `mge-lite needs` lists it
// Included where a feature is asked for, and only there: a build with others compiles those files alone.
#pragma once
#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/build_features.h"  // written by cmake/build_list.cmake

namespace mge {

struct FeatureRow {
  std::string_view name;
  bool found;  // by running models (mge-lite needs); else a deployment asks for it (tools/trim --with)
};
// The line is read by tools/trim.
inline constexpr FeatureRow kFeatures[] = {
    // What programs call.
    {"writing", false},        // of models and packs
    {"profiling", false},      // times and memory of programs as JSON
    {"value_dumps", false},    // every value of a run to files
    {"packs", false},          // packed models and the settings inside them
    {"ciphers", false},        // encrypted models
    {"fast_run", false},       // kernels measured or chosen by a policy, caches of that
    {"checks", false},         // the checked executor, verifiers, the interpreter
    {"graph_text", false},     // graphs and programs as text: MGE_DUMP_IR
    {"recompute", false},      // less memory for more time where it is short
    {"custom_ops", false},     // set_loader_lib_path
    {"streams", false},        // devices that are not the CPU
    {"docs", false},           // what ops say of themselves, which Python shows
    {"graph_options", false},  // passes that only dump and the graph options of a trace ask for
    {"half_io", false},        // enable_f16_io_comp
    {"fuse_preprocess", false},
    // What a model may make use of. No bit depends on any of the passes and plans; ops are refused when they need what
    // is not there.
    {"write_out", true},
    {"constant_fold", true},
    {"canonicalise", true},
    {"fuse_grain", true},
    {"arithmetic", true},
    {"cse", true},
    {"move_casts", true},
    {"fuse_elementwise", true},
    {"layouts", true},    // memory orders for the whole graph
    {"bands", true},      // several ops row by row
    {"order", true},      // of nodes, for less memory
    {"tight", true},      // memory plans beyond the first that fits
    {"sizes", true},      // attributes that follow from sizes, sizes that were decided by
    {"parts", true},      // sizes that depend on values
    {"decompose", true},  // ops without a kernel as their parts
    {"quantised", true},  // quantised types
    // Ways of convolutions whose windows ask for them at some size.
    {"winograd", true},
    {"conv_channels", true},
    {"conv_gemm", true},
    // Modes of reductions by vectors.
    {"reduce_max", true},
    {"reduce_min", true},
    {"reduce_prod", true},
};

constexpr int feature_index(std::string_view name) {
  for (size_t i = 0; i < std::size(kFeatures); ++i)
    if (kFeatures[i].name == name) return static_cast<int>(i);
  return -1;
}

/// A name of the table, else it does not compile; whether it is in this build.
struct Feature {
  int index;
  bool here;
  consteval Feature(const char* name) : index(feature_index(name)), here(false) {
    if (index < 0) throw "no such feature";
    const auto* end = std::end(build_list::kFeatures);
    here = (std::find(build_list::kFeatures, end, std::string_view(name)) != end) == build_list::kOnlyFeatures;
  }
};

constexpr bool has(Feature f) { return f.here; }

[[noreturn]] void fail_left_out(int feature, const char* who);
__attribute__((always_inline)) inline void require(Feature f, const char* who) {
  if (!f.here) fail_left_out(f.index, who);
}

void note_feature(int feature);
__attribute__((always_inline)) inline void note(Feature f) {
  if (!build_list::kOnlyFeatures) note_feature(f.index);
}
/// While it is on kernels are asked about every call, so that what they could take at another size is noted, too.
void note_all_features(bool on);
bool notes_all_features();
/// The same by a name that may be no feature's: a pass's.
void note_feature(std::string_view name);
std::vector<std::string_view> noted_features();

}  // namespace mge
