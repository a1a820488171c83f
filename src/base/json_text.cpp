#include "base/json_text.h"

#include <cmath>

#include "base/error.h"

namespace mge {

void JsonText::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

// Bytes that are no UTF-8 (names are the user's) would make the whole text unreadable.
void JsonText::quote(std::string_view s) {
  out_ += '"';
  for (size_t i = 0; i < s.size(); ++i) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += s[i];
    } else if (c < 0x20 || c == 0x7f) {
      out_ += format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (c < 0x80) {
      out_ += s[i];
    } else {
      const size_t n = c >= 0xf5 ? 0 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
      bool good = n > 0 && i + n <= s.size();
      for (size_t k = 1; good && k < n; ++k) good = (static_cast<unsigned char>(s[i + k]) & 0xc0) == 0x80;
      if (good && n == 3) {  // surrogates and overlong forms
        const auto d = static_cast<unsigned char>(s[i + 1]);
        good = !(c == 0xe0 && d < 0xa0) && !(c == 0xed && d > 0x9f);
      } else if (good && n == 4) {
        const auto d = static_cast<unsigned char>(s[i + 1]);
        good = !(c == 0xf0 && d < 0x90) && !(c == 0xf4 && d > 0x8f);
      }
      if (!good) {
        out_ += "\\ufffd";
        continue;
      }
      out_ += s.substr(i, n);
      i += n - 1;
    }
  }
  out_ += '"';
}

JsonText& JsonText::open(char bracket) {
  separate();
  out_ += bracket;
  open_ += bracket;
  first_ = true;
  return *this;
}

JsonText& JsonText::close() {
  MGE_ASSERT(!open_.empty(), "json: nothing is open");
  out_ += open_.back() == '{' ? '}' : ']';
  open_.pop_back();
  first_ = false;
  return *this;
}

JsonText& JsonText::key(std::string_view k) {
  separate();
  quote(k);
  out_ += ':';
  first_ = true;
  return *this;
}

JsonText& JsonText::text(std::string_view s) {
  separate();
  quote(s);
  return *this;
}

JsonText& JsonText::real(double n) { return std::isfinite(n) ? raw(format("{:.9g}", n)) : null(); }

JsonText& JsonText::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

}  // namespace mge
