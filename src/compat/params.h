// Parameters of the original's op classes: plain structs with a field list, as attributes of our ops are
// (op/attrs.h). Names, order, defaults and enum numbers are the original's, so Python keywords, files and rules agree.
//   struct Softmax { int64_t axis = -1; static constexpr auto fields() { return field_list("axis", &Softmax::axis); }
//   };
#pragma once
#include <memory>
#include <optional>
#include <variant>

#include "core/meta.h"
#include "op/attrs.h"

namespace mge::compat {

/// Members are numbered from 0, or are bits from 1 on.
struct EnumInfo {
  std::string_view owner, name;  // Elemwise.Mode
  bool bits = false;
  std::vector<std::string_view> members;
};
/// `list` is the text between the braces of a C++ enum.
EnumInfo make_enum(std::string_view owner, std::string_view name, std::string_view list);

// One list makes the C++ enum, the names that Python shows and the numbers in files.
#define MGE_COMPAT_ENUM(Type, owner, name, ...)                        \
  enum class Type : int64_t { __VA_ARGS__ };                           \
  inline const EnumInfo& enum_info(Type) {                             \
    static const EnumInfo info = make_enum(owner, name, #__VA_ARGS__); \
    return info;                                                       \
  }

using Rows = std::vector<Ints>;
/// A dtype that may be left open (None) and may be quantised.
struct TypeParam {
  std::optional<DType> dtype;
  Quant quant;
  bool operator==(const TypeParam&) const = default;
};
/// The name of a comp node; empty is None: where the inputs are.
struct NodeParam {
  std::string name;
  bool operator==(const NodeParam&) const = default;
};
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};

/// Enums are their number; uint64_t is carried in the bits of int64_t.
using ParamValue = std::variant<bool, int64_t, double, std::string, Ints, Rows, TypeParam, NodeParam, Bytes>;
enum class Kind : uint8_t { Bool, Int, Float, Text, Ints, Rows, Type, Node, Bytes, Unsigned, Enum };

struct Field {
  std::string_view name;
  Kind kind;
  ParamValue value;  // the default
  const EnumInfo* members = nullptr;
};
struct NamedParam {
  std::string_view name;
  ParamValue value;
};

uint64_t hash_param(const ParamValue& v);
std::string print_param(const Field& f, const ParamValue& v);  // SUM, 3, 0.5, "xy", [0,1], float32, None
/// The number of a member by its name in any case, names of a bit enum joined by "|"; Value error otherwise.
int64_t parse_member(const EnumInfo& e, std::string_view text);

namespace detail {

template <class T>
Kind kind_of() {
  if constexpr (std::is_enum_v<T>)
    return Kind::Enum;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return Kind::Unsigned;
  else
    return static_cast<Kind>(ParamValue(T{}).index());  // Kind lists the alternatives in their order
}
template <class T>
ParamValue to_value(const T& v) {
  if constexpr (std::is_enum_v<T> || std::is_same_v<T, uint64_t>)
    return static_cast<int64_t>(v);
  else
    return v;
}
/// Converts between the kinds that Python and files mix (3 where 3.0 is meant, a name where an enum is); Type error
/// otherwise.
ParamValue fit(std::string_view who, const Field& f, const ParamValue& v);

template <class T>
std::vector<Field> fields_of() {
  std::vector<Field> out;
  const T defaults{};
  visit_fields(defaults, [&](std::string_view name, const auto& f) {
    using F = std::remove_cvref_t<decltype(f)>;
    Field field{name, kind_of<F>(), to_value(f), nullptr};
    if constexpr (std::is_enum_v<F>) field.members = &enum_info(F{});
    out.push_back(std::move(field));
  });
  return out;
}
template <class T>
std::shared_ptr<const void> build(std::span<const ParamValue> values) {
  auto out = std::make_shared<T>();
  size_t i = 0;
  visit_fields(*out, [&](std::string_view, auto& f) {
    using F = std::remove_reference_t<decltype(f)>;
    if constexpr (std::is_enum_v<F> || std::is_same_v<F, uint64_t>)
      f = static_cast<F>(std::get<int64_t>(values[i++]));
    else
      f = std::get<F>(values[i++]);
  });
  return out;
}

}  // namespace detail

struct None {
  static constexpr auto fields() { return field_list(); }
};

}  // namespace mge::compat
