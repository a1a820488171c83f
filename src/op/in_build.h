// Which ops this build has: all of them, or what a list says that the build was given (MGE_OPS, docs/lite.md#size).
// A name that is not here is dropped where it is registered, by the compiler: nothing then refers to its functions, and
// the linker drops them. Included where something is registered, and only there: a build for other ops compiles those
// files alone.
//   r.op("conv2d")...          r.add("conv2d", ...)         if constexpr (in_build("conv2d")) ...
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "base/features.h"
#include "op/build_list.h"  // written by cmake/build_list.cmake
#include "op/opdef.h"

namespace mge {

namespace build_list {
template <size_t n>
constexpr bool has(const std::string_view (&list)[n], std::string_view name) {
  return std::find(list, list + n, name) != list + n;
}
}  // namespace build_list

constexpr bool in_build(std::string_view op) { return build_list::has(build_list::kOps, op) == build_list::kOnly; }
/// Of the original's op classes (src/compat).
constexpr bool class_in_build(std::string_view name) {
  return build_list::has(build_list::kClasses, name) == build_list::kOnly;
}
/// Ops that only their reference kernels serve: elementwise ones, where all kernels give the same bits.
constexpr bool vectors_in_build(std::string_view op) {
  return in_build(op) && !build_list::has(build_list::kWithoutVectors, op);
}
/// Whether vector kernels for it are there; the reference kernels take every dtype.
constexpr bool dtype_in_build(DType t) {
  constexpr std::string_view kNames[] = {"bool",  "uint8",   "int8",     "uint16",  "int16",   "int32",
                                         "int64", "float16", "bfloat16", "float32", "float64", "complex64"};
  return !build_list::kSomeDTypes || build_list::has(build_list::kDTypes, kNames[static_cast<int>(t)]);
}

/// The name of an op, and whether it is here: a constant wherever it is written out.
struct OpName {
  const char* text;
  bool here;
  consteval OpName(const char* name) : text(name), here(in_build(name)) {}
  OpName(const std::string& registered) : text(registered.c_str()), here(true) {}
};

/// Python shows them, Lite does not.
MGE_INLINED inline OpBuilder& OpBuilder::doc([[maybe_unused]] const char* text) {
  if constexpr (has("docs"))
    if (d_) d_->doc = text;
  return *this;
}

MGE_INLINED inline OpBuilder OpRegistry::op(OpName name) { return OpBuilder(name.here ? add(name.text) : nullptr); }

}  // namespace mge
