// Op attributes: a plain struct whose field list drives hash, equality, print, parse, serialise and Python keywords.
//   struct ReduceAttrs { std::string mode = "sum"; Ints axes; bool keepdims = false;
//     static constexpr auto fields() { return field_list("mode", &ReduceAttrs::mode, "axes", &ReduceAttrs::axes, …); }
//     };
//   Attrs a = make_attrs(ReduceAttrs{.mode = "max"});   const auto& r = attrs_as<ReduceAttrs>(a.get());
// Field types: bool, int64_t, double, std::string, Ints, DType, QType (a dtype with its quantisation).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/ref.h"
#include "base/small_vec.h"
#include "core/quant.h"

namespace mge {

using Ints = SmallVec<int64_t, 6>;
using AttrValue = std::variant<bool, int64_t, double, std::string, Ints, DType, QType>;
struct NamedAttr {
  std::string name;
  AttrValue value;
};

uint64_t hash_attr(const AttrValue& v);
std::string print_attr(const AttrValue& v);  // true, 3, 0.5, "sum", [0,1], float32, qint8(0.1,0)
/// Reads text as the kind of `like`; Value error naming `who` otherwise.
AttrValue parse_attr(std::string_view who, std::string_view text, const AttrValue& like);
/// Python hands over ints where doubles are meant and so on: converts to the kind of `like` or throws a Type error.
AttrValue coerce_attr(std::string_view who, AttrValue v, const AttrValue& like);

inline Ints to_ints(const Shape& s) { return Ints(s.begin(), s.end()); }
inline Shape to_shape(const Ints& v) { return Shape(v.data(), v.size()); }

/// What an emitter stands a value for: a tensor in eager mode, an SSA value in the IR (op/emitter.h).
struct ValImpl : RefCounted {
  virtual ~ValImpl() = default;
};

/// An integer attribute, or one element of a list of them, that was computed from the sizes or the values of tensors.
/// A recorded call computes it anew in later calls; the attribute itself holds the number of this call.
struct SizeOperand {
  int field = 0;          // place in the field list
  int element = kWhole;   // of an Ints field
  RefPtr<ValImpl> value;  // integers: as many as the field has, or one
  static constexpr int kWhole = -1;
};

/// One row of a field list: what code that knows no struct works by.
struct AttrField {
  const char* name;
  uint16_t offset;  // in the struct
  uint8_t kind;     // index in AttrValue
};
using AttrFields = std::span<const AttrField>;

class AttrsBase : public RefCounted {
 public:
  virtual ~AttrsBase() = default;
  uint64_t hash() const { return hash_; }
  virtual bool equal(const AttrsBase& o) const;
  virtual std::vector<NamedAttr> values() const;
  const void* type() const { return type_; }
  std::string print() const;  // "{mode="sum", axes=[0]}"; fields in declaration order
  /// Only while a call is recorded; not part of hash and equality.
  std::span<const SizeOperand> sizes() const {
    return sizes_ ? std::span<const SizeOperand>(*sizes_) : std::span<const SizeOperand>();
  }
  /// Before the attributes are shared.
  void set_sizes(std::vector<SizeOperand> s) {
    if (!s.empty()) sizes_ = std::make_unique<std::vector<SizeOperand>>(std::move(s));
  }

 protected:
  explicit AttrsBase(const void* type) : type_(type) {}
  /// Last in a constructor: what equal and values look at, and the hash of it.
  void set_fields(AttrFields fields, const void* value);
  void set_hash(uint64_t h) { hash_ = h; }

 private:
  const char* value() const { return reinterpret_cast<const char*>(this) + value_at_; }
  const void* type_;
  AttrFields fields_;
  uint64_t hash_ = 0;
  size_t value_at_ = 0;
  std::unique_ptr<std::vector<SizeOperand>> sizes_;
};
using Attrs = RefPtr<const AttrsBase>;

/// Equality that treats a missing Attrs as equal only to another missing one.
inline bool attrs_equal(const AttrsBase* a, const AttrsBase* b) { return a == b || (a && b && a->equal(*b)); }
inline uint64_t attrs_hash(const AttrsBase* a) { return a ? a->hash() : 0; }

namespace detail {
/// Place of V among the alternatives of a variant.
template <class Variant, class V, size_t I = 0>
constexpr uint8_t kind_in() {
  if constexpr (std::is_same_v<V, std::variant_alternative_t<I, Variant>>)
    return I;
  else
    return kind_in<Variant, V, I + 1>();
}
/// Where a member lies in any T.
template <class T, class V, class B>
uint16_t offset_in(V B::*member) {
  alignas(T) static constexpr char place[sizeof(T)] = {};
  const T* object = reinterpret_cast<const T*>(place);
  return static_cast<uint16_t>(reinterpret_cast<const char*>(std::addressof(object->*member)) - place);
}
template <class T, class V, class B>
AttrField attr_field(const char* name, V B::*member) {
  return {name, offset_in<T>(member), kind_in<AttrValue, V>()};
}
template <class T, class Tuple, size_t... I>
AttrFields attr_fields_at(const Tuple& t, std::index_sequence<I...>) {
  static const AttrField rows[] = {attr_field<T>(std::get<2 * I>(t), std::get<2 * I + 1>(t))..., AttrField{}};
  return {rows, sizeof...(I)};
}
template <class T>
inline constexpr char type_tag = 0;
}  // namespace detail

template <class... A>
constexpr std::tuple<A...> field_list(A... a) {
  return std::tuple<A...>(a...);
}
template <class T>
AttrFields attr_fields() {
  constexpr auto list = T::fields();
  return detail::attr_fields_at<T>(list, std::make_index_sequence<std::tuple_size_v<decltype(list)> / 2>());
}

template <class T>
class AttrsOf final : public AttrsBase {
 public:
  explicit AttrsOf(T v) : AttrsBase(&detail::type_tag<T>), value(std::move(v)) { set_fields(attr_fields<T>(), &value); }
  const T value;
};

template <class T>
Attrs make_attrs(T v) {
  return Attrs(new AttrsOf<T>(std::move(v)));
}
template <class T>
Attrs make_attrs(T v, std::vector<SizeOperand> sizes) {
  const RefPtr<AttrsOf<T>> a(new AttrsOf<T>(std::move(v)));
  a->set_sizes(std::move(sizes));
  return a;
}
/// Place of a field in a field list.
int field_index(AttrFields fields, std::string_view name);
template <class T>
int field_index(std::string_view name) {
  return field_index(attr_fields<T>(), name);
}
template <class T>
const T& attrs_as(const AttrsBase* a) {
  MGE_ASSERT(a && a->type() == &detail::type_tag<T>, "attrs of another op");
  return static_cast<const AttrsOf<T>*>(a)->value;
}

/// What the registry knows of an attrs struct without knowing the struct.
struct AttrSchema {
  std::vector<NamedAttr> defaults;  // field names and default values, in order
  /// Unknown names and wrong kinds throw a Type error naming `who`.
  Attrs (*build)(std::string_view who, std::span<const NamedAttr> given) = nullptr;
};

[[noreturn]] void throw_unknown_attr(std::string_view who, std::string_view name, const std::vector<NamedAttr>& known);

/// All fields of a struct.
std::vector<NamedAttr> attr_values(AttrFields fields, const void* value);
/// Writes what is given into a struct.
void set_attrs(AttrFields fields, void* value, std::string_view who, std::span<const NamedAttr> given);

template <class T>
AttrSchema make_schema() {
  const T def{};
  return {attr_values(attr_fields<T>(), &def), [](std::string_view who, std::span<const NamedAttr> given) {
            T v{};
            set_attrs(attr_fields<T>(), &v, who, given);
            return make_attrs(std::move(v));
          }};
}

}  // namespace mge
