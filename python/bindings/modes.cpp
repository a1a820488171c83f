// The settings in the mode word of this thread (eager/modes.h): autocast, its dtypes, the compute mode.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "common.h"

namespace nb = nanobind;

namespace mge::py {

void bind_modes(nb::module_& m) {
  m.attr("MODE_AUTOCAST") = static_cast<uint32_t>(mode::kAutocast);
  m.attr("MODE_FLOAT32_SUMS") = static_cast<uint32_t>(mode::kFloat32Sums);
  m.def(
      "mode_word", [] { return mode::settings(); },
      "What this thread has set of autocast and compute mode, as one number: for saving, and for keys of recordings.");
  m.def(
      "set_mode_word", [](uint32_t word) { mode::set_settings(word); }, "Puts back what mode_word gave.");
  m.def("autocast_dtypes", [] {
    const uint32_t word = mode::t_word;
    return nb::make_tuple(std::string(dtype_name(mode::low_dtype(word))),
                          std::string(dtype_name(mode::high_dtype(word))));
  });
  m.def("set_autocast_dtypes", [](const std::string& low, const std::string& high) {
    mode::t_word = mode::with_low_dtype(mode::with_high_dtype(mode::t_word, parse_dtype(high)), parse_dtype(low));
  });
}

}  // namespace mge::py
