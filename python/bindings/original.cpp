// MegEngine's own model files: options to read them, and one call that turns a model file of ours into one of theirs.
#include "original.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "plan/evaluate.h"
#include "serial/mgb/read.h"
#include "serial/mgb/write.h"

namespace nb = nanobind;

namespace mge::py {

serial::ReadOptions read_options() {
  serial::ReadOptions o;
  o.foreign = serial::mgb::read;
  o.evaluate = kernel_evaluator();
  return o;
}

void bind_original(nb::module_& m) {
  m.def(
      "to_original",
      [](nb::bytes file, int version) {
        const serial::LoadedModel model = serial::read_model(
            {reinterpret_cast<const uint8_t*>(file.c_str()), file.size()}, "to_original", read_options());
        const std::vector<uint8_t> out = serial::mgb::write(model.graph, model.info, {.version = version});
        return nb::bytes(out.data(), out.size());
      },
      nb::arg("file"), nb::arg("version") = 2);
}

}  // namespace mge::py
