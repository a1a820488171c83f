// Errors: who is to blame decides the kind, the kind decides the Python exception.
//   MGE_CHECK(cond, Value, "reshape: cannot turn {} into {}", a, b);   caller's mistake
//   MGE_ASSERT(cond, "node %{} has no users", id);                     our bug
//   MGE_FAIL_ENV("cannot read {}: {}", path, why);                     file, memory, driver
// Text reads: op: rule broken; values got. way out.
#pragma once
#include <exception>
#include <string>
#include <utility>

#include "base/format.h"

namespace mge {

enum class ErrorKind : uint8_t { Value, Type, Index, Assertion, NotImplemented, Memory, Env, Internal, Async, Trace };

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string text) : kind_(kind), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  /// Adds where in the user's program this came from, once.
  void set_location(std::string where) {
    if (!located_ && !where.empty()) {
      text_ += "\n  at " + where;
      located_ = true;
    }
  }
  bool located() const { return located_; }

 private:
  ErrorKind kind_;
  bool located_ = false;
  std::string text_;
};

[[noreturn]] void throw_error(ErrorKind kind, const char* pattern, uint64_t kinds, const FormatValue* values);
[[noreturn]] void throw_internal(const char* file, int line, const char* pattern, uint64_t kinds,
                                 const FormatValue* values);

template <class... A>
[[noreturn]] inline void fail(ErrorKind kind, const char* pattern, const A&... a) {
  const FormatValue values[] = {detail::format_value(a)..., FormatValue{}};
  throw_error(kind, pattern, detail::format_kinds<A...>(), values);
}
template <class... A>
[[noreturn]] inline void fail_internal(const char* file, int line, const char* pattern, const A&... a) {
  const FormatValue values[] = {detail::format_value(a)..., FormatValue{}};
  throw_internal(file, line, pattern, detail::format_kinds<A...>(), values);
}

}  // namespace mge

#define MGE_CHECK(cond, kind, ...) \
  (__builtin_expect(static_cast<bool>(cond), 1) ? (void)0 : ::mge::fail(::mge::ErrorKind::kind, __VA_ARGS__))
#define MGE_ASSERT(cond, ...) \
  (__builtin_expect(static_cast<bool>(cond), 1) ? (void)0 : ::mge::fail_internal(__FILE__, __LINE__, __VA_ARGS__))
#define MGE_FAIL_ENV(...) ::mge::fail(::mge::ErrorKind::Env, __VA_ARGS__)
