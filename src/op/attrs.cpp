#include "op/attrs.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/features.h"

namespace mge {
namespace {

constexpr const char* kKinds[] = {
    "a bool", "an int", "a float", "a string", "a list of ints", "a dtype", "a dtype, quantised with its scale"};

std::string print_double(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buf[40];
  auto r = std::to_chars(buf, buf + sizeof buf, d);
  std::string s(buf, r.ptr);
  if (s.find_first_of(".eE") == std::string::npos) s += ".0";  // a float stays a float when read back
  return s;
}

bool parse_int(std::string_view t, int64_t* out) {
  auto r = std::from_chars(t.data(), t.data() + t.size(), *out);
  return r.ec == std::errc() && r.ptr == t.data() + t.size();
}

std::string_view trim(std::string_view t) {
  while (!t.empty() && t.front() == ' ') t.remove_prefix(1);
  while (!t.empty() && t.back() == ' ') t.remove_suffix(1);
  return t;
}

}  // namespace

std::string print_attr(const AttrValue& v) {
  switch (v.index()) {
    case 0:
      return std::get<bool>(v) ? "true" : "false";
    case 1:
      return std::to_string(std::get<int64_t>(v));
    case 2:
      return print_double(std::get<double>(v));
    case 3: {
      std::string s = "\"";
      for (char c : std::get<std::string>(v)) {
        if (c == '\n') {  // IR text is one line per node
          s += "\\n";
          continue;
        }
        if (c == '"' || c == '\\') s += '\\';
        s += c;
      }
      return s + "\"";
    }
    case 4: {
      std::string s = "[";
      for (int64_t i : std::get<Ints>(v)) s += (s.size() > 1 ? "," : "") + std::to_string(i);
      return s + "]";
    }
    case 5:
      return std::string(dtype_name(std::get<DType>(v)));
    default:
      if (!has("quantised")) return std::string(dtype_name(std::get<QType>(v).dtype));
      return print_qtype(std::get<QType>(v));
  }
}

AttrValue parse_attr(std::string_view who, std::string_view text, const AttrValue& like) {
  std::string_view t = trim(text);
  switch (like.index()) {
    case 0:
      if (t == "true") return true;
      if (t == "false") return false;
      break;
    case 1: {
      int64_t v;
      if (parse_int(t, &v)) return v;
      break;
    }
    case 2: {
      if (t == "nan") return std::nan("");
      if (t == "inf" || t == "-inf") return t[0] == '-' ? -INFINITY : INFINITY;
      double v;
      auto r = std::from_chars(t.data(), t.data() + t.size(), v);
      if (r.ec == std::errc() && r.ptr == t.data() + t.size()) return v;
      break;
    }
    case 3:
      if (t.size() >= 2 && t.front() == '"') {
        std::string s;
        size_t i = 1;
        for (; i < t.size() && t[i] != '"'; ++i) {
          bool escaped = t[i] == '\\' && i + 1 < t.size();
          if (escaped) ++i;
          s += escaped && t[i] == 'n' ? '\n' : t[i];
        }
        if (i + 1 == t.size()) return s;  // the only unescaped quote is the last character
      }
      break;
    case 4: {
      if (t.size() < 2 || t.front() != '[' || t.back() != ']') break;
      t = t.substr(1, t.size() - 2);
      Ints out;
      while (!trim(t).empty()) {
        size_t comma = t.find(',');
        int64_t v;
        if (!parse_int(trim(t.substr(0, comma)), &v))
          fail(ErrorKind::Value, "{}: '{}' is not a list of ints.", who, text);
        out.push_back(v);
        if (comma == std::string_view::npos) break;
        t.remove_prefix(comma + 1);
      }
      return out;
    }
    case 5:
      return parse_dtype(t);
    default:
      require("quantised", "a quantised type");
      return parse_qtype(who, t);
  }
  fail(ErrorKind::Value, "{}: '{}' is not {}.", who, text, kKinds[like.index()]);
}

AttrValue coerce_attr(std::string_view who, AttrValue v, const AttrValue& like) {
  if (v.index() == like.index()) return v;
  if (like.index() == 2 && v.index() == 1) return static_cast<double>(std::get<int64_t>(v));
  if (like.index() == 1 && v.index() == 0) return static_cast<int64_t>(std::get<bool>(v));
  if (like.index() == 0 && v.index() == 1) return std::get<int64_t>(v) != 0;
  if (like.index() == 4 && v.index() == 1) return Ints{std::get<int64_t>(v)};
  if (like.index() == 5 && v.index() == 3) return parse_dtype(std::get<std::string>(v));
  if (like.index() == 6 && v.index() == 5) return QType{std::get<DType>(v), {}};
  if (has("quantised") && like.index() == 6 && v.index() == 3) return parse_qtype(who, std::get<std::string>(v));
  fail(ErrorKind::Type, "{}: expected {}, got {}.", who, kKinds[like.index()], print_attr(v));
}

namespace {

template <class V>
const V& field_as(const void* p) {
  return *static_cast<const V*>(p);
}
AttrValue load(uint8_t kind, const void* p) {
  switch (kind) {
    case 0:
      return field_as<bool>(p);
    case 1:
      return field_as<int64_t>(p);
    case 2:
      return field_as<double>(p);
    case 3:
      return field_as<std::string>(p);
    case 4:
      return field_as<Ints>(p);
    case 5:
      return field_as<DType>(p);
    default:
      return field_as<QType>(p);
  }
}
void store(const AttrValue& v, void* p) {
  std::visit([p](const auto& x) { *static_cast<std::remove_cvref_t<decltype(x)>*>(p) = x; }, v);
}
bool same(uint8_t kind, const void* a, const void* b) {
  switch (kind) {
    case 0:
      return field_as<bool>(a) == field_as<bool>(b);
    case 1:
      return field_as<int64_t>(a) == field_as<int64_t>(b);
    case 2: {
      const double x = field_as<double>(a), y = field_as<double>(b);
      return hash_double(x) == hash_double(y) || (x != x && y != y);
    }
    case 3:
      return field_as<std::string>(a) == field_as<std::string>(b);
    case 4:
      return field_as<Ints>(a) == field_as<Ints>(b);
    case 5:
      return field_as<DType>(a) == field_as<DType>(b);
    default:
      return field_as<QType>(a) == field_as<QType>(b);
  }
}
uint64_t hash_field(uint8_t kind, const void* p) {
  const uint64_t h = hash_mix(kind, 7);
  switch (kind) {
    case 0:
      return hash_mix(h, field_as<bool>(p));
    case 1:
      return hash_mix(h, static_cast<uint64_t>(field_as<int64_t>(p)));
    case 2: {
      const double d = field_as<double>(p);
      return hash_mix(h, d == d ? hash_double(d) : 1);  // every NaN alike, as in same
    }
    case 3:
      return hash_bytes(field_as<std::string>(p), h);
    case 4: {
      uint64_t all = h;
      for (int64_t i : field_as<Ints>(p)) all = hash_mix(all, static_cast<uint64_t>(i));
      return hash_mix(all, field_as<Ints>(p).size());
    }
    case 5:
      return hash_mix(h, static_cast<uint64_t>(field_as<DType>(p)));
    default: {
      const QType& t = field_as<QType>(p);
      return t.quant.hash(hash_mix(h, static_cast<uint64_t>(t.dtype)));
    }
  }
}

}  // namespace

uint64_t hash_attr(const AttrValue& v) {
  return std::visit([&](const auto& x) { return hash_field(static_cast<uint8_t>(v.index()), &x); }, v);
}

void AttrsBase::set_fields(AttrFields fields, const void* value) {
  fields_ = fields;
  value_at_ = static_cast<size_t>(static_cast<const char*>(value) - reinterpret_cast<const char*>(this));
  hash_ = 0x51ed;
  for (const AttrField& f : fields)
    hash_ = hash_mix(hash_, hash_field(f.kind, static_cast<const char*>(value) + f.offset));
}

bool AttrsBase::equal(const AttrsBase& o) const {
  if (o.type_ != type_ || o.hash_ != hash_) return false;
  for (const AttrField& f : fields_)
    if (!same(f.kind, value() + f.offset, o.value() + f.offset)) return false;
  return true;
}

std::vector<NamedAttr> AttrsBase::values() const { return attr_values(fields_, value()); }

std::vector<NamedAttr> attr_values(AttrFields fields, const void* value) {
  std::vector<NamedAttr> out;
  out.reserve(fields.size());
  for (const AttrField& f : fields) out.push_back({f.name, load(f.kind, static_cast<const char*>(value) + f.offset)});
  return out;
}

void set_attrs(AttrFields fields, void* value, std::string_view who, std::span<const NamedAttr> given) {
  size_t used = 0;
  for (const AttrField& f : fields) {
    void* at = static_cast<char*>(value) + f.offset;
    for (auto& g : given) {
      if (g.name != f.name) continue;
      if (g.value.index() == f.kind)
        store(g.value, at);
      else
        store(coerce_attr(format("{}: attribute '{}'", who, f.name), g.value, load(f.kind, at)), at);
      ++used;
    }
  }
  if (used == given.size()) return;
  for (auto& g : given)
    if (std::none_of(fields.begin(), fields.end(), [&](const AttrField& f) { return g.name == f.name; }))
      throw_unknown_attr(who, g.name, attr_values(fields, value));
}

int field_index(AttrFields fields, std::string_view name) {
  for (size_t i = 0; i < fields.size(); ++i)
    if (fields[i].name == name) return static_cast<int>(i);
  MGE_ASSERT(false, "no attribute '{}'", name);
  __builtin_unreachable();
}

std::string AttrsBase::print() const {
  std::string s = "{";
  for (auto& f : values()) s += (s.size() > 1 ? ", " : "") + f.name + "=" + print_attr(f.value);
  return s + "}";
}

void throw_unknown_attr(std::string_view who, std::string_view name, const std::vector<NamedAttr>& known) {
  std::string names;
  for (auto& k : known) names += (names.empty() ? "" : ", ") + k.name;
  fail(ErrorKind::Type, "{}: there is no attribute '{}'; known: {}.", who, name, names);
}

}  // namespace mge
