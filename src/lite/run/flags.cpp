#include "lite/run/flags.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace lite {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t best = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = std::exchange(row[j], best);
    }
  }
  return row.back();
}

bool parse_bool(const std::string& v, bool* out) {
  for (const char* t : {"true", "1", "yes", "on", "t", "y"})
    if (v == t) return *out = true;
  for (const char* f : {"false", "0", "no", "off", "f", "n"})
    if (v == f) return *out = false, true;
  return false;
}

bool parse_integer(const std::string& v, long* out) {
  auto r = std::from_chars(v.data(), v.data() + v.size(), *out);
  return r.ec == std::errc() && r.ptr == v.data() + v.size();
}

}  // namespace

void Flags::unknown(const std::string& name) const {
  std::vector<std::pair<size_t, std::string>> near;
  for (const FlagDef& d : table_) {
    size_t distance = edit_distance(name, d.name);
    std::string_view full = d.name;
    if (full.find(name) != std::string_view::npos) distance = 1;
    if (distance <= std::max<size_t>(2, name.size() / 3)) near.emplace_back(distance, d.name);
  }
  std::sort(near.begin(), near.end());
  std::string list;
  for (size_t i = 0; i < near.size() && i < 4; ++i) list += (i ? ", --" : "--") + near[i].second;
  mge::fail(mge::ErrorKind::Value, "there is no flag --{}.{} --help lists all.", name,
            list.empty() ? "" : " Did you mean " + list + "?");
}

const FlagDef& Flags::find(const std::string& given, bool* negated) const {
  for (const FlagDef& d : table_)
    if (given == d.name) return d;
  if (given.starts_with("no"))
    for (const FlagDef& d : table_)
      if (d.kind == FlagKind::Bool && given.substr(2) == d.name) return *negated = true, d;
  unknown(given);
}

void Flags::set(const FlagDef& d, std::string value) {
  MGE_CHECK(d.doc, NotImplemented, "--{} is not supported in this build yet.", d.name);
  bool b;
  long i;
  MGE_CHECK(d.kind != FlagKind::Bool || parse_bool(value, &b), Value, "--{} is true or false; got '{}'.", d.name,
            value);
  MGE_CHECK(d.kind != FlagKind::Int || parse_integer(value, &i), Value, "--{} takes a whole number; got '{}'.", d.name,
            value);
  values_[d.name] = std::move(value);
}

void Flags::parse(int argc, const char* const* argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  bool flags = true;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string a = args[i];
    if (!flags || a.size() < 2 || a[0] != '-' || (a[1] >= '0' && a[1] <= '9')) {
      positional_.push_back(a);
      continue;
    }
    if (a == "--") {
      flags = false;
      continue;
    }
    a.erase(0, a[1] == '-' ? 2 : 1);
    size_t equals = a.find('=');
    std::string name = a.substr(0, equals);
    std::replace(name.begin(), name.end(), '-', '_');
    bool negated = false;
    const FlagDef& d = find(name, &negated);
    if (equals != std::string::npos) {
      MGE_CHECK(!negated, Value, "--{} takes no value.", name);
      set(d, a.substr(equals + 1));
    } else if (d.kind == FlagKind::Bool) {
      set(d, negated ? "false" : "true");
    } else {
      MGE_CHECK(i + 1 < args.size(), Value, "--{} needs a value.", d.name);
      set(d, args[++i]);
    }
  }
}

const std::string& Flags::text(std::string_view name) const {
  if (auto it = values_.find(name); it != values_.end()) return it->second;
  thread_local std::string initial;
  for (const FlagDef& d : table_)
    if (name == d.name) return initial = d.initial;
  mge::fail_internal(__FILE__, __LINE__, "no flag {}", name);
}
bool Flags::given(std::string_view name) const { return values_.count(std::string(name)) > 0; }
bool Flags::on(std::string_view name) const {
  bool b = false;
  parse_bool(text(name), &b);
  return b;
}
long Flags::integer(std::string_view name) const {
  long i = 0;
  parse_integer(text(name), &i);
  return i;
}

std::string Flags::help() const {
  std::string s, later;
  for (const FlagDef& d : table_) {
    if (!d.doc) {
      later += (later.empty() ? "" : ", ") + std::string(d.name);
      continue;
    }
    std::string left = mge::format("  --{}{}", d.name,
                                   d.kind == FlagKind::Int    ? " N"
                                   : d.kind == FlagKind::Text ? " TEXT"
                                                              : "");
    s += left + std::string(left.size() < 30 ? 30 - left.size() : 1, ' ') + d.doc;
    if (d.kind == FlagKind::Int) s += mge::format(" ({})", d.initial);
    s += "\n";
  }
  return s + "Known but not supported yet: " + later + ".\n";
}

}  // namespace lite
