#include "lite/run/flags.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "serial/file.h"

namespace lite {
namespace {

constexpr int kMaxFiles = 8;  // --flagfile inside a flag file

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

template <class T>
bool parse_number(const std::string& v, T* out) {
  auto r = std::from_chars(v.data(), v.data() + v.size(), *out);
  return r.ec == std::errc() && r.ptr == v.data() + v.size();
}

const char* placeholder(FlagKind k) {
  switch (k) {
    case FlagKind::Int:
      return " N";
    case FlagKind::Number:
      return " X";
    case FlagKind::Text:
      return " TEXT";
    case FlagKind::File:
      return " FILE";
    case FlagKind::Folder:
      return " DIR";
    default:
      return "";
  }
}

}  // namespace

std::vector<std::string> near_names(std::string_view wrong, std::span<const std::string> names) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : names) {
    size_t distance = name.find(wrong) != std::string::npos ? 1 : edit_distance(wrong, name);
    if (distance <= std::max<size_t>(2, wrong.size() / 3)) near.emplace_back(distance, name);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < near.size() && i < 4; ++i) out.push_back(near[i].second);
  return out;
}

void Flags::unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const FlagDef& d : table_) names.emplace_back(d.name);
  std::string list;
  for (const std::string& n : near_names(name, names)) list += (list.empty() ? "--" : ", --") + n;
  mge::fail(mge::ErrorKind::Value, "there is no flag --{}.{} --help lists all.", name,
            list.empty() ? "" : " Did you mean " + list + "?");
}

const FlagDef* Flags::find(std::string_view name) const {
  for (const FlagDef& d : table_)
    if (name == d.name) return &d;
  return nullptr;
}

void Flags::set(const FlagDef& d, std::string value) {
  bool b = true;
  long i;
  double x;
  MGE_CHECK(d.kind != FlagKind::Bool || parse_bool(value, &b), Value, "--{} is true or false; got '{}'.", d.name,
            value);
  MGE_CHECK(d.state != FlagState::Refused || !b, NotImplemented, "--{} is not supported: {}.", d.name, d.doc);
  MGE_CHECK(d.kind != FlagKind::Int || parse_number(value, &i), Value, "--{} takes a whole number; got '{}'.", d.name,
            value);
  MGE_CHECK(d.kind != FlagKind::Number || parse_number(value, &x), Value, "--{} takes a number; got '{}'.", d.name,
            value);
  MGE_CHECK(d.kind != FlagKind::File || !value.empty(), Value, "--{} needs the name of a file.", d.name);
  MGE_CHECK(d.kind != FlagKind::Folder || !value.empty(), Value, "--{} needs the name of a folder.", d.name);
  values_[d.name] = std::move(value);
  std::erase(order_, d.name);
  order_.emplace_back(d.name);
}

void Flags::parse(int argc, const char* const* argv) { parse({argv + 1, argv + argc}, 0); }

void Flags::parse(const std::vector<std::string>& args, int depth) {
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
    const FlagDef* d = find(name);
    const bool negated = !d && name.starts_with("no");
    if (negated) d = find(name.substr(2));
    if (!d || (negated && d->kind != FlagKind::Bool)) unknown(name);
    if (equals != std::string::npos) {
      MGE_CHECK(!negated, Value, "--{} takes no value.", name);
      set(*d, a.substr(equals + 1));
    } else if (d->kind == FlagKind::Bool) {
      set(*d, negated ? "false" : "true");
    } else {
      MGE_CHECK(i + 1 < args.size(), Value, "--{} needs a value.", d->name);
      set(*d, args[++i]);
    }
    if (name == "flagfile") read_file(text(name), depth);
    if (name == "fromenv") read_environment(text(name));
  }
}

void Flags::read_file(const std::string& path, int depth) {
  MGE_CHECK(depth < kMaxFiles, Value, "--flagfile {}: files name each other in a circle.", path);
  const mge::serial::File file = mge::serial::open_file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  std::vector<std::string> args;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == '#') continue;
    args.emplace_back(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
  }
  parse(args, depth + 1);
}

void Flags::read_environment(const std::string& names) {
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    std::replace(name.begin(), name.end(), '-', '_');
    const FlagDef* d = find(name);
    if (!d) unknown(name);
    const char* value = std::getenv(("FLAGS_" + name).c_str());
    MGE_CHECK(value, Value, "--fromenv: FLAGS_{} is not set.", name);
    set(*d, value);
  }
}

const std::string& Flags::text(std::string_view name) const {
  if (auto it = values_.find(name); it != values_.end()) return it->second;
  thread_local std::string initial;
  if (const FlagDef* d = find(name)) return initial = d->initial;
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
  parse_number(text(name), &i);
  return i;
}
double Flags::number(std::string_view name) const {
  double x = 0;
  parse_number(text(name), &x);
  return x;
}

std::string_view Flags::last_of(std::initializer_list<std::string_view> names) const {
  for (auto it = order_.rbegin(); it != order_.rend(); ++it)
    for (std::string_view n : names)
      if (*it == n && (find(n)->kind != FlagKind::Bool || on(n))) return n;
  return "";
}

std::vector<std::string> Flags::notes() const {
  std::vector<std::string> out;
  for (const std::string& name : order_)
    if (const FlagDef* d = find(name); d->state == FlagState::Always && (d->kind != FlagKind::Bool || on(name)))
      out.push_back(mge::format("--{} changes nothing: {}", name, d->doc));
  return out;
}

std::string Flags::help(std::string_view match) const {
  constexpr size_t kColumn = 40;
  auto line = [&](const FlagDef& d) {
    std::string left = mge::format("  --{}{}", d.name, placeholder(d.kind));
    left += std::string(left.size() < kColumn - 1 ? kColumn - left.size() : 1, ' ') + d.doc;
    const bool shown = (d.kind == FlagKind::Int || d.kind == FlagKind::Text) && *d.initial && *d.initial != '-' &&
                       d.state == FlagState::Works;
    return left + (shown ? mge::format(" ({})", d.initial) : "") + "\n";
  };
  auto matches = [&](const FlagDef& d) {
    return std::string_view(d.name).find(match) != std::string_view::npos ||
           std::string_view(d.doc).find(match) != std::string_view::npos;
  };
  auto section = [&](std::string_view title, auto&& belongs) {
    std::string lines;
    for (const FlagDef& d : table_)
      if (belongs(d) && matches(d)) lines += line(d);
    return lines.empty() ? lines : mge::format("\n{}\n{}", title, lines);
  };
  std::string out;
  std::vector<std::string_view> groups;
  for (const FlagDef& d : table_)
    if (std::find(groups.begin(), groups.end(), d.group) == groups.end()) groups.emplace_back(d.group);
  for (std::string_view g : groups)
    out += section(g, [&](const FlagDef& d) { return g == d.group && d.state == FlagState::Works; });
  out += section("So in any case (accepted, and said when given)",
                 [](const FlagDef& d) { return d.state == FlagState::Always; });
  out += section("Refused", [](const FlagDef& d) { return d.state == FlagState::Refused; });
  return out;
}

}  // namespace lite
