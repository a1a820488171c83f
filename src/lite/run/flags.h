// Command-line flags in the manner of gflags: --flag, --flag=v, --flag v, --noflag; dashes and underscores are the
// same.
//   Flags f(kTable); f.parse(argc, argv);  f.on("cpu"), f.integer("iter"), f.text("input"), f.positional()
// --flagfile FILE (a flag per line) and --fromenv a,b (from FLAGS_a, FLAGS_b) are read where they stand.
#pragma once
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lite {

enum class FlagKind : unsigned char { Bool, Int, Number, Text, File, Folder };

enum class FlagState : unsigned char {
  Works,
  Always,   // what it asks for is so in any case; `doc` says why, and is told when it is given
  Refused,  // `doc` is the reason, and the way out
};

struct FlagDef {
  const char* name;  // with underscores
  FlagKind kind;
  const char* initial;  // "" for a text that is not set; "false" for a bool
  const char* doc;
  const char* group = "";  // its heading in the help
  FlagState state = FlagState::Works;
};

class Flags {
 public:
  explicit Flags(std::span<const FlagDef> table) : table_(table) {}
  /// Errors name the flag, near names of an unknown one, and what a value should look like.
  void parse(int argc, const char* const* argv);
  void set(std::string_view name, std::string value) { set(*find(name), std::move(value)); }

  bool on(std::string_view name) const;
  long integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  bool given(std::string_view name) const;
  /// Of these, the one that was given last; "" when none was.
  std::string_view last_of(std::initializer_list<std::string_view> names) const;
  const std::vector<std::string>& positional() const { return positional_; }
  const FlagDef& definition(std::string_view name) const { return *find(name); }
  /// "--cpu_default: ..." for each flag that was given and changes nothing.
  std::vector<std::string> notes() const;
  /// Flags by group, those that are refused last with the reason. `match`: only those whose name or text has it.
  std::string help(std::string_view match = {}) const;

 private:
  void parse(const std::vector<std::string>& args, int depth);
  void read_file(const std::string& path, int depth);
  void read_environment(const std::string& names);
  const FlagDef* find(std::string_view name) const;  // null: not there
  void set(const FlagDef& d, std::string value);
  [[noreturn]] void unknown(const std::string& name) const;

  std::span<const FlagDef> table_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> order_;  // names as they were given
  std::vector<std::string> positional_;
};

/// Up to four of `names` that somebody who wrote `wrong` may have meant, the nearest first.
std::vector<std::string> near_names(std::string_view wrong, std::span<const std::string> names);

}  // namespace lite
