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

class AttrsBase : public RefCounted {
 public:
  virtual ~AttrsBase() = default;
  virtual uint64_t hash() const = 0;
  virtual bool equal(const AttrsBase& o) const = 0;
  virtual std::vector<NamedAttr> values() const = 0;
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

 private:
  const void* type_;
  std::unique_ptr<std::vector<SizeOperand>> sizes_;
};
using Attrs = RefPtr<const AttrsBase>;

/// Equality that treats a missing Attrs as equal only to another missing one.
inline bool attrs_equal(const AttrsBase* a, const AttrsBase* b) { return a == b || (a && b && a->equal(*b)); }
inline uint64_t attrs_hash(const AttrsBase* a) { return a ? a->hash() : 0; }

namespace detail {
template <class... Rest>
struct FieldList {
  std::tuple<Rest...> items;
};
template <size_t I, class T, class Tuple, class F>
void visit_fields_at(T& obj, const Tuple& t, F& f) {
  if constexpr (I < std::tuple_size_v<Tuple>) {
    f(std::string_view(std::get<I>(t)), obj.*std::get<I + 1>(t));
    visit_fields_at<I + 2>(obj, t, f);
  }
}
template <class V>
bool attr_equal(const V& a, const V& b) {
  return a == b;
}
inline bool attr_equal(double a, double b) { return hash_double(a) == hash_double(b) || (a != a && b != b); }
template <size_t I, class T, class Tuple>
bool fields_equal_at(const T& a, const T& b, const Tuple& t) {
  if constexpr (I < std::tuple_size_v<Tuple>)
    return attr_equal(a.*std::get<I + 1>(t), b.*std::get<I + 1>(t)) && fields_equal_at<I + 2>(a, b, t);
  else
    return true;
}
template <class T>
inline constexpr char type_tag = 0;
}  // namespace detail

template <class... A>
constexpr std::tuple<A...> field_list(A... a) {
  return std::tuple<A...>(a...);
}
template <class T, class F>
void visit_fields(T& obj, F f) {
  constexpr auto list = std::remove_const_t<T>::fields();
  detail::visit_fields_at<0>(obj, list, f);
}

template <class T>
class AttrsOf final : public AttrsBase {
 public:
  explicit AttrsOf(T v) : AttrsBase(&detail::type_tag<T>), value(std::move(v)) {
    hash_ = 0x51ed;
    visit_fields(value, [this](std::string_view, const auto& f) { hash_ = hash_mix(hash_, hash_attr(AttrValue(f))); });
  }
  uint64_t hash() const override { return hash_; }
  bool equal(const AttrsBase& o) const override {
    if (o.type() != type() || o.hash() != hash_) return false;
    constexpr auto list = T::fields();
    return detail::fields_equal_at<0>(value, static_cast<const AttrsOf&>(o).value, list);
  }
  std::vector<NamedAttr> values() const override {
    std::vector<NamedAttr> out;
    visit_fields(value, [&](std::string_view n, const auto& f) { out.push_back({std::string(n), AttrValue(f)}); });
    return out;
  }
  const T value;

 private:
  uint64_t hash_;
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
/// Place of a field in the field list of T.
template <class T>
int field_index(std::string_view name) {
  int at = -1, i = 0;
  const T v{};
  visit_fields(v, [&](std::string_view n, const auto&) {
    if (n == name) at = i;
    ++i;
  });
  MGE_ASSERT(at >= 0, "no attribute '{}'", name);
  return at;
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

template <class T>
AttrSchema make_schema() {
  AttrSchema s;
  T def{};
  visit_fields(def, [&](std::string_view n, const auto& f) { s.defaults.push_back({std::string(n), AttrValue(f)}); });
  s.build = [](std::string_view who, std::span<const NamedAttr> given) -> Attrs {
    T v{};
    size_t used = 0;
    visit_fields(v, [&](std::string_view n, auto& f) {
      for (auto& g : given)
        if (g.name == n) {
          using F = std::remove_reference_t<decltype(f)>;
          if (auto* same = std::get_if<F>(&g.value))
            f = *same;
          else
            f = std::get<F>(coerce_attr(format("{}: attribute '{}'", who, n), g.value, AttrValue(f)));
          ++used;
        }
    });
    if (used != given.size()) {
      auto known = AttrsOf<T>(T{}).values();
      for (auto& g : given) {
        bool found = false;
        for (auto& k : known) found |= k.name == g.name;
        if (!found) throw_unknown_attr(who, g.name, known);
      }
    }
    return make_attrs(std::move(v));
  };
  return s;
}

}  // namespace mge
