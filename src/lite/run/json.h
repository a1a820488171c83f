// The little JSON that Lite needs: writing flat objects, reading input files.
//   JsonWriter w; w.member("key", "text"); w.str() == R"({"key":"text"})"
//   Json j = parse_json(text, "inputs.json");
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lite {

class JsonWriter {
 public:
  void member(std::string_view key, std::string_view text);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

struct Json {
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;
  std::variant<std::monostate, bool, double, std::string, Array, Object> value;

  const Object* object() const { return std::get_if<Object>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const double* number() const { return std::get_if<double>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
};

/// A Value error with line and column, starting with `who`.
Json parse_json(std::string_view text, std::string_view who);
/// On one line, members by name.
std::string json_text(const Json& j);

}  // namespace lite
