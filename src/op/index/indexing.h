// Picking and placing by int32 index: one element per position along an axis (one_hot), or whole slices (take).
#pragma once
#include "op/attrs.h"

namespace mge {

struct TakeBwdAttrs {
  int64_t axis = 0;
  Ints x_shape{};
  static constexpr auto fields() { return field_list("axis", &TakeBwdAttrs::axis, "x_shape", &TakeBwdAttrs::x_shape); }
};

/// take defaults to axis 0 (embedding), indexing_one_hot to axis 1.
struct TakeAttrs {
  int64_t axis = 0;
  static constexpr auto fields() { return field_list("axis", &TakeAttrs::axis); }
};
struct OneHotAttrs {
  int64_t axis = 1;
  static constexpr auto fields() { return field_list("axis", &OneHotAttrs::axis); }
};

struct WrapIndexAttrs {
  int64_t size = 1;
  bool negative = true;            // -1 is the last entry; else it is an error
  std::string who = "wrap_index";  // the function that the error names
  std::string what = "index";      // and its argument
  static constexpr auto fields() {
    return field_list("size", &WrapIndexAttrs::size, "negative", &WrapIndexAttrs::negative, "who", &WrapIndexAttrs::who,
                      "what", &WrapIndexAttrs::what);
  }
};

struct CheckRangeAttrs {
  double low = 0, high = 1;
  std::string who = "check_range", what = "x";  // the function and the argument that the error names
  std::string way_out{};                        // a sentence at its end
  static constexpr auto fields() {
    return field_list("low", &CheckRangeAttrs::low, "high", &CheckRangeAttrs::high, "who", &CheckRangeAttrs::who,
                      "what", &CheckRangeAttrs::what, "way_out", &CheckRangeAttrs::way_out);
  }
};

/// An index that reached a kernel and is out of range; `lo` is the least one allowed.
[[noreturn]] void throw_bad_index(const char* op, const char* what, int64_t got, int64_t lo, int64_t size,
                                  int64_t position);

}  // namespace mge
