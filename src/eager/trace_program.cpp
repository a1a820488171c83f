// The programs of a recording: its segments for host mode, the whole of it for replay.
#include <optional>
#include <set>
#include <utility>

#include "core/profile.h"
#include "eager/trace.h"
#include "kernel/cost.h"
#include "plan/evaluate.h"

namespace mge {
namespace {

pass::CanFuse g_can_fuse;

// One run of a program as a command: inputs, then vars, give outputs, then the vars that are committed.
class ProgramJob final : public Job {
 public:
  explicit ProgramJob(RefPtr<Program> p) : p_(std::move(p)) {}
  std::string describe() const override {
    return format("program {} of {} instructions", p_->graph().name(), p_->n_instrs());
  }
  bool has_effects() const override { return p_->has_effects(); }
  void run(std::span<const OpInput> in, std::span<Buffer> out, Work* work, const Explain& explain) override {
    Program& p = *p_;
    for (size_t i = 0; i < p.n_inputs(); ++i) p.bind_input(i, *in[i].buffer);
    for (size_t i = 0; i < p.n_vars(); ++i) {
      const OpInput& v = in[p.n_inputs() + i];
      // Given away: the program is to be the only owner, so that it can update in place.
      p.bind_var(i, v.donated ? std::exchange(const_cast<Buffer&>(*v.buffer), {}) : *v.buffer);
    }
    auto vars_out = [&] {
      size_t o = p.n_outputs();
      for (size_t i = 0; i < p.n_vars(); ++i)
        if (p.graph().vars()[i].out != ir::kNone) out[o++] = p.var(i);
      p.release_buffers();
    };
    try {
      std::optional<LongWork> others;
      if (p.estimated_ns() > cost::kLongNs) others.emplace();
      p.run(work, explain);
      others.reset();
      for (size_t i = 0; i < p.n_outputs(); ++i) out[i] = p.output(i);
    } catch (...) {
      vars_out();
      throw;
    }
    vars_out();
  }

 private:
  RefPtr<Program> p_;
};

ValuePtr pending(const Meta& m) {
  ValuePtr v = make_ref<Value>();
  v->meta = m;
  if (!v->meta.cn) v->meta.cn = CompNode::default_node();
  return v;
}

void submit_here(Command&& c) {
  if (!runs_plainly(c.out[0]->meta)) {
    c.loc = current_location();
    c.scope = profile::scope();
  }
  submit(std::move(c));
}

}  // namespace

// With other sizes a tensor may be given a value of another shape, which cannot take its memory.
bool Recording::keeps_types(const Segment& s) const {
  for (size_t i = 1; i <= s.n_state; ++i)
    if (!vars_[s.in[s.in.size() - i]].value->meta.same_type(vars_[s.out[s.out.size() - i]].value->meta)) return false;
  return true;
}

RefPtr<Program> Recording::segment_program(Segment& s, size_t n_state) {
  if (exact_ && s.exact) return s.exact;
  uint64_t key = n_state;
  for (uint32_t v : s.in) key = vars_[v].value->meta.hash(key);
  for (size_t i = s.begin; i < s.end; ++i)
    if (!ops_[i].sizes.empty()) key = hash_mix(key, attrs_hash(ops_[i].now.get()));
  if (!s.programs.count(key) && s.programs.size() >= SizedGraph::kMaxPrograms) s.programs.erase(s.programs.begin());
  RefPtr<Program>& p = s.programs[key];
  if (!p) p = compile(segment_graph(s, n_state));
  if (exact_) s.exact = p;
  return p;
}

// The last segment of a call that has come to its end gives state away: nothing but the program can fail any more, and
// what that does not get to stays what it was.
void Recording::run_segment(size_t index, bool give_away) {
  Segment& s = segments_[index];
  if (s.begin == s.end || s.out.empty() || (opt_.imperative && state_ == State::Matching)) return;
  for (uint32_t v : s.in) MGE_ASSERT(vars_[v].value, "trace: variable {} has no value", v);
  Command c;
  const size_t n_state = exact_ || keeps_types(s) ? s.n_state : 0;
  c.job = std::make_unique<ProgramJob>(segment_program(s, n_state));
  for (uint32_t v : s.in) c.in.push_back(vars_[v].value);
  for (uint32_t v : s.out) {
    vars_[v].value->deferred = false;  // the executor's from now on
    c.out.push_back(vars_[v].value);
    c.replaces.push_back(-1);
  }
  for (size_t i = 1; i <= n_state; ++i) c.replaces[c.out.size() - i] = static_cast<int>(c.in.size() - i);
  if (give_away && n_state) {
    std::erase_if(undo_, [&](const Undo& u) {
      const Value& now = *u.cell->value;
      const int was = now.trace_epoch == epoch_ ? vars_[now.trace_var].state_of : -1;
      return was >= 0 && (u.value == vars_[static_cast<size_t>(was)].value || u.value->trace_epoch == epoch_);
    });
    for (size_t i = 1; i <= n_state; ++i) vars_[s.in[s.in.size() - i]].value = nullptr;
  }
  submit_here(std::move(c));
}

// ---- graphs

std::string Recording::var_name(uint32_t v) const {
  const Var& var = vars_[v];
  if (var.arg >= 0) return format("arg_{}", var.arg);
  auto it = names_.find(var.cell.get());
  if (it != names_.end() && !it->second.empty()) return it->second;
  return format("v{}", v);
}

void Recording::add_op(ir::Graph& g, const Op& op, const Attrs& attrs, std::vector<ir::ValueId>& ids) const {
  Place p = location_place(op.loc);
  std::string scope = op.modules ? *op.modules : "";
  if (op.backward) scope += scope.empty() ? "backward" : ".backward";
  ir::LocId loc = g.loc(p.file, p.line, p.function, op.backward ? "backward" : "", scope);
  SmallVec<ir::ValueId, 6> in;
  for (uint32_t v : op.in) in.push_back(ids[v]);
  ir::NodeId n = g.add_node(*op.op, attrs, {in.data(), in.size()}, loc);
  g.set_rerun(n, op.rerun);
  for (size_t k = 0; k < op.out.size(); ++k) {
    ids[op.out[k]] = g.node(n).outputs[k];
    if (op.in.empty()) g.place(ids[op.out[k]], vars_[op.out[k]].meta.cn);
    if (!vars_[op.out[k]].name.empty()) g.set_name(ids[op.out[k]], vars_[op.out[k]].name);
  }
}

ir::Graph Recording::segment_graph(const Segment& s, size_t n_state) const {
  ir::Graph g("segment");
  std::set<std::string> taken;
  std::vector<ir::ValueId> ids(vars_.size(), ir::kNone);
  const size_t n_in = s.in.size() - n_state, n_out = s.out.size() - n_state;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const uint32_t v = s.in[i];
    const Meta& m = vars_[v].value->meta;
    std::string name = vars_[v].external ? var_name(v) : format("v{}", v);  // for errors
    if (!taken.insert(name).second) name = format("v{}", v);
    ids[v] = i < n_in ? g.add_input(name, m) : g.add_var(name, m);
  }
  for (size_t i = s.begin; i < s.end; ++i)
    if (!vars_[ops_[i].out[0]].at_once) add_op(g, ops_[i], ops_[i].sizes.empty() ? ops_[i].attrs : ops_[i].now, ids);
  for (size_t i = 0; i < n_out; ++i) g.add_output(format("o{}", s.out[i]), ids[s.out[i]]);
  for (size_t i = 0; i < n_state; ++i) g.commit(i, ids[s.out[n_out + i]]);
  return g;
}

ir::Graph Recording::graph(const Export& e) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded; call the traced function first.");
  ir::Graph g("main");
  std::vector<ir::ValueId> ids(vars_.size(), ir::kNone);
  std::unordered_map<std::string, int> taken;
  auto unique = [&](std::string name) {
    int n = taken[name]++;
    return n ? format("{}[{}]", name, n) : name;
  };
  for (size_t i = 0; i < n_args_; ++i) {
    std::string name = i < e.arg_names.size() ? e.arg_names[i] : var_name(static_cast<uint32_t>(i));
    ids[i] = g.add_input(unique(name), vars_[i].meta);
  }
  std::unordered_map<const Tensor*, size_t> var_index;
  for (uint32_t v : captured_) {
    Var& var = vars_[v];
    if (is_constant(v, e)) {
      ValuePtr now = var.fixed ? var.fixed : var.cell->value;
      wait(*now);
      Buffer b = make_contiguous(now->meta, to_host(now->meta, now->buffer));
      size_t offset = static_cast<size_t>(b.layout.offset) * dtype_size(now->meta.dtype);
      auto named = names_.find(var.cell.get());
      ids[v] = g.add_constant(now->meta, b.storage, offset, named == names_.end() ? std::string() : named->second);
    } else {
      var_index[var.cell.get()] = g.vars().size();
      ids[v] = g.add_var(unique(var_name(v)), var.meta);
    }
  }
  for (auto& op : ops_) {
    add_op(g, op, op.attrs, ids);
    for (auto& u : op.sizes) g.add_size(g.last(), {u.field, u.element, ids[u.var]});
  }
  for (auto& x : guards_) {
    Place p = location_place(x.loc);
    g.add_guard({ids[x.var], x.want, p.file.empty() ? ir::kNoLoc : g.loc(p.file, p.line, p.function)});
  }
  for (size_t i = 0; i < results_.size(); ++i)
    g.add_output(i < e.result_names.size() ? e.result_names[i] : format("out{}", i), ids[results_[i]]);
  for (auto& c : commits_) {
    if (c.arg >= 0 && e.replay) g.add_output(format("arg{}", c.arg), ids[c.var]);
    if (auto it = var_index.find(c.cell.get()); it != var_index.end()) g.commit(it->second, ids[c.var]);
  }
  return g;
}

bool Recording::is_constant(uint32_t v, const Export& e) const {
  const Var& var = vars_[v];
  if (var.constant || !e.as_constants) return var.constant;
  // State that a call assigns (running statistics, random state) is no constant of a replay.
  auto assigned = [&](const Commit& c) { return c.cell == var.cell; };
  return !e.replay || std::none_of(commits_.begin(), commits_.end(), assigned);
}

pass::PipelineOptions pipeline_options(int opt_level, const pass::GraphOptimizationConfig& graph_opt,
                                       const pass::InferenceOptions& inference) {
  pass::PipelineOptions o;
  o.opt_level = opt_level;
  o.graph_opt = graph_opt;
  o.inference = inference;
  o.evaluate = kernel_evaluator();
  o.can_fuse = g_can_fuse;
  return o;
}

void set_fusion(pass::CanFuse can_fuse) { g_can_fuse = std::move(can_fuse); }

RefPtr<Program> Recording::compile(ir::Graph g) const {
  pass::optimize(g, pipeline_options(opt_.opt_level, opt_.graph_opt));
  RefPtr<Program> p = Program::compile(g, {.weight_preprocess = opt_.opt_level >= 3});
  if (watched_) p->watch(true);
  return p;
}

std::vector<RefPtr<Program>> Recording::latest() const {
  std::vector<RefPtr<Program>> out;
  for (auto& part : parts_)
    if (auto made = part.programs(); !made.empty()) out.push_back(made.front());
  for (auto& seg : segments_) {
    RefPtr<Program> last;
    for (auto& [key, p] : seg.programs)
      if (!last || p->last_begin() > last->last_begin()) last = p;
    if (last) out.push_back(std::move(last));
  }
  return out;
}

void Recording::watch(bool on) {
  watched_ = on;
  for (auto& p : programs()) p->watch(on);
}

std::vector<Tensor*> Recording::captured() const {
  std::vector<Tensor*> out;
  for (uint32_t v : captured_)
    if (!vars_[v].constant) out.push_back(vars_[v].cell.get());
  return out;
}

std::vector<Tensor*> Recording::assigned() const {
  std::vector<Tensor*> out;
  for (auto& c : commits_)
    if (c.cell) out.push_back(c.cell.get());
  return out;
}

std::vector<RefPtr<Program>> Recording::programs() const {
  std::vector<RefPtr<Program>> out;
  for (auto& part : parts_)
    for (auto& p : part.programs()) out.push_back(p);
  for (auto& seg : segments_)
    for (auto& [key, p] : seg.programs) out.push_back(p);
  return out;
}

std::string Recording::report() const {
  std::string s;
  for (auto& p : programs()) s += p->report().str() + "\n" + p->dump();
  return s;
}

// ---- replay

// Constants go to their device meanwhile, and while that is waited for other threads run.
std::unique_lock<std::mutex> Recording::make_alone() {
  std::unique_lock<std::mutex> lock(making_, std::try_to_lock);
  if (!lock) {
    const OthersRun others;
    lock.lock();
  }
  return lock;
}

RefPtr<Program> Recording::program_of(size_t part, std::span<const Meta> metas, std::span<const ValuePtr> slots) {
  const std::vector<ir::KnownInput> known = known_inputs(stages_.parts[part], slots);
  const auto alone = make_alone();
  return parts_[part].program(metas, known);
}

void Recording::make_parts() {
  const auto alone = make_alone();
  if (!parts_.empty()) return;
  Export e;
  e.as_constants = opt_.capture_as_const;
  e.replay = true;
  ir::Graph g = graph(e);
  whole_vars_.clear();
  for (uint32_t v : captured_)
    if (!is_constant(v, e)) whole_vars_.push_back(v);
  MGE_ASSERT(whole_vars_.size() == g.vars().size(), "trace: {} vars for {} captured tensors", g.vars().size(),
             whole_vars_.size());
  stages_ = split(g, opt_.late_args);
  for (auto& part : stages_.parts)
    parts_.emplace_back(std::move(part.graph), [this](ir::Graph bound) { return compile(std::move(bound)); });
}

std::vector<ValuePtr> Recording::first_slots(std::span<Tensor* const> args) const {
  std::vector<ValuePtr> slots(stages_.n_slots);
  for (size_t i = 0; i < args.size(); ++i) slots[i] = args[i]->value;
  for (size_t i = 0; i < whole_vars_.size(); ++i) slots[n_args_ + i] = vars_[whole_vars_[i]].cell->value;
  return slots;
}

size_t Recording::n_programs() const {
  size_t n = 0;
  for (auto& p : parts_) n += p.programs().size();
  return n;
}

// What sizes depend on is read before anything of the part runs.
std::vector<ir::KnownInput> Recording::known_inputs(const Stage& part, std::span<const ValuePtr> slots) const {
  std::vector<ir::KnownInput> out;
  for (size_t i = 0; i < part.in.size(); ++i) {
    if (!part.host[i]) continue;
    Value& v = *slots[static_cast<size_t>(part.in[i])];
    Buffer b = make_contiguous(v.meta, host_buffer(v));
    out.push_back({i, {v.meta, b.storage, static_cast<size_t>(b.layout.offset) * dtype_size(v.meta.dtype)}});
  }
  return out;
}

// Where a size depends on values the program comes in parts: what one computes decides the sizes of the next. State is
// assigned when all of them are enqueued.
void Recording::run_parts(size_t begin, size_t end, std::vector<ValuePtr>& slots) {
  for (size_t k = begin; k < end; ++k) {
    const Stage& part = stages_.parts[k];
    Command c;
    SmallVec<Meta, 6> metas;
    for (int s : part.in) {
      c.in.push_back(slots[static_cast<size_t>(s)]);
      metas.push_back(c.in[c.in.size() - 1]->meta);
    }
    RefPtr<Program> p = program_of(k, {metas.data(), metas.size()}, slots);
    for (size_t i = 0; i < part.out.size(); ++i) {
      ValuePtr v = pending(p->output_meta(i));
      c.out.push_back(v);
      c.replaces.push_back(-1);
      slots[static_cast<size_t>(part.out[i])] = std::move(v);
    }
    c.job = std::make_unique<ProgramJob>(std::move(p));
    if (!c.out.empty()) submit_here(std::move(c));
  }
}

// Whether a slot is given by one of these parts; inputs and vars are given by none.
bool Recording::is_given_by(size_t begin, size_t end, int slot) const {
  for (size_t k = begin; k < end; ++k) {
    auto& out = stages_.parts[k].out;
    if (std::find(out.begin(), out.end(), slot) != out.end()) return true;
  }
  return false;
}

// All of it or, when a part has failed, nothing.
void Recording::assign_state(const std::vector<ValuePtr>& slots, bool late) {
  auto each = [&](auto f) {
    for (size_t i = 0; i < whole_vars_.size(); ++i) {
      const int slot = stages_.commits[i];
      if (slot >= 0 && is_given_by(stages_.late_from, parts_.size(), slot) == late)
        f(*vars_[whole_vars_[i]].cell, slots[static_cast<size_t>(slot)]);
    }
  };
  each([](Tensor&, const ValuePtr& v) {
    if (!v->ready()) wait(*v);
  });
  each([](Tensor& cell, const ValuePtr& v) {
    cell.value = v;
    cell.links.clear();
  });
}

std::vector<TensorPtr> Recording::replay_parts(std::span<Tensor* const> args) {
  std::vector<ValuePtr> slots = first_slots(args);
  run_parts(0, parts_.size(), slots);
  assign_state(slots, false);
  std::vector<TensorPtr> out;
  for (size_t i = 0; i < results_.size(); ++i)
    out.push_back(make_ref<Tensor>(slots[static_cast<size_t>(stages_.outputs[i])]));
  size_t next = results_.size();
  for (auto& commit : commits_)
    if (commit.arg >= 0) {
      Tensor& cell = *args[static_cast<size_t>(commit.arg)];
      cell.value = slots[static_cast<size_t>(stages_.outputs[next++])];
      cell.links.clear();
    }
  return out;
}

std::vector<TensorPtr> Recording::replay(std::span<Tensor* const> args) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded.");
  MGE_CHECK(!active_tracer(), Env, "trace: a traced function cannot be called inside another one.");
  check_arguments(args, true);
  make_parts();
  for (uint32_t v : whole_vars_) {
    const Meta &was = vars_[v].meta, &is = vars_[v].cell->meta();
    if (!is.same_type(was))
      mismatch("tensors not equals", format("a captured tensor changed from {} to {}", was.str(), is.str()), 0);
  }
  if (parts_.size() > 1) return replay_parts(args);
  SmallVec<Meta, 4> metas;
  std::vector<ValuePtr> slots;
  for (auto* a : args) {
    metas.push_back(a->meta());
    slots.push_back(a->value);
  }
  RefPtr<Program> whole = program_of(0, {metas.data(), metas.size()}, slots);
  const Program& p = *whole;
  Command c;
  c.job = std::make_unique<ProgramJob>(whole);
  std::vector<TensorPtr> out;
  std::vector<ValuePtr> assigned;  // to arguments
  for (auto* a : args) c.in.push_back(a->value);
  for (size_t i = 0; i < p.n_outputs(); ++i) {
    c.out.push_back(pending(p.output_meta(i)));
    c.replaces.push_back(-1);
    if (i < results_.size())
      out.push_back(make_ref<Tensor>(c.out[i]));
    else
      assigned.push_back(c.out[i]);
  }
  // The command takes the state out of the cells: when nobody else holds it, it is updated in place. What is not
  // computed leaves it as it was.
  for (size_t i = 0; i < whole_vars_.size(); ++i) {
    Tensor& cell = *vars_[whole_vars_[i]].cell;
    c.in.push_back(cell.value);
    if (p.graph().vars()[i].out == ir::kNone) continue;
    c.replaces.push_back(static_cast<int>(c.in.size() - 1));
    c.out.push_back(pending(cell.meta()));
    cell.value = c.out[c.out.size() - 1];
    cell.links.clear();
  }
  if (c.out.empty()) return out;
  submit_here(std::move(c));
  size_t next = 0;
  for (auto& commit : commits_)
    if (commit.arg >= 0) {
      Tensor& cell = *args[static_cast<size_t>(commit.arg)];
      cell.value = std::move(assigned[next++]);
      cell.links.clear();
    }
  return out;
}

}  // namespace mge
