#include "ir/graph.h"

#include "base/features.h"
#include "core/backend.h"

#include <algorithm>
#include <cstring>

#include "ir/explain.h"

namespace mge::ir {

std::string Loc::str() const {
  if (file.empty()) return {};
  // Operators of MegEngine's files have names and no lines.
  std::string s = line > 0 ? file + ":" + std::to_string(line) : "operator " + file + " of a file that keeps no lines";
  if (!function.empty()) s += " in " + function;
  if (!note.empty()) s += " (" + note + ")";
  return s;
}

ValueId Graph::new_value(const Meta& m, ValueKind kind, std::string name) {
  if (is_quant(m.dtype)) note("quantised");  // whatever format the graph is read from
  Value v;
  v.meta = m;
  v.kind = kind;
  v.name = std::move(name);
  values_.push_back(std::move(v));
  return static_cast<ValueId>(values_.size() - 1);
}

void Graph::check_new_name(const std::string& name) const {
  MGE_CHECK(!name.empty(), Value, "graph {}: an input or var needs a name.", name_);
  MGE_CHECK(find_input(name) == kNone && find_var(name) == kNone, Value,
            "graph {}: there is already an input or var called '{}'. Give it another name.", name_, name);
}

ValueId Graph::add_input(std::string name, const Meta& m) {
  check_new_name(name);
  ValueId v = new_value(m, ValueKind::Input, std::move(name));
  values_[v].index = static_cast<int>(inputs_.size());
  inputs_.push_back(v);
  return v;
}

ValueId Graph::add_var(std::string name, const Meta& m) {
  check_new_name(name);
  ValueId v = new_value(m, ValueKind::Var, std::move(name));
  values_[v].index = static_cast<int>(vars_.size());
  vars_.push_back({v, kNone});
  return v;
}

ValueId Graph::add_constant(const Meta& m, RefPtr<Storage> storage, size_t offset, std::string name) {
  MGE_ASSERT(!storage || offset + m.bytes() <= storage->bytes, "constant {} of {} bytes at {} leaves its storage of {}",
             m.str(), m.bytes(), offset, storage->bytes);
  MGE_ASSERT(!storage || host_readable(*storage), "constant {} is not in host memory", m.str());
  ValueId v = new_value(m, ValueKind::Const, std::move(name));
  values_[v].index = static_cast<int>(constants_.size());
  constants_.push_back({v, std::move(storage), offset});
  return v;
}

ValueId Graph::add_constant_copy(const Meta& m, const void* bytes, std::string name) {
  auto s = allocate_storage({}, m.bytes());
  if (m.bytes()) std::memcpy(s->ptr, bytes, m.bytes());
  s->writable = false;
  return add_constant(m, std::move(s), 0, std::move(name));
}

void Graph::link(NodeId n, NodeId before) {
  Node& x = nodes_[n];
  x.next = before;
  x.prev = before == kNone ? tail_ : nodes_[before].prev;
  (x.prev == kNone ? head_ : nodes_[x.prev].next) = n;
  (before == kNone ? tail_ : nodes_[before].prev) = n;
  ++live_;
}

void Graph::unlink(NodeId n) {
  const Node& x = nodes_[n];
  (x.prev == kNone ? head_ : nodes_[x.prev].next) = x.next;
  (x.next == kNone ? tail_ : nodes_[x.next].prev) = x.prev;
  --live_;
}

namespace {
constexpr size_t kNoSlot = SIZE_MAX;
size_t state_slot(const OpDef& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (op.inputs[i] == "state") return i;
  return kNoSlot;
}
}  // namespace

// A generator is the value its state starts from: every draw hands a new state on.
std::string Graph::domain_of(NodeId n) const {
  const Node* x = &nodes_[n];
  if (x->op->is(kEffect)) return "effect" + (x->op->domain ? " " + x->op->domain(x->attrs.get()) : std::string());
  ValueId state = kNone;
  for (size_t slot = state_slot(*x->op); slot < x->inputs.size(); slot = state_slot(*x->op)) {
    state = x->inputs[slot];
    const Value& v = values_[state];
    if (v.producer == kNone) break;
    x = &nodes_[v.producer];
    const auto result = static_cast<size_t>(v.index);
    if (result >= x->op->outputs.size() || x->op->outputs[result] != "new_state") break;
    if (x->domain != kNone) return domains_[static_cast<size_t>(x->domain)].first;
  }
  return "generator %" + std::to_string(state);
}

// Splices node n into the token chain of its domain at its place in the order.
void Graph::thread_token(NodeId n) {
  Node& x = nodes_[n];
  const std::string key = domain_of(n);
  auto at = std::find_if(domains_.begin(), domains_.end(), [&](auto& d) { return d.first == key; });
  x.domain = static_cast<int32_t>(at - domains_.begin());
  if (at == domains_.end()) domains_.push_back({key, new_value({}, ValueKind::Token, {})});
  if (x.token_out == kNone) x.token_out = new_value({}, ValueKind::Token, {});
  ValueId out = x.token_out;
  values_[out].producer = n;
  NodeId p = x.prev;
  while (p != kNone && nodes_[p].domain != x.domain) p = nodes_[p].prev;
  ValueId in = p == kNone ? domains_[static_cast<size_t>(x.domain)].second : nodes_[p].token_out;
  for (NodeId later : values_[in].users) {  // at most one: a chain has no forks
    nodes_[later].token_in = out;
    values_[out].users.push_back(later);
  }
  values_[in].users.clear();
  values_[in].users.push_back(n);
  x.token_in = in;
}

// When the value a generator starts from is replaced, two chains may become one.
void Graph::thread_all_tokens() {
  for (auto& d : domains_) values_[d.second].erased = true;
  domains_.clear();
  std::vector<NodeId> effects;
  for (NodeId n = head_; n != kNone; n = nodes_[n].next)
    if (nodes_[n].domain != kNone) effects.push_back(n);
  for (NodeId n : effects) {
    nodes_[n].domain = kNone;
    values_[nodes_[n].token_out].users.clear();
  }
  for (NodeId n : effects) thread_token(n);
}

std::string Graph::refuse_move(NodeId n, NodeId before) const {
  const Node& x = nodes_[n];
  auto reads = [&](const Node& reader, const Node& of) {
    for (ValueId v : reader.inputs)
      if (std::find(of.outputs.begin(), of.outputs.end(), v) != of.outputs.end()) return true;
    return false;
  };
  auto cross = [&](const Node& y, bool reading) -> std::string {
    if (reading) return format("{} and {} depend on each other", x.op->name, y.op->name);
    if (x.domain == kNone || x.domain != y.domain) return {};
    return format("{} and {} both act on {}", x.op->name, y.op->name, domains_[static_cast<size_t>(x.domain)].first);
  };
  bool forward = before == kNone;
  for (NodeId c = x.next; c != kNone && !forward; c = nodes_[c].next) forward = c == before;
  for (NodeId c = forward ? x.next : before; c != (forward ? before : n); c = nodes_[c].next)
    if (std::string why = cross(nodes_[c], forward ? reads(nodes_[c], x) : reads(x, nodes_[c])); !why.empty())
      return why;
  return {};
}

void Graph::move(NodeId n, NodeId before) {
  if (n == before) return;
  const std::string why = refuse_move(n, before);
  MGE_ASSERT(why.empty(), "graph {}: cannot move a node: {}", name_, why);
  unlink(n);
  link(n, before);
}

NodeId Graph::add_node(const OpDef& op, Attrs attrs, std::span<const ValueId> in, LocId loc, NodeId before) {
  if (!attrs && op.has_attrs) attrs = op.schema.build(op.name, {});
  SmallVec<const Meta*, 6> metas;
  for (ValueId v : in) {
    MGE_ASSERT(
        v >= 0 && static_cast<size_t>(v) < values_.size() && !values_[v].erased && values_[v].kind != ValueKind::Token,
        "{}: operand %{} is not a value of graph {}", op.name, v, name_);
    metas.push_back(&values_[v].meta);
  }
  SmallVec<Meta, 4> out(op.n_out(attrs.get()));
  infer_op(op, attrs.get(), {metas.data(), metas.size()}, {out.data(), out.size()});

  auto n = static_cast<NodeId>(nodes_.size());
  Node& node = nodes_.emplace_back();
  node.op = &op;
  node.attrs = std::move(attrs);
  node.loc = loc;
  if (before != kNone) node.rerun = nodes_[before].rerun;  // a rewrite of that node
  for (ValueId v : in) {
    node.inputs.push_back(v);
    values_[v].users.push_back(n);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    ValueId v = new_value(out[i], ValueKind::Result, {});
    values_[v].producer = n;
    values_[v].index = static_cast<int>(i);
    node.outputs.push_back(v);
  }
  link(n, before);
  if (takes_token(op)) thread_token(n);
  return n;
}

void Graph::add_size(NodeId n, const SizeUse& use) {
  require("sizes", "a graph whose attributes follow from sizes");
  note("sizes");
  nodes_[n].sizes.push_back(use);
  values_[use.value].users.push_back(n);
  ++n_sizes_;
}

void Graph::add_guard(Guard g) {
  require("sizes", "a graph that was decided by sizes");
  note("sizes");
  guards_.push_back(std::move(g));
}

void Graph::bind_node(NodeId n, Attrs attrs) {
  for (auto& s : nodes_[n].sizes) drop_user(s.value, n);
  n_sizes_ -= nodes_[n].sizes.size();
  nodes_[n].sizes.clear();
  nodes_[n].attrs = std::move(attrs);
}

ValueId Graph::add1(std::string_view op, Attrs attrs, std::initializer_list<ValueId> in, LocId loc) {
  const OpDef& d = OpRegistry::global().get(op);
  const Node& n = nodes_[add_node(d, std::move(attrs), {in.begin(), in.size()}, loc)];
  MGE_ASSERT(n.outputs.size() == 1, "add1: {} has {} outputs", op, n.outputs.size());
  return n.outputs[0];
}

void Graph::add_output(std::string name, ValueId v) {
  if (name.empty()) name = values_[v].name;
  if (name.empty()) name = "out" + std::to_string(outputs_.size());
  outputs_.push_back({std::move(name), v});
}

void Graph::keep_outputs(std::span<const std::string> names) {
  std::erase_if(outputs_,
                [&](const Output& o) { return std::find(names.begin(), names.end(), o.name) == names.end(); });
}

std::vector<size_t> Graph::drop_unused_inputs() {
  std::vector<size_t> kept;
  std::vector<ValueId> left;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Value& x = values_[inputs_[i]];
    if (use_count(inputs_[i]) == 0) {
      x.erased = true;
      continue;
    }
    x.index = static_cast<int>(left.size());
    left.push_back(inputs_[i]);
    kept.push_back(i);
  }
  inputs_ = std::move(left);
  return kept;
}

void Graph::commit(size_t var_index, ValueId v) {
  MGE_ASSERT(var_index < vars_.size(), "graph {} has {} vars, no number {}", name_, vars_.size(), var_index);
  Var& var = vars_[var_index];
  MGE_CHECK(v == kNone || meta(v).same_type(meta(var.in)), Value, "graph {}: var '{}' is {}; it cannot hold {}.", name_,
            value(var.in).name, meta(var.in).str(), meta(v).str());
  var.out = v;
}

LocId Graph::loc(std::string_view file, int line, std::string_view function, std::string_view note,
                 std::string_view scope) {
  if (file.empty() && scope.empty()) return kNoLoc;
  uint64_t h = hash_bytes(scope, hash_bytes(note, hash_bytes(function, hash_bytes(file))));
  h = hash_mix(h, static_cast<uint64_t>(line));
  auto same = [&](const Loc& l) {
    return l.file == file && l.line == line && l.function == function && l.note == note && l.scope == scope;
  };
  auto [it, fresh] = loc_ids_.try_emplace(h, static_cast<LocId>(locs_.size()));
  if (!fresh && same(locs_[it->second])) return it->second;
  locs_.push_back({std::string(file), line, std::string(function), std::string(note), std::string(scope)});
  return static_cast<LocId>(locs_.size() - 1);  // on a hash collision: a second entry, never a wrong one
}

namespace {

// Of values that people gave a name; those that a recording numbers have none to speak of.
std::string name_shown(const Value& v) {
  const std::string& s = v.name;
  if (s.starts_with("const{")) return {};
  for (std::string_view made : {"v", "slot", "o"})
    if (s.starts_with(made) && s.size() > made.size() &&
        s.find_first_not_of("0123456789", made.size()) == std::string::npos)
      return {};
  return s;
}

constexpr size_t kMaxOrigins = 32;

}  // namespace

// Ops that check what another is given say for whom.
std::string written_name(const Node& x) {
  if (x.op->name == "wrap_index" || x.op->name == "check_range")
    for (auto& a : x.attrs->values())
      if (a.name == "who") return std::get<std::string>(a.value);
  return x.op->name;
}

std::string describe_node(const Graph& g, NodeId n) {
  const Node& x = g.node(n);
  std::string s = x.op->name + "(";
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    const std::string name = name_shown(g.value(x.inputs[i]));
    s += (i ? ", " : "") + name + (name.empty() ? "" : ": ") + g.meta(x.inputs[i]).str();
  }
  s += ")";
  if (x.attrs) s += " " + x.attrs->print();
  return s;
}

void Graph::add_origin(NodeId made, const Origin& o) {
  auto& of = nodes_[made].origins;
  for (int32_t id : of)
    if (origins_[static_cast<size_t>(id)] == o) return;
  if (of.size() >= kMaxOrigins) return;
  size_t id = origins_.size();
  // As a rule it is one of the last that were made.
  for (size_t back = 1; back <= std::min<size_t>(kMaxOrigins, origins_.size()); ++back)
    if (origins_[origins_.size() - back] == o) id = origins_.size() - back;
  if (id == origins_.size()) origins_.push_back(o);
  of.push_back(static_cast<int32_t>(id));
}

void Graph::stand_for(NodeId made, NodeId of) {
  const auto ids = nodes_[of].origins;
  if (ids.empty()) return add_origin(made, {written_name(nodes_[of]), describe_node(*this, of), nodes_[of].loc});
  for (int32_t id : ids) add_origin(made, Origin(origins_[static_cast<size_t>(id)]));
}

void Graph::stand_for(NodeId made, const Graph& other, NodeId of) {
  for (int32_t id : other.node(of).origins) {
    Origin o = other.origin(id);
    o.loc = loc(other.location(o.loc));
    add_origin(made, o);
  }
}

void Rewrite::erase(NodeId n) {
  for (size_t made = first_; made < g_.n_node_ids(); ++made)
    if (const auto id = static_cast<NodeId>(made); !g_.node(id).erased && id != n) g_.stand_for(id, n);
  g_.erase(n);
}

const OpDef* Graph::producer_op(ValueId v) const {
  NodeId p = values_[v].producer;
  return p == kNone ? nullptr : nodes_[p].op;
}

const Constant* Graph::constant_of(ValueId v) const {
  const Value& x = values_[v];
  return x.kind == ValueKind::Const && !x.erased ? &constants_[x.index] : nullptr;
}

int Graph::find_input(std::string_view name) const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (values_[inputs_[i]].name == name) return static_cast<int>(i);
  return kNone;
}
int Graph::find_output(std::string_view name) const {
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].name == name) return static_cast<int>(i);
  return kNone;
}
int Graph::find_var(std::string_view name) const {
  for (size_t i = 0; i < vars_.size(); ++i)
    if (values_[vars_[i].in].name == name) return static_cast<int>(i);
  return kNone;
}

std::vector<NodeId> Graph::order() const {
  std::vector<NodeId> out;
  out.reserve(live_);
  for (NodeId n = head_; n != kNone; n = nodes_[n].next) out.push_back(n);
  return out;
}

void Graph::reorder(std::span<const NodeId> order) {
  MGE_ASSERT(order.size() == live_, "graph {}: an order of {} nodes for {}", name_, order.size(), live_);
  std::vector<bool> stands(nodes_.size());
  auto check = [&](NodeId n, ValueId v) {
    const NodeId p = v == kNone ? kNone : values_[v].producer;
    MGE_ASSERT(p == kNone || stands[p], "graph {}: node {} would stand before {}, which it reads", name_, n, p);
  };
  for (NodeId n : order) {
    const Node& x = nodes_[n];
    MGE_ASSERT(!x.erased && !stands[n], "graph {}: node {} stands in the order twice, or is erased", name_, n);
    for (ValueId v : x.inputs) check(n, v);
    for (auto& u : x.sizes) check(n, u.value);
    check(n, x.token_in);
    stands[n] = true;
  }
  head_ = order.empty() ? kNone : order.front();
  tail_ = order.empty() ? kNone : order.back();
  for (size_t i = 0; i < order.size(); ++i) {
    nodes_[order[i]].prev = i ? order[i - 1] : kNone;
    nodes_[order[i]].next = i + 1 < order.size() ? order[i + 1] : kNone;
  }
}

void Graph::drop_nodes() {
  nodes_.clear();
  head_ = tail_ = kNone;
  live_ = n_sizes_ = 0;
  constants_.clear();
  guards_.clear();
  domains_.clear();
  for (Value& v : values_) {
    v.users.clear();
    v.producer = kNone;
  }
}

size_t Graph::use_count(ValueId v) const {
  size_t n = values_[v].users.size();
  for (auto& o : outputs_) n += o.value == v;
  for (auto& x : vars_) n += x.out == v;
  for (auto& x : guards_) n += x.value == v;
  return n;
}

bool Graph::escapes(ValueId v) const {
  for (auto& o : outputs_)
    if (o.value == v) return true;
  for (auto& x : vars_)
    if (x.out == v) return true;
  for (auto& x : guards_)
    if (x.value == v) return true;
  return false;
}

void Graph::drop_user(ValueId v, NodeId n) {
  auto& u = values_[v].users;
  for (size_t i = 0; i < u.size(); ++i)
    if (u[i] == n) return u.erase_at(i);
  MGE_ASSERT(false, "use list of value %{} misses node {}", v, n);
}

// True when the generator of some effect may have become another one.
bool Graph::set_input(NodeId n, size_t slot, ValueId v) {
  drop_user(nodes_[n].inputs[slot], n);
  nodes_[n].inputs[slot] = v;
  values_[v].users.push_back(n);
  return !domains_.empty() && slot == state_slot(*nodes_[n].op);
}

void Graph::replace_input(NodeId n, size_t slot, ValueId v) {
  if (set_input(n, slot, v)) thread_all_tokens();
}

void Graph::replace_all_uses(ValueId from, ValueId to) {
  if (from == to) return;
  MGE_ASSERT(meta(from).same_type(meta(to)), "cannot replace %{} of {} by %{} of {}", from, meta(from).str(), to,
             meta(to).str());
  auto users = values_[from].users;
  bool other_state = false;
  for (NodeId n : users) {
    for (size_t s = 0; s < nodes_[n].inputs.size(); ++s)
      if (nodes_[n].inputs[s] == from) other_state |= set_input(n, s, to);
    for (auto& s : nodes_[n].sizes)
      if (s.value == from) {
        drop_user(from, n);
        s.value = to;
        values_[to].users.push_back(n);
      }
  }
  if (other_state) thread_all_tokens();
  for (auto& x : guards_)
    if (x.value == from) x.value = to;
  for (auto& o : outputs_)
    if (o.value == from) o.value = to;
  for (auto& x : vars_)
    if (x.out == from) x.out = to;
  // A user's name for a value survives the rewrite of its producer.
  if (values_[to].name.empty() && values_[to].kind == ValueKind::Result)
    values_[to].name = std::exchange(values_[from].name, {});
}

void Graph::erase(NodeId n) {
  Node& x = nodes_[n];
  MGE_ASSERT(!x.erased, "node {} is erased twice", n);
  for (ValueId v : x.outputs)
    MGE_ASSERT(use_count(v) == 0, "cannot erase {}: its result %{} has {} uses", x.op->name, v, use_count(v));
  for (ValueId v : x.inputs) drop_user(v, n);
  bind_node(n, nullptr);
  for (ValueId v : x.outputs) values_[v].erased = true;
  if (x.token_out != kNone) {
    drop_user(x.token_in, n);
    for (NodeId later : values_[x.token_out].users) {
      nodes_[later].token_in = x.token_in;
      values_[x.token_in].users.push_back(later);
    }
    values_[x.token_out].erased = true;
    values_[x.token_out].users.clear();
    x.domain = kNone;
  }
  unlink(n);
  x.erased = true;
  x.attrs.reset();
}

void Graph::erase_constant(ValueId v) {
  MGE_ASSERT(constant_of(v) && use_count(v) == 0, "value %{} is no unused constant", v);
  constants_[values_[v].index] = {};
  values_[v].erased = true;
}

void Graph::infer(NodeId n) {
  Node& x = nodes_[n];
  SmallVec<const Meta*, 6> in;
  for (ValueId v : x.inputs) in.push_back(&values_[v].meta);
  SmallVec<Meta, 4> out(x.outputs.size());
  try {
    infer_op(*x.op, x.attrs.get(), {in.data(), in.size()}, {out.data(), out.size()});
  } catch (const Error&) {
    rethrow(tell(*this, n));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].cn) out[i].cn = values_[x.outputs[i]].meta.cn;  // of an op without inputs
    values_[x.outputs[i]].meta = out[i];
  }
}

void Graph::place(const CompNode* cn) {
  for (auto& v : values_)
    if (v.kind != ValueKind::Token) v.meta.cn = cn;
}

void Graph::infer_all() {
  for (NodeId n = head_; n != kNone; n = nodes_[n].next) infer(n);
  check_commits();
}

void Graph::check_commits() const {
  for (auto& v : vars_)
    if (v.out != kNone)
      MGE_CHECK(meta(v.out).same_type(meta(v.in)), Value,
                "graph {}: var '{}' is {}; with these input shapes it would become {}.", name_, value(v.in).name,
                meta(v.in).str(), meta(v.out).str());
}

}  // namespace mge::ir
