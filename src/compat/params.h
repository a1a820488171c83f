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

/// One row of a field list: what code that knows no struct works by.
struct ParamRow {
  const char* name;
  uint16_t offset;
  Kind kind;
  const EnumInfo& (*members)() = nullptr;
};
using ParamRows = std::span<const ParamRow>;

template <class T>
constexpr Kind kind_of() {
  if constexpr (std::is_enum_v<T>) {
    static_assert(std::is_same_v<std::underlying_type_t<T>, int64_t>);
    return Kind::Enum;
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return Kind::Unsigned;
  } else {
    return static_cast<Kind>(mge::detail::kind_in<ParamValue, T>());  // Kind lists the alternatives in their order
  }
}
template <class T, class V, class B>
ParamRow param_row(const char* name, V B::*member) {
  ParamRow r{name, mge::detail::offset_in<T>(member), kind_of<V>()};
  if constexpr (std::is_enum_v<V>) r.members = []() -> const EnumInfo& { return enum_info(V{}); };
  return r;
}
template <class T, class Tuple, size_t... I>
ParamRows param_rows_at(const Tuple& t, std::index_sequence<I...>) {
  static const ParamRow rows[] = {param_row<T>(std::get<2 * I>(t), std::get<2 * I + 1>(t))..., ParamRow{}};
  return {rows, sizeof...(I)};
}
template <class T>
ParamRows param_rows() {
  constexpr auto list = T::fields();
  return param_rows_at<T>(list, std::make_index_sequence<std::tuple_size_v<decltype(list)> / 2>());
}
/// Converts between the kinds that Python and files mix (3 where 3.0 is meant, a name where an enum is); Type error
/// otherwise.
ParamValue fit(std::string_view who, const Field& f, const ParamValue& v);
std::vector<Field> fields_of(ParamRows rows, const void* defaults);
/// `values` are of the rows' kinds, in their order.
void set_params(ParamRows rows, void* params, std::span<const ParamValue> values);

template <class T>
std::vector<Field> fields_of() {
  const T defaults{};
  return fields_of(param_rows<T>(), &defaults);
}
template <class T>
std::shared_ptr<const void> build(std::span<const ParamValue> values) {
  auto out = std::make_shared<T>();
  set_params(param_rows<T>(), out.get(), values);
  return out;
}

}  // namespace detail

struct None {
  static constexpr auto fields() { return field_list(); }
};

}  // namespace mge::compat
