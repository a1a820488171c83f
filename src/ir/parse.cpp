#include <cctype>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "ir/text.h"
#include "ir/verify.h"

namespace mge::ir {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view t) : text_(t) {}

  Graph run() {
    expect_word("graph");
    g_ = Graph(name_text("a graph name"));
    typed_list([&](std::string name, const Meta& m) { return g_.add_input(std::move(name), m); });
    if (word("vars")) typed_list([&](std::string name, const Meta& m) { return g_.add_var(std::move(name), m); });
    expect("{");
    while (!symbol("}")) statement();
    expect_word("returns");
    expect("(");
    for (bool first = true; !symbol(")"); first = false) {
      if (!first) expect(",");
      output();
    }
    if (word("commits")) commits();
    skip_space();
    if (pos_ != text_.size()) error("expected the end of the text");
    verify(g_);
    return std::move(g_);
  }

 private:
  // Lexing.
  [[noreturn]] void error(const std::string& why, size_t at) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < text_.size(); ++i) text_[i] == '\n' ? (++line, column = 1) : ++column;
    fail(ErrorKind::Value, "graph text {}:{}: {}.", line, column, why);
  }
  [[noreturn]] void error(const std::string& why) {
    skip_space();
    size_t end = pos_;
    while (end < text_.size() && end < pos_ + 20 && text_[end] != '\n') ++end;
    std::string got = end == pos_ ? (pos_ < text_.size() ? "the end of the line" : "the end")
                                  : "'" + std::string(text_.substr(pos_, end - pos_)) + "'";
    error(why + ", got " + got, pos_);
  }
  void skip_space() {
    while (pos_ < text_.size()) {
      if (isspace(static_cast<unsigned char>(text_[pos_])))
        ++pos_;
      else if (text_[pos_] == '#')
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      else
        return;
    }
  }
  /// Spaces only; false at the end of the line.
  bool same_line() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t')) ++pos_;
    return pos_ < text_.size() && text_[pos_] != '\n' && text_[pos_] != '#' && text_[pos_] != '\r';
  }
  bool symbol(std::string_view s) {
    skip_space();
    if (text_.substr(pos_, s.size()) != s) return false;
    pos_ += s.size();
    return true;
  }
  void expect(std::string_view s) {
    if (!symbol(s)) error("expected '" + std::string(s) + "'");
  }
  static bool word_char(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  static bool name_char(char c) { return word_char(c) || (c && strchr(".-/:", c)); }
  bool word(std::string_view w) {
    skip_space();
    if (text_.substr(pos_, w.size()) != w) return false;
    size_t end = pos_ + w.size();
    if (end < text_.size() && word_char(text_[end])) return false;
    pos_ = end;
    return true;
  }
  void expect_word(std::string_view w) {
    if (!word(w)) error("expected '" + std::string(w) + "'");
  }
  std::string quoted() {
    size_t start = pos_++;
    while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\n') pos_ += text_[pos_] == '\\' ? 2 : 1;
    if (pos_ >= text_.size() || text_[pos_] != '"') error("the string is not closed", start);
    ++pos_;
    return std::get<std::string>(parse_attr("graph text", text_.substr(start, pos_ - start), AttrValue(std::string())));
  }
  /// A bare or quoted name. A trailing ':' belongs to what follows ("%x: f32"), as does the "->" of a token.
  std::string name_text(const char* what, bool* was_quoted = nullptr) {
    skip_space();
    if (was_quoted) *was_quoted = pos_ < text_.size() && text_[pos_] == '"';
    if (pos_ < text_.size() && text_[pos_] == '"') return quoted();
    size_t start = pos_;
    while (pos_ < text_.size() && name_char(text_[pos_]) && text_.substr(pos_, 2) != "->") ++pos_;
    if (pos_ > start && text_[pos_ - 1] == ':') --pos_;
    if (pos_ == start) error(std::string("expected ") + what);
    return std::string(text_.substr(start, pos_ - start));
  }
  int64_t integer(const char* what) {
    skip_space();
    int64_t v = 0;
    auto r = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), v);
    if (r.ec != std::errc()) error(std::string("expected ") + what);
    pos_ = static_cast<size_t>(r.ptr - text_.data());
    return v;
  }

  // Values.
  struct Name {
    std::string key;   // unique in the text: quoted names keep their quote
    std::string name;  // what the value is called; empty for %0, %c0, %t0
    size_t at;
  };
  Name value_name() {
    expect("%");
    size_t at = pos_ - 1;
    bool was_quoted = false;
    std::string s = name_text("a value name", &was_quoted);
    if (was_quoted) return {"\"" + s, s, at};
    std::string_view digits = s;
    if (digits[0] == 'c' || digits[0] == 't') digits.remove_prefix(1);
    bool unnamed = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
    return {s, unnamed ? std::string() : s, at};
  }
  ValueId use() {
    Name n = value_name();
    auto it = values_.find(n.key);
    if (it == values_.end()) error("%" + n.key + " is not defined", n.at);
    return it->second;
  }
  void define(const Name& n, ValueId v) {
    if (!values_.emplace(n.key, v).second) error("%" + n.key + " is defined twice", n.at);
  }
  Meta type() {
    skip_space();
    size_t start = pos_;
    while (pos_ < text_.size() && word_char(text_[pos_])) ++pos_;
    std::string_view word = text_.substr(start, pos_ - start);
    Meta m;
    bool found = find_dtype(word, &m.dtype);
    for (int t = 0; t < kDTypeCount && !found; ++t)
      if (short_dtype_name(static_cast<DType>(t)) == word) m.dtype = static_cast<DType>(t), found = true;
    if (!found) {
      pos_ = start;
      error("expected a type such as f32[2,3]");
    }
    skip_space();
    if (pos_ < text_.size() && text_[pos_] == '(') {
      std::string_view rest = text_.substr(pos_);
      if (!parse_quant(rest, &m.quant)) error("expected a scale and a zero point, (0.1,0)");
      pos_ = text_.size() - rest.size();
    }
    expect("[");
    for (bool first = true; !symbol("]"); first = false) {
      if (!first) expect(",");
      m.shape.push_back(integer("a dimension"));
    }
    size_t at = pos_;
    located(at, [&] { check_shape("shape", m.shape); });
    if (pos_ < text_.size() && text_[pos_] == '@') {
      at = ++pos_;
      std::string cn = name_text("a device");
      located(at, [&] { m.cn = CompNode::get(cn); });
    }
    return m;
  }
  /// Errors of other rooms get the place in the text.
  template <class F>
  void located(size_t at, F f) const {
    try {
      f();
    } catch (const Error& e) {
      std::string why = e.text();
      if (!why.empty() && why.back() == '.') why.pop_back();
      error(why, at);
    }
  }

  // Statements.
  template <class F>
  void typed_list(F add) {
    expect("(");
    for (bool first = true; !symbol(")"); first = false) {
      if (!first) expect(",");
      Name n = value_name();
      if (n.name.empty()) n.name = n.key;  // sources always have a name
      expect(":");
      Meta m = type();
      located(n.at, [&] { define(n, add(n.name, m)); });
    }
  }
  void statement() {
    if (word("const")) return constant();
    if (word("guard")) return guard();
    SmallVec<Name, 2> results;
    skip_space();
    if (pos_ < text_.size() && text_[pos_] == '%') {
      do results.push_back(value_name());
      while (symbol(","));
      expect("=");
    }
    skip_space();
    size_t at = pos_;
    std::string op_name = name_text("an op or '}'");
    const OpDef* op = nullptr;
    located(at, [&] { op = &OpRegistry::global().get(op_name); });
    SmallVec<ValueId, 4> in;
    if (same_line() && text_[pos_] == '%') do
        in.push_back(use());
      while (symbol(","));
    Attrs attrs = same_line() && text_[pos_] == '{' ? attributes(*op) : nullptr;
    NodeId n = kNone;
    located(at, [&] { n = g_.add_node(*op, attrs, {in.data(), in.size()}); });
    if (same_line() && word("sizes")) sizes(n);
    if (results.size() != g_.node(n).outputs.size())
      error(format("{} has {} results, {} are named", op_name, g_.node(n).outputs.size(), results.size()), at);
    for (size_t i = 0; i < results.size(); ++i) {
      define(results[i], g_.node(n).outputs[i]);
      if (!results[i].name.empty()) g_.set_name(g_.node(n).outputs[i], results[i].name);
    }
    if (same_line() && text_[pos_] == ':') types(n);
    if (same_line() && word("token"))
      token(n);
    else if (takes_token(*op))
      last_token_[g_.node(n).domain] = "";  // hand-written text may leave tokens out
    if (same_line() && word("loc")) g_.set_loc(n, g_.loc(location()));
  }
  void sizes(NodeId n) {
    expect("(");
    for (bool first = true; !symbol(")"); first = false) {
      if (!first) expect(",");
      skip_space();
      size_t at = pos_;
      std::string name = name_text("an attribute name");
      SizeUse u{-1, SizeOperand::kWhole, kNone};
      const auto& known = g_.node(n).op->schema.defaults;
      for (size_t i = 0; i < known.size(); ++i)
        if (known[i].name == name) u.field = static_cast<int>(i);
      if (u.field < 0) located(at, [&] { throw_unknown_attr(g_.node(n).op->name, name, known); });
      if (symbol("[")) {
        u.element = static_cast<int>(integer("an element"));
        expect("]");
      }
      expect("=");
      u.value = use();
      g_.add_size(n, u);
    }
  }
  void guard() {
    Guard x;
    x.value = use();
    expect("=");
    for (unsigned char b : hex_bytes()) x.want.push_back(static_cast<char>(b));
    if (same_line() && word("loc")) x.loc = g_.loc(location());
    g_.add_guard(std::move(x));
  }
  void types(NodeId n) {
    size_t at = pos_++;
    for (size_t i = 0; i < g_.node(n).outputs.size(); ++i) {
      if (i) expect(",");
      Meta m = type();
      const Meta& is = g_.meta(g_.node(n).outputs[i]);
      if (!m.same_type(is)) error(format("result {} is {}, the text says {}", i, print_type(is), print_type(m)), at);
    }
  }
  void token(NodeId n) {
    size_t at = pos_;
    if (g_.node(n).token_out == kNone) error(g_.node(n).op->name + " takes no token", at);
    expect("(");
    std::string in = word("entry") ? "entry" : value_name().key;
    std::string& last = last_token_.try_emplace(g_.node(n).domain, "entry").first->second;
    if (!last.empty() && in != last) error("the token before is '" + last + "', not '" + in + "'", at);
    expect("->");
    last = value_name().key;
    expect(")");
  }
  Loc location() {
    Loc l;
    skip_space();
    const std::string_view rest = text_.substr(pos_);
    if (rest.substr(0, 1) != "(" && rest.substr(0, 3) != "of ") {  // otherwise the scope alone is known
      if (rest.substr(0, 1) == "\"") {
        l.file = quoted();
      } else {
        size_t start = pos_;
        while (pos_ < text_.size() && name_char(text_[pos_]) && text_[pos_] != ':') ++pos_;
        l.file = text_.substr(start, pos_ - start);
      }
      expect(":");
      l.line = static_cast<int>(integer("a line number"));
    }
    if (same_line() && word("in")) l.function = name_text("a function name");
    if (same_line() && symbol("(")) {
      l.note = name_text("a note");
      expect(")");
    }
    if (same_line() && word("of")) l.scope = name_text("a scope");
    return l;
  }
  Attrs attributes(const OpDef& op) {
    size_t at = pos_;
    expect("{");
    std::vector<NamedAttr> given;
    for (bool first = true; !symbol("}"); first = false) {
      if (!first) expect(",");
      skip_space();
      size_t name_at = pos_;
      std::string name = name_text("an attribute name");
      expect("=");
      const AttrValue* like = nullptr;
      for (auto& d : op.schema.defaults)
        if (d.name == name) like = &d.value;
      if (!like) located(name_at, [&] { throw_unknown_attr(op.name, name, op.schema.defaults); });
      size_t end = value_end();
      located(pos_, [&] {
        given.push_back({name, parse_attr(op.name + " " + name, text_.substr(pos_, end - pos_), *like)});
      });
      pos_ = end;
    }
    Attrs a;
    if (op.has_attrs) located(at, [&] { a = op.schema.build(op.name, given); });  // else "{}"
    return a;
  }
  size_t value_end() const {
    int depth = 0;
    bool in_string = false;
    for (size_t i = pos_; i < text_.size() && text_[i] != '\n'; ++i) {
      char c = text_[i];
      if (in_string && c == '\\')
        ++i;
      else if (c == '"')
        in_string = !in_string;
      else if (in_string)
        continue;
      else if (c == '[' || c == '(')
        ++depth;
      else if (c == ']' || c == ')')
        --depth;
      else if (depth == 0 && (c == ',' || c == '}'))
        return i;
    }
    error("the attribute list is not closed", pos_);
  }
  void constant() {
    Name n = value_name();
    expect(":");
    Meta m = type();
    if (!symbol("=")) {
      if (m.bytes() == 0) return define(n, g_.add_constant_copy(m, nullptr, n.name));
      return define(n, g_.add_constant(m, nullptr, 0, n.name));
    }
    skip_space();
    size_t at = pos_;
    std::vector<unsigned char> bytes = hex_bytes();
    if (bytes.size() != m.bytes())
      error(format("{} takes {} bytes, {} are given", print_type(m), m.bytes(), bytes.size()), at);
    define(n, g_.add_constant_copy(m, bytes.data(), n.name));
  }
  std::vector<unsigned char> hex_bytes() {
    skip_space();
    size_t at = pos_;
    std::vector<unsigned char> bytes;
    while (pos_ < text_.size() && isxdigit(static_cast<unsigned char>(text_[pos_]))) {
      auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
      if (pos_ + 1 >= text_.size() || !isxdigit(static_cast<unsigned char>(text_[pos_ + 1])))
        error("an odd number of hex digits", at);
      bytes.push_back(static_cast<unsigned char>(digit(text_[pos_]) * 16 + digit(text_[pos_ + 1])));
      pos_ += 2;
    }
    return bytes;
  }
  void output() {
    skip_space();
    std::string name;
    if (pos_ < text_.size() && text_[pos_] != '%') {
      name = name_text("an output");
      expect("=");
    }
    skip_space();
    size_t start = pos_;
    Name n = value_name();
    pos_ = start;
    g_.add_output(name.empty() ? n.name : name, use());
  }
  void commits() {
    expect("(");
    for (bool first = true; !symbol(")"); first = false) {
      if (!first) expect(",");
      skip_space();
      size_t at = pos_;
      ValueId var = use();
      if (g_.value(var).kind != ValueKind::Var) error("only a var can be committed", at);
      expect("<-");
      ValueId v = use();
      located(at, [&] { g_.commit(static_cast<size_t>(g_.value(var).index), v); });
    }
  }

  std::string_view text_;
  size_t pos_ = 0;
  Graph g_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_map<int32_t, std::string> last_token_;  // by domain; empty: not known
};

}  // namespace

Graph parse(std::string_view text) { return Parser(text).run(); }

}  // namespace mge::ir
