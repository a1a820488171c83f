// Libraries of custom operators, for megengine.core.ops.custom.
#include "op/custom/custom.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common.h"
#include "eager/executor.h"

namespace nb = nanobind;

namespace mge::py {

void bind_custom(nb::module_& m) {
  m.def("custom_load", [](const std::string& path) { return load_custom_library(path); });
  m.def("custom_unload", [](const std::string& path) {
    {
      const OthersTurn others_run;
      drain_executor();  // ops in the queue still call it
    }
    unload_custom_library(path);
  });
  m.def("custom_libraries", [] {
    nb::dict d;
    for (auto& lib : custom_libraries()) d[lib.path.c_str()] = nb::cast(lib.ops);
    return d;
  });
  m.def("custom_describe", [](const std::string& op) { return describe_custom_op(op); });
}

}  // namespace mge::py
