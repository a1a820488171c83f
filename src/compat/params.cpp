#include "compat/params.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

namespace mge::compat {

EnumInfo make_enum(std::string_view owner, std::string_view name, std::string_view list) {
  EnumInfo e{owner, name, list.find('=') != std::string_view::npos, {}};
  while (!list.empty()) {
    size_t begin = list.find_first_not_of(" \n,");
    if (begin == std::string_view::npos) break;
    size_t end = std::min(list.find(',', begin), list.size());
    std::string_view member = list.substr(begin, end - begin);
    e.members.push_back(member.substr(0, member.find_first_of(" =")));
    list.remove_prefix(end);
  }
  return e;
}

int64_t parse_member(const EnumInfo& e, std::string_view text) {
  auto same = [](std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b,
                              [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
  };
  int64_t bits = 0;
  for (std::string_view rest = text;;) {
    std::string_view one = rest.substr(0, e.bits ? rest.find('|') : rest.size());
    auto at = std::ranges::find_if(e.members, [&](std::string_view m) { return same(m, one); });
    if (at == e.members.end()) {
      std::string known;
      for (auto m : e.members) known += (known.empty() ? "" : ", ") + std::string(m);
      fail(ErrorKind::Value, "{}.{}: one of {} is needed; got '{}'.", e.owner, e.name, known, text);
    }
    int64_t index = at - e.members.begin();
    if (!e.bits) return index;
    bits |= int64_t{1} << index;
    if (one.size() == rest.size()) return bits;
    rest.remove_prefix(one.size() + 1);
  }
}

namespace {

uint64_t hash_text(uint64_t h, std::string_view s) { return hash_mix(h, hash_attr(AttrValue(std::string(s)))); }

struct Hasher {
  uint64_t h;
  uint64_t operator()(bool v) { return hash_mix(h, v); }
  uint64_t operator()(int64_t v) { return hash_mix(h, static_cast<uint64_t>(v)); }
  uint64_t operator()(double v) { return hash_mix(h, hash_double(v)); }
  uint64_t operator()(const std::string& v) { return hash_text(h, v); }
  uint64_t operator()(const Ints& v) { return hash_mix(h, hash_attr(AttrValue(v))); }
  uint64_t operator()(const Rows& v) {
    for (auto& row : v) h = hash_mix(h, hash_attr(AttrValue(row)));
    return h;
  }
  uint64_t operator()(const TypeParam& v) {
    h = hash_mix(h, v.dtype ? static_cast<uint64_t>(*v.dtype) : 255);
    return hash_mix(hash_mix(h, hash_double(v.quant.scale)), static_cast<uint64_t>(v.quant.zero_point));
  }
  uint64_t operator()(const NodeParam& v) { return hash_text(h, v.name); }
  uint64_t operator()(const Bytes& v) { return hash_text(h, v.data); }
};

std::string joined(const Ints& v) { return print_attr(AttrValue(v)); }

}  // namespace

uint64_t hash_param(const ParamValue& v) { return std::visit(Hasher{v.index()}, v); }

std::string print_param(const Field& f, const ParamValue& v) {
  if (f.kind == Kind::Unsigned) return format("{}", static_cast<uint64_t>(std::get<int64_t>(v)));
  if (f.kind == Kind::Enum) {
    int64_t n = std::get<int64_t>(v);
    if (!f.members->bits) return std::string(f.members->members.at(static_cast<size_t>(n)));
    std::string out;
    for (size_t i = 0; i < f.members->members.size(); ++i)
      if (n >> i & 1) out += (out.empty() ? "" : "|") + std::string(f.members->members[i]);
    return out;
  }
  if (auto* rows = std::get_if<Rows>(&v)) {
    std::string out = "[";
    for (auto& row : *rows) out += (out.size() > 1 ? "," : "") + joined(row);
    return out + "]";
  }
  if (auto* t = std::get_if<TypeParam>(&v)) return t->dtype ? std::string(dtype_name(*t->dtype)) : "None";
  if (auto* n = std::get_if<NodeParam>(&v)) return n->name.empty() ? "None" : n->name;
  if (auto* b = std::get_if<Bytes>(&v)) return format("<{} bytes>", b->data.size());
  return std::visit(
      [](const auto& x) -> std::string {
        if constexpr (std::is_constructible_v<AttrValue, decltype(x)>)
          return print_attr(AttrValue(x));
        else
          return {};
      },
      v);
}

namespace detail {

ParamValue fit(std::string_view who, const Field& f, const ParamValue& v) {
  if (auto* text = std::get_if<std::string>(&v)) {
    if (f.kind == Kind::Enum) return parse_member(*f.members, *text);
    if (f.kind == Kind::Node) return NodeParam{*text};
    if (f.kind == Kind::Type) return TypeParam{parse_dtype(*text), {}};
  }
  if (f.kind == Kind::Enum && std::holds_alternative<int64_t>(v)) {
    int64_t n = std::get<int64_t>(v), size = static_cast<int64_t>(f.members->members.size());
    MGE_CHECK(n >= 0 && n < (f.members->bits ? int64_t{1} << size : size), Value, "{}: {} has no member number {}.",
              who, f.members->name, n);
    return v;
  }
  if (v.index() == f.value.index()) return v;
  const bool* b = std::get_if<bool>(&v);
  const int64_t* n = std::get_if<int64_t>(&v);
  const double* d = std::get_if<double>(&v);
  switch (f.kind) {
    case Kind::Bool:
      if (n) return *n != 0;
      break;
    case Kind::Int:
    case Kind::Unsigned:
      if (b) return int64_t{*b};
      if (d && *d == std::floor(*d)) return static_cast<int64_t>(*d);
      break;
    case Kind::Float:
      if (b) return *b ? 1.0 : 0.0;
      if (n) return static_cast<double>(*n);
      break;
    case Kind::Ints:
      if (n) return Ints{*n};
      if (auto* rows = std::get_if<Rows>(&v); rows && rows->empty()) return Ints{};
      break;
    case Kind::Rows:
      if (auto* ints = std::get_if<Ints>(&v); ints && ints->empty()) return Rows{};
      break;
    default:
      break;
  }
  static const char* const kNames[] = {"a bool",   "an integer",       "a number",        "a string",
                                       "integers", "rows of integers", "a dtype or None", "a device",
                                       "bytes",    "an integer",       "an enum member"};
  fail(ErrorKind::Type, "{}: parameter '{}' must be {}.", who, f.name, kNames[static_cast<int>(f.kind)]);
}

namespace {

ParamValue load(Kind kind, const void* p) {
  auto as = [p](const auto& like) -> decltype(auto) {
    return *static_cast<const std::remove_cvref_t<decltype(like)>*>(p);
  };
  switch (kind) {
    case Kind::Bool:
      return as(false);
    case Kind::Float:
      return as(0.0);
    case Kind::Text:
      return as(std::string());
    case Kind::Ints:
      return as(Ints());
    case Kind::Rows:
      return as(Rows());
    case Kind::Type:
      return as(TypeParam());
    case Kind::Node:
      return as(NodeParam());
    case Kind::Bytes:
      return as(Bytes());
    default: {  // numbers of 64 bits, whatever they are called
      int64_t n;
      std::memcpy(&n, p, sizeof n);
      return n;
    }
  }
}

}  // namespace

std::vector<Field> fields_of(ParamRows rows, const void* defaults) {
  std::vector<Field> out;
  for (const ParamRow& r : rows)
    out.push_back({r.name, r.kind, load(r.kind, static_cast<const char*>(defaults) + r.offset),
                   r.members ? &r.members() : nullptr});
  return out;
}

void set_params(ParamRows rows, void* params, std::span<const ParamValue> values) {
  for (size_t i = 0; i < rows.size(); ++i)
    std::visit(
        [to = static_cast<char*>(params) + rows[i].offset](const auto& v) {
          using V = std::remove_cvref_t<decltype(v)>;
          if constexpr (std::is_same_v<V, int64_t>)
            std::memcpy(to, &v, sizeof v);
          else
            *reinterpret_cast<V*>(to) = v;
        },
        values[i]);
}

}  // namespace detail
}  // namespace mge::compat
