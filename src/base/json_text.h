// JSON written piece by piece; commas come by themselves.
//   JsonText j; j.open('{').key("shape").open('[').number(2).number(3).close().close();   j.str() == {"shape":[2,3]}
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace mge {

class JsonText {
 public:
  JsonText& open(char bracket);  // '{' or '['
  JsonText& close();
  JsonText& key(std::string_view k);
  JsonText& text(std::string_view s);
  JsonText& number(int64_t n) { return raw(std::to_string(n)); }
  /// What JSON has no number for (NaN, infinity) is null.
  JsonText& real(double n);
  JsonText& boolean(bool b) { return raw(b ? "true" : "false"); }
  JsonText& null() { return raw("null"); }
  /// JSON already.
  JsonText& raw(std::string_view json);
  const std::string& str() const { return out_; }

 private:
  void separate();
  void quote(std::string_view s);
  std::string out_, open_;
  bool first_ = true;
};

}  // namespace mge
