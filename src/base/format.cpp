#include "base/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace mge {
namespace {

struct Spec {
  char align = 0;  // 0: numbers to the right, text to the left
  bool zeros = false, prefix = false;
  size_t width = 0;
  int precision = -1;
  char type = 0;
};

size_t number(const char*& p) {
  size_t n = 0;
  for (; *p >= '0' && *p <= '9'; ++p) n = n * 10 + static_cast<size_t>(*p - '0');
  return n;
}

// From behind the colon to the closing brace.
Spec parse(const char*& p) {
  Spec s;
  if (*p == '<' || *p == '>') s.align = *p++;
  if (*p == '#') s.prefix = true, ++p;
  if (*p == '0') s.zeros = true, ++p;
  s.width = number(p);
  if (*p == '.') s.precision = static_cast<int>(number(++p));
  if (*p && *p != '}') s.type = *p++;
  return s;
}

void pad(std::string& out, const Spec& s, std::string_view text, bool right) {
  const size_t fill = s.width > text.size() ? s.width - text.size() : 0;
  if (s.align) right = s.align == '>';
  if (s.zeros) {  // between sign or prefix and digits
    const size_t lead = text.starts_with("-") ? 1 : 0;
    out.append(text.substr(0, lead)).append(fill, '0').append(text.substr(lead));
    return;
  }
  if (right) out.append(fill, ' ');
  out.append(text);
  if (!right) out.append(fill, ' ');
}

void put_integer(std::string& out, const Spec& s, uint64_t magnitude, bool negative) {
  char buf[24], *end = buf + sizeof buf, *p = end;
  const unsigned base = s.type == 'x' ? 16 : 10;
  do *--p = "0123456789abcdef"[magnitude % base];
  while (magnitude /= base);
  if (s.prefix) *--p = 'x', *--p = '0';
  if (negative) *--p = '-';
  pad(out, s, {p, static_cast<size_t>(end - p)}, true);
}

// The fewest digits that are read back as the same number: 1e-05, 0.0001, 12, 1e+16.
template <class T>
void put_shortest(std::string& out, const Spec& s, T x) {
  char digits[40], text[64], *to = text;
  const auto made = std::to_chars(digits, digits + sizeof digits, x, std::chars_format::scientific);
  const char* e = std::find(digits, made.ptr, 'e');
  int exponent = 0;
  if (std::isfinite(x)) std::from_chars(e + 1 + (e[1] == '+'), made.ptr, exponent);
  if (!std::isfinite(x) || exponent < -4 || exponent >= 16) return pad(out, s, {digits, made.ptr}, true);
  const char* d = digits;
  if (*d == '-') *to++ = *d++;
  int left = exponent;  // digits before the point, less one
  if (left < 0) {
    *to++ = '0', *to++ = '.';
    while (++left < 0) *to++ = '0';
    for (; d != e; ++d)
      if (*d != '.') *to++ = *d;
  } else {
    for (; d != e; ++d) {
      if (*d == '.') continue;
      if (left-- == -1) *to++ = '.';
      *to++ = *d;
    }
    for (; left >= 0; --left) *to++ = '0';
  }
  pad(out, s, {text, to}, true);
}

void put_float(std::string& out, const Spec& s, double x) {
  char buf[400], *p = buf;
  if (s.type == 'a') {  // 0x1.8p+1
    if (std::signbit(x)) *p++ = '-';
    if (std::isfinite(x)) *p++ = '0', *p++ = 'x';
    p = std::to_chars(p, buf + sizeof buf, std::fabs(x), std::chars_format::hex).ptr;
  } else {
    const auto how = s.type == 'f' ? std::chars_format::fixed : std::chars_format::general;
    p = std::to_chars(p, buf + sizeof buf, x, how, s.precision < 0 ? 6 : s.precision).ptr;
  }
  pad(out, s, {buf, p}, true);
}

void put(std::string& out, const Spec& s, FormatKind kind, const FormatValue& v) {
  switch (kind) {
    case FormatKind::Bool:
      return pad(out, s, v.u ? "true" : "false", false);
    case FormatKind::Char: {
      const char c = static_cast<char>(v.i);
      return pad(out, s, {&c, 1}, false);
    }
    case FormatKind::Int:
      return put_integer(out, s, v.i < 0 ? 0 - v.u : v.u, v.i < 0);
    case FormatKind::Unsigned:
      return put_integer(out, s, v.u, false);
    case FormatKind::Float:
      return s.type || s.precision >= 0 ? put_float(out, s, v.f) : put_shortest(out, s, v.f);
    case FormatKind::Double:
      return s.type || s.precision >= 0 ? put_float(out, s, v.d) : put_shortest(out, s, v.d);
    case FormatKind::CString:
      return pad(out, s, v.p ? static_cast<const char*>(v.p) : "(null)", false);
    case FormatKind::String:
      return pad(out, s, *static_cast<const std::string*>(v.p), false);
    case FormatKind::View:
      return pad(out, s, *static_cast<const std::string_view*>(v.p), false);
    case FormatKind::Pointer:
      return put_integer(out, {.prefix = true, .type = 'x'}, v.u, false);
    case FormatKind::None:
      break;
  }
  out += "{?}";
}

}  // namespace

std::string format_values(const char* pattern, uint64_t kinds, const FormatValue* values) {
  std::string out;
  size_t next = 0;
  for (const char* p = pattern; *p;) {
    const size_t plain = std::strcspn(p, "{}");
    out.append(p, plain);
    p += plain;
    if (!*p) break;
    if (p[1] == p[0] || *p == '}') {  // {{ or }}
      out += *p;
      p += p[1] == p[0] ? 2 : 1;
      continue;
    }
    ++p;
    size_t which = next;
    if (*p >= '0' && *p <= '9')
      which = number(p);
    else
      ++next;
    Spec spec;
    if (*p == ':') spec = parse(++p);
    if (*p == '}') ++p;
    const auto kind = which * detail::kFormatBits < 64 ? kinds >> which * detail::kFormatBits & 15 : 0;
    put(out, spec, static_cast<FormatKind>(kind), values[kind ? which : 0]);
  }
  return out;
}

}  // namespace mge
