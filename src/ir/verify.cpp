#include "ir/verify.h"

#include <algorithm>
#include <unordered_map>

#include "base/features.h"
#include "ir/text.h"

namespace mge::ir {
namespace {

struct Verifier {
  const Graph& g;
  const VerifyOptions& opt;
  std::vector<char> defined;
  std::vector<size_t> uses;

  [[noreturn]] void bad(NodeId n, const std::string& why) const {
    fail_internal(__FILE__, __LINE__, "graph {}: {} in `{}`", g.name(), why,
                  has("graph_text") ? print_node(g, n) : describe_node(g, n));
  }

  void define_sources() {
    auto source = [&](ValueId v, ValueKind kind, size_t index) {
      MGE_ASSERT(
          known(v) && g.value(v).kind == kind && g.value(v).index == static_cast<int>(index) && !g.value(v).erased,
          "graph {}: source value %{} is misfiled", g.name(), v);
      defined[v] = 1;
    };
    for (size_t i = 0; i < g.inputs().size(); ++i) source(g.inputs()[i], ValueKind::Input, i);
    for (size_t i = 0; i < g.vars().size(); ++i) source(g.vars()[i].in, ValueKind::Var, i);
    for (size_t i = 0; i < g.constants().size(); ++i) {
      const Constant& c = g.constants()[i];
      if (c.value == kNone) continue;
      source(c.value, ValueKind::Const, i);
      MGE_ASSERT(!c.storage || c.offset + g.meta(c.value).bytes() <= c.storage->bytes,
                 "graph {}: constant %{} leaves its storage", g.name(), c.value);
    }
  }

  // Without print_node, which would look them up.
  void check_ids(NodeId n) const {
    const Node& x = g.node(n);
    MGE_ASSERT(x.op, "graph {}: node {} has no op", g.name(), n);
    auto check = [&](ValueId v, bool may_be_none) {
      MGE_ASSERT(known(v) || (may_be_none && v == kNone), "graph {}: node {} ({}) names value %{}, which there is not",
                 g.name(), n, x.op->name, v);
    };
    for (ValueId v : x.inputs) check(v, false);
    for (ValueId v : x.outputs) check(v, false);
    for (const SizeUse& s : x.sizes) check(s.value, false);
    check(x.token_in, true);
    check(x.token_out, true);
    MGE_ASSERT(x.loc >= 0 && static_cast<size_t>(x.loc) < g.n_locations(),
               "graph {}: node {} ({}) has an unknown location", g.name(), n, x.op->name);
  }

  bool known(ValueId v) const { return v >= 0 && static_cast<size_t>(v) < g.n_values(); }

  void check_node(NodeId n, NodeId prev) {
    const Node& x = g.node(n);
    if (x.erased) bad(n, "an erased node is still linked");
    if (x.prev != prev) bad(n, "the order links disagree");
    if (!x.op) fail_internal(__FILE__, __LINE__, "graph {}: node {} has no op", g.name(), n);
    size_t k = x.inputs.size();
    if (k < x.op->required || (!x.op->variadic && k > x.op->inputs.size())) bad(n, format("{} inputs", k));
    if (x.op->has_attrs != static_cast<bool>(x.attrs))
      bad(n, x.attrs ? "attrs on an op that takes none" : "missing attrs");
    size_t results = x.op->n_out(x.attrs.get());
    if (x.outputs.size() != results) bad(n, format("{} outputs, the op has {}", x.outputs.size(), results));
    if (x.loc < 0 || static_cast<size_t>(x.loc) >= g.n_locations()) bad(n, "unknown location");
    for (ValueId v : x.inputs) {
      if (!known(v) || g.value(v).kind == ValueKind::Token) bad(n, format("operand %{} is no value", v));
      if (!defined[v]) bad(n, format("operand %{} is used before its definition", v));
      const auto& u = g.value(v).users;
      if (std::find(u.begin(), u.end(), n) == u.end()) bad(n, format("the use list of %{} misses this node", v));
      ++uses[v];
    }
    for (const SizeUse& s : x.sizes) {
      if (!known(s.value) || !defined[s.value])
        bad(n, format("size operand %{} is used before its definition", s.value));
      if (s.field < 0 || static_cast<size_t>(s.field) >= x.op->schema.defaults.size())
        bad(n, format("a size operand for attribute {}", s.field));
      const auto& u = g.value(s.value).users;
      if (std::find(u.begin(), u.end(), n) == u.end()) bad(n, format("the use list of %{} misses this node", s.value));
      ++uses[s.value];
    }
    for (size_t i = 0; i < x.outputs.size(); ++i) {
      ValueId v = x.outputs[i];
      if (!known(v) || g.value(v).producer != n || g.value(v).index != static_cast<int>(i) || g.value(v).erased)
        bad(n, format("result {} is misfiled", i));
      if (defined[v]) bad(n, format("%{} is defined twice", v));
      defined[v] = 1;
    }
    if (opt.infer) check_types(n);
  }

  void check_types(NodeId n) const {
    const Node& x = g.node(n);
    SmallVec<const Meta*, 6> in;
    for (ValueId v : x.inputs) in.push_back(&g.meta(v));
    SmallVec<Meta, 4> out(x.outputs.size());
    try {
      infer_op(*x.op, x.attrs.get(), {in.data(), in.size()}, {out.data(), out.size()});
    } catch (const Error& e) {
      bad(n, format("inference fails ({})", e.text()));
    }
    for (size_t i = 0; i < out.size(); ++i)
      if (!out[i].same_type(g.meta(x.outputs[i])))
        bad(n, format("result {} is recorded as {} but inferred as {}", i, g.meta(x.outputs[i]).str(), out[i].str()));
  }

  // A chain per domain: its entry, then every node of the domain in order, each token with one consumer.
  void check_tokens(const std::vector<NodeId>& order) const {
    std::unordered_map<std::string, ValueId> ends;  // by domain: the token after its last node so far
    std::unordered_map<int32_t, std::string> domains;
    for (NodeId n : order) {
      const Node& x = g.node(n);
      bool has = x.token_in != kNone && x.token_out != kNone;
      if (has != takes_token(*x.op)) bad(n, has ? "a token on an op without effects" : "an effect without a token");
      if (!has) continue;
      if (!known(x.token_in) || !known(x.token_out) || g.value(x.token_in).kind != ValueKind::Token ||
          g.value(x.token_out).producer != n)
        bad(n, "a misfiled token");
      const std::string domain = g.domain_of(n);
      if (domains.try_emplace(x.domain, domain).first->second != domain) bad(n, "the token is of another domain");
      auto [end, first] = ends.try_emplace(domain, kNone);
      if (first ? g.value(x.token_in).producer != kNone : x.token_in != end->second)
        bad(n, "the token chain does not follow the node order");
      const auto& u = g.value(x.token_in).users;
      if (u.size() != 1 || u[0] != n) bad(n, "a token has more than one consumer");
      end->second = x.token_out;
    }
    for (auto& [domain, last] : ends)
      MGE_ASSERT(g.value(last).users.empty(), "graph {}: the last token of {} has a consumer", g.name(), domain);
  }

  void check_results() const {
    for (auto& o : g.outputs())
      MGE_ASSERT(known(o.value) && defined[o.value] && !o.name.empty(), "graph {}: output '{}' has no definition",
                 g.name(), o.name);
    for (auto& v : g.vars()) {
      if (v.out == kNone) continue;
      MGE_ASSERT(known(v.out) && defined[v.out], "graph {}: var '{}' commits an undefined value", g.name(),
                 g.value(v.in).name);
      MGE_ASSERT(g.meta(v.out).same_type(g.meta(v.in)), "graph {}: var '{}' of {} commits a {}", g.name(),
                 g.value(v.in).name, g.meta(v.in).str(), g.meta(v.out).str());
    }
    for (auto& x : g.guards())
      MGE_ASSERT(known(x.value) && defined[x.value] && x.want.size() == g.meta(x.value).bytes(),
                 "graph {}: a guard on %{} has no definition or {} bytes", g.name(), x.value, x.want.size());
    for (size_t v = 0; v < g.n_values(); ++v)
      if (defined[v])
        MGE_ASSERT(uses[v] == g.value(static_cast<ValueId>(v)).users.size(),
                   "graph {}: the use list of %{} has {} entries, {} uses exist", g.name(), v,
                   g.value(static_cast<ValueId>(v)).users.size(), uses[v]);
  }
};

}  // namespace

void verify(const Graph& g, const VerifyOptions& opt) {
  Verifier v{g, opt, std::vector<char>(g.n_values()), std::vector<size_t>(g.n_values())};
  // Links and ids first: all that follows goes by them, messages too.
  size_t count = 0;
  for (NodeId n = g.first(); n != kNone; n = g.node(n).next) {
    MGE_ASSERT(n >= 0 && static_cast<size_t>(n) < g.n_node_ids(), "graph {}: the order leads to node {}, which is none",
               g.name(), n);
    MGE_ASSERT(++count <= g.n_nodes(), "graph {}: the order links form a cycle through node {}", g.name(), n);
    v.check_ids(n);
  }
  v.define_sources();
  NodeId prev = kNone;
  for (NodeId n = g.first(); n != kNone; prev = n, n = g.node(n).next) v.check_node(n, prev);
  MGE_ASSERT(count == g.n_nodes(), "graph {}: {} nodes are linked, {} are counted", g.name(), count, g.n_nodes());
  v.check_tokens(g.order());
  v.check_results();
}

}  // namespace mge::ir
