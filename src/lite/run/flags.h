// Command-line flags in the manner of gflags: --flag, --flag=v, --flag v, --noflag; dashes and underscores are the
// same.
//   Flags f(kTable); f.parse(argc, argv);  f.on("cpu"), f.integer("iter"), f.text("input"), f.positional()
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lite {

enum class FlagKind : unsigned char { Bool, Int, Text };

struct FlagDef {
  const char* name;  // with underscores
  FlagKind kind;
  const char* initial;  // "" for a text that is not set; "false" for a bool
  const char* doc;      // null: known by name, "not supported yet" when given
};

class Flags {
 public:
  explicit Flags(std::span<const FlagDef> table) : table_(table) {}
  /// Value errors name the flag, near names of an unknown one, and what a value should look like.
  void parse(int argc, const char* const* argv);

  bool on(std::string_view name) const;
  long integer(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  bool given(std::string_view name) const;
  const std::vector<std::string>& positional() const { return positional_; }
  std::string help() const;

 private:
  const FlagDef& find(const std::string& given, bool* negated) const;
  void set(const FlagDef& d, std::string value);
  [[noreturn]] void unknown(const std::string& name) const;

  std::span<const FlagDef> table_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> positional_;
};

}  // namespace lite
