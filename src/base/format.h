// Text from a pattern and values, for errors and the few texts that are written: a call stores one word for each value.
//   format("{}: {} of {}", name, i, n)   format("{:016x} {:<8} {:.3g}", hash, text, seconds)
// {} or {0}; after a colon < or >, a width (with 0 in front: zeros), # for 0x, and x, or with .digits g and f, or a for
// the exact bits. A brace is written twice. Numbers are those of every locale: 0.1, 1e+16, nan, -inf. A pattern that
// wants more values than there are gets {?}.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace mge {

union FormatValue {
  int64_t i;
  uint64_t u;
  double d;
  float f;
  const void* p;
};
enum class FormatKind : uint8_t { None, Bool, Char, Int, Unsigned, Float, Double, CString, String, View, Pointer };

namespace detail {
template <class T>
consteval FormatKind format_kind() {
  if constexpr (std::is_same_v<T, bool>)
    return FormatKind::Bool;
  else if constexpr (std::is_same_v<T, char>)
    return FormatKind::Char;
  else if constexpr (std::is_integral_v<T>)
    return std::is_signed_v<T> ? FormatKind::Int : FormatKind::Unsigned;
  else if constexpr (std::is_same_v<T, float>)
    return FormatKind::Float;
  else if constexpr (std::is_same_v<T, double>)
    return FormatKind::Double;
  else if constexpr (std::is_same_v<T, std::string>)
    return FormatKind::String;
  else if constexpr (std::is_same_v<T, std::string_view>)
    return FormatKind::View;
  else if constexpr (std::is_convertible_v<const T&, const char*>)
    return FormatKind::CString;
  else if constexpr (std::is_same_v<T, void*> || std::is_same_v<T, const void*>)
    return FormatKind::Pointer;
  else
    static_assert(!sizeof(T), "format: convert this value first");
}
template <class T>
inline FormatValue format_value(const T& x) {
  constexpr FormatKind kind = format_kind<T>();
  if constexpr (kind == FormatKind::Float)
    return {.f = x};
  else if constexpr (kind == FormatKind::Double)
    return {.d = x};
  else if constexpr (kind == FormatKind::String || kind == FormatKind::View)
    return {.p = &x};
  else if constexpr (kind == FormatKind::CString)
    return {.p = static_cast<const char*>(x)};
  else if constexpr (kind == FormatKind::Pointer)
    return {.p = x};
  else if constexpr (std::is_signed_v<T>)
    return {.i = x};
  else
    return {.u = x};
}
constexpr int kFormatBits = 4;  // of a kind, in the word that says what the values are
template <class... A>
consteval uint64_t format_kinds() {
  static_assert(sizeof...(A) * kFormatBits <= 64, "format: too many values");
  uint64_t kinds = 0;
  int at = 0;
  ((kinds |= static_cast<uint64_t>(format_kind<A>()) << at, at += kFormatBits), ...);
  return kinds;
}
}  // namespace detail

/// What `format` calls; `values` are of `kinds`, kFormatBits each, the first one lowest.
std::string format_values(const char* pattern, uint64_t kinds, const FormatValue* values);

template <class... A>
inline std::string format(const char* pattern, const A&... a) {
  const FormatValue values[] = {detail::format_value(a)..., FormatValue{}};
  return format_values(pattern, detail::format_kinds<A...>(), values);
}

}  // namespace mge
