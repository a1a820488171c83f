#include "lite/run/json.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"

namespace lite {
namespace {

constexpr int kMaxDepth = 64;

class Parser {
 public:
  Parser(std::string_view text, std::string_view who) : text_(text), who_(who) {}

  Json document() {
    Json j = value(0);
    space();
    if (at_ != text_.size()) fail("something follows the document");
    return j;
  }

 private:
  [[noreturn]] void fail(const char* what) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i, ++column)
      if (text_[i] == '\n') ++line, column = 0;
    mge::fail(mge::ErrorKind::Value, "{}:{}:{}: not valid JSON: {}.", who_, line, column, what);
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }

  Json value(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    space();
    if (at_ >= text_.size()) fail("a value is missing");
    char c = text_[at_];
    if (c == '{') return object(depth);
    if (c == '[') return array(depth);
    if (c == '"') return {string()};
    if (word("true")) return {true};
    if (word("false")) return {false};
    if (word("null")) return {};
    double d = 0;
    auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), d);
    if (r.ec == std::errc::invalid_argument) fail("a value was expected");
    at_ = static_cast<size_t>(r.ptr - text_.data());
    return {d};
  }
  Json array(int depth) {
    Json::Array out;
    take('[');
    if (take(']')) return {std::move(out)};
    do out.push_back(value(depth + 1));
    while (take(','));
    if (!take(']')) fail("expected , or ]");
    return {std::move(out)};
  }
  Json object(int depth) {
    Json::Object out;
    take('{');
    if (take('}')) return {std::move(out)};
    do {
      space();
      if (at_ >= text_.size() || text_[at_] != '"') fail("a name in quotes was expected");
      std::string key = string();
      if (!take(':')) fail("expected :");
      out[std::move(key)] = value(depth + 1);
    } while (take(','));
    if (!take('}')) fail("expected , or }");
    return {std::move(out)};
  }
  std::string string() {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      if (++at_ >= text_.size()) break;
      switch (char c = text_[at_]) {
        case 'n':
          out += '\n';
          break;
        case 't':
          out += '\t';
          break;
        case 'r':
          out += '\r';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'u':
          unicode(&out);
          break;
        default:
          out += c;
      }
    }
    if (at_ >= text_.size()) fail("a string does not end");
    ++at_;
    return out;
  }
  void unicode(std::string* out) {
    unsigned code = 0;
    auto r = std::from_chars(text_.data() + at_ + 1, text_.data() + std::min(text_.size(), at_ + 5), code, 16);
    if (r.ptr != text_.data() + at_ + 5) fail("\\u needs four hex digits");
    at_ += 4;
    if (code < 0x80) {
      *out += static_cast<char>(code);
    } else if (code < 0x800) {
      *out += static_cast<char>(0xc0 | code >> 6);
      *out += static_cast<char>(0x80 | (code & 63));
    } else {
      *out += static_cast<char>(0xe0 | code >> 12);
      *out += static_cast<char>(0x80 | (code >> 6 & 63));
      *out += static_cast<char>(0x80 | (code & 63));
    }
  }

  std::string_view text_, who_;
  size_t at_ = 0;
};

std::string quoted(std::string_view s) {
  mge::JsonText text;
  text.text(s);
  return text.str();
}

std::string number_text(double d) {
  if (!std::isfinite(d)) return "null";
  if (d == std::floor(d) && std::fabs(d) < 1e15) return mge::format("{}", static_cast<int64_t>(d));
  return mge::format("{:.9g}", d);
}

}  // namespace

void JsonWriter::member(std::string_view key, std::string_view text) { raw(key, quoted(text)); }
void JsonWriter::number(std::string_view key, double value) { raw(key, number_text(value)); }
void JsonWriter::flag(std::string_view key, bool on) { raw(key, on ? "true" : "false"); }
void JsonWriter::raw(std::string_view key, std::string_view json) {
  body_ += (body_.empty() ? "" : ",") + quoted(key) + ":";
  body_ += json;
}
void JsonList::text(std::string_view text) { add(quoted(text)); }
void JsonList::number(double value) { add(number_text(value)); }

Json parse_json(std::string_view text, std::string_view who) { return Parser(text, who).document(); }

std::string json_text(const Json& j) {
  if (const bool* b = std::get_if<bool>(&j.value)) return *b ? "true" : "false";
  if (const double* d = j.number()) return mge::format("{}", *d);
  if (const std::string* t = j.text()) return quoted(*t);
  std::string out;
  if (const Json::Array* a = j.array()) {
    for (const Json& x : *a) out += (out.empty() ? "" : ", ") + json_text(x);
    return "[" + out + "]";
  }
  if (const Json::Object* o = j.object()) {
    for (auto& [key, x] : *o) out += (out.empty() ? "" : ", ") + quoted(key) + ": " + json_text(x);
    return "{" + out + "}";
  }
  return "null";
}

}  // namespace lite
