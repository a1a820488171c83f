// Operators of users' libraries (include/megbrain/custom/custom.h). One op, "custom", stands for all of them: its
// attributes say which, and infer and kernel ask the library, so they are traced, dumped and run like any other op.
//   load_custom_library("/path/scale.so");    unload_custom_library("/path/scale.so");
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "megbrain/custom/abi.h"
#include "op/attrs.h"

namespace mge {

struct CustomAttrs {
  std::string name;     // of the op in its library
  std::string library;  // file name of the library, for those who do not have it
  std::string params;   // "name=kind:value" divided by ';' (abi.h)
  int64_t n_in = 1, n_out = 1;
  static constexpr auto fields() {
    using A = CustomAttrs;
    return field_list("name", &A::name, "library", &A::library, "params", &A::params, "n_in", &A::n_in, "n_out",
                      &A::n_out);
  }
};

/// One op of a loaded library, which stays loaded while somebody holds this.
struct CustomOpEntry {
  std::shared_ptr<const MgeCustomLibrary> library;
  std::string path;
  int32_t index = 0;
};

/// Loads a library; the names of its ops. Env error when it cannot be loaded or is none; Value error when a
/// registration is wrong or another library has an op of that name, unless this one takes its place. Loading it again
/// changes nothing.
std::vector<std::string> load_custom_library(const std::string& path, bool takes_place = false);
/// Value error when it is not loaded.
void unload_custom_library(const std::string& path);
struct CustomLibraryInfo {
  std::string path;
  std::vector<std::string> ops;
};
std::vector<CustomLibraryInfo> custom_libraries();
/// What an op takes and gives, as abi.h says it. Value error when it is not loaded.
std::string describe_custom_op(const std::string& name);
/// Value error that names op and library when it is not loaded.
CustomOpEntry find_custom_op(const CustomAttrs& a);

}  // namespace mge
