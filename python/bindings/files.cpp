// base/write_file.h for Python; megengine.core.files builds `replacing` on it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "base/write_file.h"
#include "common.h"

namespace nb = nanobind;

namespace mge::py {

// Paths are bytes: a name need not be valid UTF-8.
void bind_files(nb::module_& m) {
  auto text = [](nb::bytes path) { return std::string(path.c_str(), path.size()); };
  nb::class_<FileWriter>(m, "FileWriter")
      .def(nb::new_([text](nb::bytes path) {
        std::string p = text(path);
        const OthersTurn release;
        return std::make_unique<FileWriter>(std::move(p));
      }))
      .def_prop_ro("fd", [](const FileWriter& f) { return f.fd(); })
      .def(
          "commit", [](FileWriter& f) { f.commit(); }, nb::call_guard<OthersTurn>())
      .def(
          "discard", [](FileWriter& f) { f.discard(); }, nb::call_guard<OthersTurn>())
      .def("fail", [](const FileWriter& f, int code) { fail_to_write(f.path(), code); });
  m.def("append_file", [text](nb::bytes path, nb::bytes data) {
    const std::string p = text(path), bytes = text(data);
    const OthersTurn release;
    append_file(p, bytes, /*lines=*/false);
  });
}

}  // namespace mge::py
