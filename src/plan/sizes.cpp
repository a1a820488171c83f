#include "plan/sizes.h"

#include <algorithm>

#include "base/features.h"
#include "plan/evaluate.h"

namespace mge {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

size_t at(int32_t id) { return static_cast<size_t>(id); }

class Splitter {
 public:
  Splitter(const ir::Graph& g, size_t late)
      : g_(g),
        late_(late),
        stage_(g.n_values()),
        known_(g.n_values()),
        node_stage_(g.n_node_ids()),
        folds_(g.n_values()) {}

  Stages run() {
    if (!has("sizes")) return whole();
    if (late_) assign(kNever);
    const int late_from = late_ ? last_ + 1 : 0;
    assign(late_from);
    if (late_) last_ = std::max(last_, late_from);
    Stages s;
    s.late_from = late_ ? static_cast<size_t>(late_from) : static_cast<size_t>(last_) + 1;
    const size_t n_in = g_.inputs().size(), n_vars = g_.vars().size();
    slot_.assign(g_.n_values(), -1);
    for (size_t i = 0; i < n_in; ++i) slot_[at(g_.inputs()[i])] = static_cast<int>(i);
    for (size_t i = 0; i < n_vars; ++i) slot_[at(g_.vars()[i].in)] = static_cast<int>(n_in + i);
    s.n_slots = n_in + n_vars;
    if (last_ == 0) return whole();
    require("parts", "a model with sizes that depend on values");
    note("parts");
    mark_crossing(s);
    for (int k = 0; k <= last_; ++k) s.parts.push_back(part(k));
    for (auto& o : g_.outputs()) s.outputs.push_back(slot_[at(o.value)]);
    for (auto& v : g_.vars()) s.commits.push_back(v.out == kNone ? -1 : slot_[at(v.out)]);
    return s;
  }

 private:
  // stage_: the part that computes a value. known_: the part that can be bound only with its numbers at hand, that is
  // the same part where they follow from sizes, the next one where they are computed.
  // What comes late is of part `late_from` or a later one; kNever leaves it out.
  static constexpr int kNever = 1 << 20;
  Stages whole() const {
    Stages s;
    const size_t n_in = g_.inputs().size();
    s.n_slots = n_in + g_.vars().size();
    s.late_from = 1;
    std::vector<int> in;
    for (size_t i = 0; i < n_in; ++i) in.push_back(static_cast<int>(i));
    s.parts.push_back({g_.clone(), in, {}, has("sizes") ? needed(0) : std::vector<bool>(n_in)});
    return s;
  }

  void assign(int late_from) {
    last_ = 0;
    static const OpDef* const shape_of = OpRegistry::global().registered("shape_of");
    // A number given from outside is read before anything runs; of more than that, or of state, what follows is
    // computed.
    const size_t n_in = g_.inputs().size();
    for (size_t i = 0; i < n_in; ++i) {
      const size_t v = at(g_.inputs()[i]);
      stage_[v] = i + late_ >= n_in ? late_from : 0;
      known_[v] = stage_[v] + ((folds_[v] = is_number(g_.meta(g_.inputs()[i]))) ? 0 : 1);
    }
    for (auto& c : g_.constants())
      if (c.value != kNone) folds_[at(c.value)] = ir::is_handful(g_.meta(c.value));
    for (auto& v : g_.vars()) known_[at(v.in)] = 1;
    int token = 0;
    for (NodeId n = g_.first(); n != kNone; n = g_.node(n).next) {
      const ir::Node& x = g_.node(n);
      int s = 0, k = 0;
      // Whether a tensor is a handful must not depend on the sizes it happens to have: only what follows from sizes,
      // numbers and constants is folded.
      bool folds = x.op == shape_of || (!ir::takes_token(*x.op) && !x.inputs.empty());
      for (ValueId v : x.inputs) {
        s = std::max(s, stage_[at(v)]);
        k = std::max(k, known_[at(v)]);
        folds = folds && (x.op == shape_of || folds_[at(v)]);
      }
      for (auto& u : x.sizes) s = std::max(s, known_[at(u.value)]);
      if (late_ && g_.location_of(n).note == "backward") s = std::max(s, late_from);
      if (ir::takes_token(*x.op)) s = token = std::max(s, token);
      node_stage_[at(n)] = s;
      if (s < kNever) last_ = std::max(last_, s);
      if (x.op == shape_of) k = s;
      for (ValueId v : x.outputs) {
        stage_[at(v)] = s;
        folds_[at(v)] = folds && ir::is_handful(g_.meta(v));
        known_[at(v)] = folds_[at(v)] ? std::max(k, s) : s + 1;
      }
    }
    for (auto& x : g_.guards())
      if (guard_stage(x) < kNever) last_ = std::max(last_, guard_stage(x));
  }
  static bool is_number(const Meta& m) { return is_int(m.dtype) && m.shape.numel() == 1; }
  int guard_stage(const ir::Guard& x) const { return known_[at(x.value)]; }

  bool is_source(ValueId v) const { return g_.value(v).producer == kNone; }

  // Sources and earlier results whose numbers part k must have: what its attributes and guards follow from.
  std::vector<ValueId> read_by(int k) const {
    std::vector<ValueId> todo, out;
    std::vector<bool> seen(g_.n_values());
    for (NodeId n = g_.first(); n != kNone; n = g_.node(n).next)
      if (node_stage_[at(n)] == k)
        for (auto& u : g_.node(n).sizes) todo.push_back(u.value);
    for (auto& x : g_.guards())
      if (guard_stage(x) == k) todo.push_back(x.value);
    while (!todo.empty()) {
      ValueId v = todo.back();
      todo.pop_back();
      if (seen[at(v)] || g_.constant_of(v)) continue;
      seen[at(v)] = true;
      if (is_source(v) || stage_[at(v)] < k) {
        out.push_back(v);
        continue;
      }
      const ir::Node& x = g_.node(g_.value(v).producer);
      if (x.op->name == "shape_of") continue;
      for (ValueId i : x.inputs) todo.push_back(i);
    }
    return out;
  }

  std::vector<bool> needed(int k) const {
    std::vector<bool> host(g_.inputs().size());
    for (ValueId v : read_by(k)) host[at(g_.value(v).index)] = true;  // of inputs: state makes parts
    return host;
  }

  void mark_crossing(Stages& s) {
    auto cross = [&](ValueId v) {
      if (slot_[at(v)] < 0 && !g_.constant_of(v)) slot_[at(v)] = static_cast<int>(s.n_slots++);
    };
    for (NodeId n = g_.first(); n != kNone; n = g_.node(n).next)
      for (ValueId v : g_.node(n).inputs)
        if (stage_[at(v)] < node_stage_[at(n)]) cross(v);
    for (int k = 0; k <= last_; ++k)
      for (ValueId v : read_by(k)) cross(v);
    // A result may be a constant: it gets a slot, and the first part gives it.
    for (auto& o : g_.outputs())
      if (slot_[at(o.value)] < 0) slot_[at(o.value)] = static_cast<int>(s.n_slots++);
    for (auto& v : g_.vars())
      if (v.out != kNone && slot_[at(v.out)] < 0) slot_[at(v.out)] = static_cast<int>(s.n_slots++);
  }

  Stage part(int k) const {
    ir::Graph g(format("{}.{}", g_.name(), k));
    Stage s{std::move(g), {}, {}, {}};
    std::vector<ValueId> ids(g_.n_values(), kNone);
    auto id = [&](ValueId v) {
      ValueId& to = ids[at(v)];
      if (to != kNone) return to;
      if (const ir::Constant* c = g_.constant_of(v)) {
        to = s.graph.add_constant(g_.meta(v), c->storage, c->offset, g_.value(v).name);
      } else {
        MGE_ASSERT(slot_[at(v)] >= 0, "value %{} does not reach part {} of {}", v, k, g_.name());
        std::string name = g_.value(v).name;
        if (name.empty() || s.graph.find_input(name) != kNone) name = format("slot{}", slot_[at(v)]);
        to = s.graph.add_input(std::move(name), g_.meta(v));
        s.in.push_back(slot_[at(v)]);
        s.host.push_back(false);
      }
      return to;
    };
    for (ValueId v : read_by(k)) {
      id(v);
      s.host.back() = true;
    }
    for (NodeId n = g_.first(); n != kNone; n = g_.node(n).next) {
      if (node_stage_[at(n)] != k) continue;
      const ir::Node& x = g_.node(n);
      SmallVec<ValueId, 6> in;
      for (ValueId v : x.inputs) in.push_back(id(v));
      NodeId made = s.graph.add_node(*x.op, x.attrs, {in.data(), in.size()}, s.graph.loc(g_.location_of(n)));
      s.graph.set_rerun(made, x.rerun);
      s.graph.stand_for(made, g_, n);
      for (auto& u : x.sizes) s.graph.add_size(made, {u.field, u.element, id(u.value)});
      for (size_t i = 0; i < x.outputs.size(); ++i) {
        ids[at(x.outputs[i])] = s.graph.node(made).outputs[i];
        if (in.empty()) s.graph.place(ids[at(x.outputs[i])], g_.meta(x.outputs[i]).cn);
        s.graph.set_name(ids[at(x.outputs[i])], g_.value(x.outputs[i]).name);
      }
    }
    for (auto& x : g_.guards())
      if (guard_stage(x) == k) s.graph.add_guard({id(x.value), x.want, s.graph.loc(g_.location(x.loc))});
    for (size_t v = 0; v < slot_.size(); ++v) {
      const auto value = static_cast<ValueId>(v);
      if (slot_[v] < 0) continue;
      const bool here = is_source(value) ? g_.constant_of(value) && k == 0 : stage_[v] == k;
      if (!here) continue;
      s.graph.add_output(format("slot{}", slot_[v]), id(value));
      s.out.push_back(slot_[v]);
    }
    return s;
  }

  const ir::Graph& g_;
  const size_t late_;
  std::vector<int> stage_, known_, node_stage_, slot_;
  std::vector<bool> folds_;
  int last_ = 0;
};

}  // namespace

namespace {
std::string list(std::span<const Meta> metas) {
  std::string s;
  for (auto& m : metas) s += (s.empty() ? "" : ", ") + m.str();
  return s;
}
}  // namespace

Stages split(const ir::Graph& g, size_t late) { return Splitter(g, late).run(); }

SizedGraph::Made& SizedGraph::find(std::span<const Meta> inputs, std::span<const ir::KnownInput> known) {
  std::string numbers;
  for (auto& k : known)
    numbers.append(static_cast<const char*>(k.value.storage->ptr) + k.value.offset, k.value.meta.bytes());
  auto same = [&](const Made& m) {
    if (m.inputs.size() != inputs.size() || m.known != numbers) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!m.inputs[i].same_type(inputs[i]) || m.inputs[i].cn != inputs[i].cn) return false;
    return true;
  };
  auto it = std::find_if(made_.begin(), made_.end(), same);
  if (it != made_.end()) {
    made_.splice(made_.begin(), made_, it);
    return made_.front();
  }
  MGE_CHECK(
      compile_, Value,
      "graph {}: it was dropped (record level 2), so the sizes of inputs cannot change; got {} where it was {}. Use "
      "record level 0 or 1.",
      graph_.name(), list(inputs), made_.empty() ? "" : list(made_.front().inputs));
  Made m{{inputs.begin(), inputs.end()}, std::move(numbers), nullptr, nullptr, nullptr};
  try {
    auto g = std::make_shared<ir::Graph>(graph_.clone());
    ir::bind(*g, inputs, known, has("sizes") ? kernel_evaluator() : ir::Evaluator());
    m.bound = std::move(g);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Memory) throw;  // there may be more of it the next time
    m.refused = std::make_shared<Error>(e);
  }
  if (made_.size() >= kMaxPrograms) made_.pop_back();
  made_.push_front(std::move(m));
  return made_.front();
}

void SizedGraph::drop_graph() {
  graph_.drop_nodes();
  compile_ = nullptr;
}

bool SizedGraph::accepts(std::span<const Meta> inputs, std::span<const ir::KnownInput> known) {
  return !find(inputs, known).refused;
}

RefPtr<Program> SizedGraph::program(std::span<const Meta> inputs, std::span<const ir::KnownInput> known) {
  Made& m = find(inputs, known);
  if (m.refused) throw *m.refused;
  if (m.program) return m.program;
  try {
    m.program = compile_(std::move(*m.bound));
  } catch (...) {
    made_.pop_front();  // this one: its graph is spent, and the next call binds another
    throw;
  }
  m.bound = nullptr;
  return m.program;
}

std::vector<RefPtr<Program>> SizedGraph::programs() const {
  std::vector<RefPtr<Program>> out;
  for (auto& m : made_)
    if (m.program) out.push_back(m.program);
  return out;
}

}  // namespace mge
