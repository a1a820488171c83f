#include <cctype>
#include <cstring>
#include <unordered_set>

#include "base/features.h"
#include "ir/text.h"

namespace mge::ir {
namespace {

bool plain(std::string_view s) {
  if (s.empty()) return false;
  for (char c : s)
    if (!isalnum(static_cast<unsigned char>(c)) && !strchr("_.-/:", c)) return false;
  return s.find("->") == std::string_view::npos && s.back() != ':';
}

std::string quote(std::string_view s) { return print_attr(std::string(s)); }

// Numbers belong to unnamed results and c<number> to unnamed constants, so a user's name of that form is quoted.
bool reserved(std::string_view s) {
  if (s.substr(0, 1) == "c" || s.substr(0, 1) == "t") s.remove_prefix(1);
  return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
}

class Names {
 public:
  explicit Names(const Graph& g) : g_(g), text_(g.n_values()) {
    for (ValueId v : g.inputs()) name(v);  // inputs and vars first: theirs are kept as they are
    for (auto& x : g.vars()) name(x.in);
    int constants = 0, results = 0, tokens = 0;
    for (auto& c : g.constants())
      if (c.value != kNone && !name(c.value)) text_[c.value] = "c" + std::to_string(constants++);
    for (NodeId n = g.first(); n != kNone; n = g.node(n).next) {
      for (ValueId v : g.node(n).outputs)
        if (!name(v)) text_[v] = std::to_string(results++);
      if (ValueId t = g.node(n).token_out; t != kNone) text_[t] = "t" + std::to_string(tokens++);
    }
  }
  std::string operator()(ValueId v) const {
    if (v < 0 || static_cast<size_t>(v) >= text_.size() || text_[v].empty()) return format("%<{}>", v);
    return "%" + text_[v];
  }
  /// Output `i` needs no `name=`: the parser gives it this name by itself.
  bool implied(ValueId v, size_t i, const std::string& name) const {
    if (g_.value(v).name.empty()) return name == "out" + std::to_string(i);
    return text_[v] == (plain(name) && !reserved(name) ? name : quote(name));
  }

 private:
  bool name(ValueId v) {
    std::string s = g_.value(v).name;
    if (s.empty()) return false;
    for (int i = 1; !taken_.insert(s).second; ++i) s = g_.value(v).name + "." + std::to_string(i);
    text_[v] = plain(s) && !reserved(s) ? s : quote(s);
    return true;
  }
  const Graph& g_;
  std::vector<std::string> text_;
  std::unordered_set<std::string> taken_;
};

std::string attrs_text(const Node& n) {
  if (!n.attrs) return {};
  auto values = n.attrs->values();
  const auto& defaults = n.op->schema.defaults;
  std::string s;
  for (size_t i = 0; i < values.size(); ++i)
    if (i >= defaults.size() || values[i].value != defaults[i].value)
      s += (s.empty() ? " {" : ", ") + values[i].name + "=" + print_attr(values[i].value);
  return s.empty() ? s : s + "}";
}

std::string loc_text(const Loc& l) {
  std::string s = "loc";
  if (!l.file.empty())
    s += " " + (plain(l.file) && l.file.find(':') == std::string::npos ? l.file : quote(l.file)) + ":" +
         std::to_string(l.line);
  if (!l.function.empty()) s += " in " + (plain(l.function) ? l.function : quote(l.function));
  if (!l.note.empty()) s += " (" + (plain(l.note) ? l.note : quote(l.note)) + ")";
  if (!l.scope.empty()) s += " of " + (plain(l.scope) ? l.scope : quote(l.scope));
  return s;
}

std::string node_text(const Graph& g, const Names& names, NodeId id, const PrintOptions& opt) {
  const Node& n = g.node(id);
  std::string s;
  for (ValueId v : n.outputs) s += (s.empty() ? "" : ", ") + names(v);
  if (!s.empty()) s += " = ";
  s += n.op->name;
  for (size_t i = 0; i < n.inputs.size(); ++i) s += (i ? ", " : " ") + names(n.inputs[i]);
  s += attrs_text(n);
  for (size_t i = 0; i < n.sizes.size(); ++i) {
    const SizeUse& u = n.sizes[i];
    s += (i ? ", " : " sizes(") + n.op->schema.defaults[static_cast<size_t>(u.field)].name;
    if (u.element != SizeOperand::kWhole) s += "[" + std::to_string(u.element) + "]";
    s += "=" + names(u.value);
  }
  if (!n.sizes.empty()) s += ")";
  if (opt.types)
    for (size_t i = 0; i < n.outputs.size(); ++i) s += (i ? ", " : " : ") + print_type(g.meta(n.outputs[i]));
  if (n.token_out != kNone) {
    bool first = g.value(n.token_in).producer == kNone;
    s += " token(" + (first ? std::string("entry") : names(n.token_in)) + " -> " + names(n.token_out) + ")";
  }
  if (opt.locations && n.loc != kNoLoc) {
    constexpr size_t kLocColumn = 48;
    s += std::string(s.size() < kLocColumn ? kLocColumn - s.size() : 0, ' ') + "  " + loc_text(g.location(n.loc));
  }
  return s;
}

std::string hex(const void* data, size_t n) {
  static const char digits[] = "0123456789abcdef";
  std::string s;
  for (size_t i = 0; i < n; ++i) {
    unsigned char b = static_cast<const unsigned char*>(data)[i];
    s += digits[b >> 4];
    s += digits[b & 15];
  }
  return s;
}

}  // namespace

std::string_view short_dtype_name(DType t) {
  switch (t) {
    case DType::U8:
      return "u8";
    case DType::I8:
      return "i8";
    case DType::U16:
      return "u16";
    case DType::I16:
      return "i16";
    case DType::I32:
      return "i32";
    case DType::I64:
      return "i64";
    case DType::F16:
      return "f16";
    case DType::BF16:
      return "bf16";
    case DType::F32:
      return "f32";
    case DType::F64:
      return "f64";
    case DType::C64:
      return "c64";
    default:
      return dtype_name(t);
  }
}

std::string print_type(const Meta& m) {
  std::string s(short_dtype_name(m.dtype));
  if (has("quantised") && m.quant.scale != 0) s += print_quant(m.quant);
  s += m.shape.str();
  if (m.cn && m.cn != CompNode::default_node()) s += "@" + m.cn->logical;
  return s;
}

std::string print_node(const Graph& g, NodeId n) { return node_text(g, Names(g), n, {}); }

std::string print(const Graph& g, const PrintOptions& opt) {
  Names names(g);
  std::string s = "graph " + (plain(g.name()) ? g.name() : quote(g.name())) + "(";
  for (size_t i = 0; i < g.inputs().size(); ++i)
    s += (i ? ", " : "") + names(g.inputs()[i]) + ": " + print_type(g.meta(g.inputs()[i]));
  s += ")";
  for (size_t i = 0; i < g.vars().size(); ++i)
    s += (i ? ", " : " vars(") + names(g.vars()[i].in) + ": " + print_type(g.meta(g.vars()[i].in));
  s += g.vars().empty() ? " {\n" : ") {\n";
  for (auto& c : g.constants()) {
    if (c.value == kNone) continue;
    const Meta& m = g.meta(c.value);
    s += "  const " + names(c.value) + ": " + print_type(m);
    if (c.storage && m.bytes() > 0 && m.bytes() <= opt.max_const_bytes) s += " = " + hex(c.data(), m.bytes());
    s += "\n";
  }
  for (NodeId n = g.first(); n != kNone; n = g.node(n).next) s += "  " + node_text(g, names, n, opt) + "\n";
  for (auto& x : g.guards()) {
    s += "  guard " + names(x.value) + " = " + hex(x.want.data(), x.want.size());
    if (opt.locations && x.loc != kNoLoc) s += "  " + loc_text(g.location(x.loc));
    s += "\n";
  }
  s += "} returns(";
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const Output& o = g.outputs()[i];
    if (i) s += ", ";
    if (!names.implied(o.value, i, o.name)) s += (plain(o.name) ? o.name : quote(o.name)) + "=";
    s += names(o.value);
  }
  s += ")";
  bool first = true;
  for (auto& v : g.vars()) {
    if (v.out == kNone) continue;
    s += (first ? " commits(" : ", ") + names(v.in) + " <- " + names(v.out);
    first = false;
  }
  return s + (first ? "\n" : ")\n");
}

}  // namespace mge::ir
