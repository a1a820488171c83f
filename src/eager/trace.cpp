#include "eager/trace.h"

#include "eager/tape.h"
#include "plan/evaluate.h"

namespace mge {
namespace {

std::atomic<uint32_t> g_next_epoch{1};
pass::CanFuse g_can_fuse;

Buffer contiguous_of(Value& v) {
  wait(v);
  return make_contiguous(v.meta, v.buffer);
}

}  // namespace

Recording::~Recording() {
  if (active_tracer() == this) set_active_tracer(nullptr);
}

void Recording::mismatch(const std::string& reason, LocId loc) const {
  std::string where = location_text(loc ? loc : current_location());
  throw Error(ErrorKind::Trace, "trace error because " + reason + (where.empty() ? "" : "\n  at " + where));
}

void Recording::enter(State s) {
  MGE_CHECK(!active_tracer(), Env, "trace: a traced function cannot be called inside another one.");
  epoch_ = g_next_epoch++;
  state_ = s;
  externals_.clear();
  set_active_tracer(this);
}

void Recording::leave() {
  set_active_tracer(nullptr);
  externals_.clear();
}

uint32_t Recording::new_var(const Meta& m) {
  vars_.emplace_back();
  vars_.back().meta = m;
  return static_cast<uint32_t>(vars_.size() - 1);
}

// ---- recording

void Recording::record_begin(std::span<Tensor* const> args) {
  enter(State::Recording);
  vars_.clear();
  ops_.clear();
  commits_.clear();
  results_.clear();
  segments_.clear();
  breaks_.clear();
  cut_ = false;
  whole_ = nullptr;
  n_args_ = args.size();
  for (size_t i = 0; i < args.size(); ++i) {
    uint32_t v = new_var(args[i]->meta());
    vars_[v].external = true;
    vars_[v].arg = static_cast<int>(i);
    vars_[v].cell = TensorPtr(args[i]);
    vars_[v].value = args[i]->value;
    // An argument given twice is one variable: later calls must give it twice as well.
    auto& known = externals_[args[i]->value.get()];
    for (uint32_t id : known)
      if (vars_[id].cell.get() == args[i]) vars_[v].same_as = static_cast<int>(id);
    if (vars_[v].same_as < 0) known.push_back(v);
  }
}

uint32_t Recording::var_of(Tensor& t) {
  Value* v = t.value.get();
  if (v->trace_epoch == epoch_) return v->trace_var;
  // Two outside cells may hold one value now and different ones at the next call: each is a variable of its own. A name
  // made during the call stands for the cell it was made from.
  bool constant = v->birth_epoch == epoch_;
  Tensor* cell = t.origin ? t.origin.get() : &t;
  auto& known = externals_[v];
  for (uint32_t id : known)
    if (constant || vars_[id].cell.get() == cell) return id;
  // A cell that was assigned during the call stands for what it was assigned, not for what it held before.
  for (auto& c : commits_)
    if (c.cell.get() == cell && vars_[c.var].value.get() == v) return c.var;
  uint32_t id = new_var(v->meta);
  Var& var = vars_[id];
  var.external = true;
  var.constant = constant;
  var.cell = TensorPtr(cell);
  var.value = t.value;
  known.push_back(id);
  return id;
}

bool Recording::on_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out,
                      LocId loc) {
  if (state_ == State::Matching) {
    match_op(op, attrs, in, out, loc);
    return true;
  }
  Op rec{&op, attrs, {}, {}, loc, backward_location() != 0, current_rerun()};
  for (auto* t : in) rec.in.push_back(var_of(*t));
  for (auto& v : out) {
    uint32_t id = new_var(v->meta);
    vars_[id].value = v;
    vars_[id].producer = static_cast<int>(ops_.size());
    v->trace_epoch = epoch_;
    v->trace_var = id;
    rec.out.push_back(id);
  }
  ops_.push_back(std::move(rec));
  return false;
}

void Recording::on_assign(Tensor& cell, const Tensor& from) {
  if (cell.birth_epoch == epoch_) return;
  if (state_ == State::Matching) undo_.push_back({TensorPtr(&cell), cell.value, cell.links});
  if (state_ != State::Recording) return;
  // Reading the cell's value at the start first makes it a variable, so that a commit always has a state to replace.
  bool first = true;
  for (auto& c : commits_) first &= c.cell.get() != &cell;
  if (first) var_of(cell);
  uint32_t v = from.value->trace_epoch == epoch_ ? from.value->trace_var : var_of(const_cast<Tensor&>(from));
  for (auto& c : commits_)
    if (c.cell.get() == &cell) {
      c.var = v;
      return;
    }
  commits_.push_back({TensorPtr(&cell), v});
}

void Recording::on_read(Value& v) {
  if (state_ != State::Recording || v.trace_epoch != epoch_) return;
  vars_[v.trace_var].read = true;
  if (breaks_.empty() || breaks_.back() != ops_.size()) breaks_.push_back(ops_.size());
}

void Recording::record_end(std::span<Tensor* const> results) {
  if (cut_) return;
  for (auto* t : results) results_.push_back(var_of(*t));
  finish_recording();
}

void Recording::finish_recording() {
  leave();
  drain_executor();  // commands in the queue hold values too
  for (auto& v : vars_) {
    if (!v.external) v.kept = v.value->ref_count() > 1;  // somebody besides this recording still holds the value
    if (v.constant) v.fixed = v.value;
    if (v.arg >= 0) v.cell = nullptr;
    v.value = nullptr;
  }
  for (uint32_t r : results_) vars_[r].kept = true;
  for (auto& c : commits_) vars_[c.var].kept = true;
  captured_.clear();
  for (uint32_t v = 0; v < vars_.size(); ++v)
    if (vars_[v].external && vars_[v].arg < 0) captured_.push_back(v);
  make_segments();
  state_ = State::Recorded;
}

void Recording::cut(const std::string& who) {
  MGE_CHECK(!opt_.capture_as_const, NotImplemented,
            "{}: the size of the result depends on values, which a trace with capture_as_const=True cannot record. "
            "Integer tensors as indices, x[mask] = number and F.where work; int(n) fixes the bound of a slice.",
            who);
  if (state_ == State::Recording) {
    finish_recording();
    cut_ = true;
    return;
  }
  if (!cut_ || pc_ != ops_.size())
    mismatch(who + " gives a result whose size depends on values, at another place than in the recorded call", 0);
  run_segments();
  finish_match();
}

void Recording::record_abort() {
  if (!cut_) leave();
  state_ = State::Empty;
  vars_.clear();
  ops_.clear();
}

void Recording::make_segments() {
  std::vector<size_t> ends = breaks_;
  if (ends.empty() || ends.back() != ops_.size()) ends.push_back(ops_.size());
  std::vector<int> last_use(vars_.size(), -1);
  for (size_t i = 0; i < ops_.size(); ++i)
    for (uint32_t v : ops_[i].in) last_use[v] = static_cast<int>(i);
  size_t begin = 0;
  for (size_t end : ends) {
    Segment s{begin, end, {}, {}, {}};
    std::vector<bool> seen(vars_.size());
    for (size_t i = begin; i < end; ++i) {
      for (uint32_t v : ops_[i].in)
        if (!seen[v] && (vars_[v].external || vars_[v].producer < static_cast<int>(begin))) {
          seen[v] = true;
          s.in.push_back(v);
        }
      for (uint32_t v : ops_[i].out)
        if (vars_[v].kept || vars_[v].read || last_use[v] >= static_cast<int>(end)) s.out.push_back(v);
    }
    segments_.push_back(std::move(s));
    begin = end;
  }
}

// ---- host mode

void Recording::match_begin(std::span<Tensor* const> args) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded.");
  check_arguments(args, false);
  enter(State::Matching);
  pc_ = segment_ = 0;
  for (size_t i = 0; i < args.size(); ++i) vars_[i].value = args[i]->value;
}

void Recording::check_arguments(std::span<Tensor* const> args, bool metas) const {
  if (args.size() != n_args_)
    mismatch(format("the recording takes {} tensor arguments; got {}", n_args_, args.size()), 0);
  for (size_t i = 0; i < args.size(); ++i) {
    const Var& var = vars_[i];
    if (metas && !args[i]->meta().same_type(var.meta))
      mismatch(format("argument {} changed from {} to {}", i, var.meta.str(), args[i]->meta().str()), 0);
    if (var.same_as >= 0 && args[i]->value != args[static_cast<size_t>(var.same_as)]->value)
      mismatch(format("arguments {} and {} were one tensor in the recorded call and are two now", var.same_as, i), 0);
  }
}

void Recording::match_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                         std::span<const ValuePtr> out, LocId loc) {
  if (pc_ >= ops_.size()) mismatch("too many instructions", loc);
  const Op& rec = ops_[pc_];
  if (rec.op != &op || !attrs_equal(rec.attrs.get(), attrs.get()))
    mismatch(format("operator mismatch: the recording has {}{} here, the call made {}{}", rec.op->name,
                    rec.attrs ? rec.attrs->print() : "", op.name, attrs ? attrs->print() : ""),
             loc);
  if (rec.in.size() != in.size()) mismatch("input size mismatch", loc);
  for (size_t i = 0; i < in.size(); ++i) {
    Value* v = in[i]->value.get();
    uint32_t want = rec.in[i];
    Var& var = vars_[want];
    if (v->trace_epoch == epoch_) {
      if (var.external) mismatch("expect external node, got internal", loc);
      if (v->trace_var != want) mismatch("input id mismatch", loc);
      continue;
    }
    if (!var.external) mismatch("expect internal node, got external", loc);
    if (var.value && var.value.get() != v) mismatch("input id mismatch", loc);
    if (v->meta.dtype != var.meta.dtype)
      mismatch(format("dtype mismatch: {} vs {}", dtype_name(var.meta.dtype), dtype_name(v->meta.dtype)), loc);
    if (var.meta.cn && v->meta.cn && !v->meta.cn->same_as(*var.meta.cn))
      mismatch(format("comp_node mismatch: {} vs {}", var.meta.cn->logical, v->meta.cn->logical), loc);
    var.value = in[i]->value;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i]->trace_epoch = epoch_;
    out[i]->trace_var = rec.out[i];
    vars_[rec.out[i]].value = out[i];
  }
  ++pc_;
}

bool Recording::materialize(Value& v) {
  if (state_ != State::Matching || v.trace_epoch != epoch_) return false;
  if (!vars_[v.trace_var].read) mismatch("data unreadable: this value was not read in the recorded call", 0);
  while (segment_ < segments_.size() && segments_[segment_].end <= pc_ && !v.ready()) run_segment(segment_++);
  if (!v.ready()) mismatch("data unreadable: the value is read earlier than in the recorded call", 0);
  return true;
}

void Recording::run_segments() {
  while (segment_ < segments_.size()) run_segment(segment_++);
  for (auto& u : undo_)
    if (u.cell->value->deferred && !u.cell->value->ready())
      mismatch("a tensor was assigned that the recorded call left alone", 0);
}

void Recording::match_end() {
  if (state_ != State::Matching) return;  // cut: what followed ran eagerly
  if (pc_ != ops_.size()) {
    std::string reason = format("mismature end: {} of {} recorded ops were run", pc_, ops_.size());
    match_abort();
    mismatch(reason, 0);
  }
  try {
    run_segments();
  } catch (...) {
    match_abort();
    throw;
  }
  finish_match();
}

// A call that failed did nothing: state it had assigned, perhaps to values that will never be computed, is as before.
void Recording::match_abort() {
  if (state_ != State::Matching) return;
  for (; !undo_.empty(); undo_.pop_back()) {
    Undo& u = undo_.back();
    u.cell->value = std::move(u.value);
    u.cell->links = std::move(u.links);
  }
  finish_match();
}

// Ends matching, successfully or not: values that nobody computed must not look pending for ever.
void Recording::finish_match() {
  leave();
  undo_.clear();
  std::shared_ptr<const ExecError> error;
  for (auto& v : vars_) {
    if (!v.external && v.value && !v.value->ready()) {
      if (!error)
        error = std::make_shared<ExecError>(
            ErrorKind::Trace,
            "trace error because data unreadable: the traced program does not keep this value, since the "
            "recorded call did not. Return it from the traced function.");
      v.value->error = error;
      v.value->state.store(mge::State::Failed, std::memory_order_release);
    }
    v.value = nullptr;
  }
  state_ = State::Recorded;
}

void Recording::run_segment(size_t index) {
  Segment& s = segments_[index];
  if (s.begin == s.end) return;
  uint64_t key = 0;
  for (uint32_t v : s.in) {
    MGE_ASSERT(vars_[v].value, "trace: variable {} has no value", v);
    key = vars_[v].value->meta.hash(key);
  }
  RefPtr<Program>& p = s.programs[key];
  if (!p) p = compile(segment_graph(s));
  for (size_t i = 0; i < s.in.size(); ++i) p->bind_input(i, contiguous_of(*vars_[s.in[i]].value));
  p->run();
  for (size_t i = 0; i < s.out.size(); ++i) {
    Value& v = *vars_[s.out[i]].value;
    v.buffer = p->output(i);
    v.set_ready();
  }
  p->release_buffers();
}

// ---- graphs

std::string Recording::var_name(uint32_t v) const {
  const Var& var = vars_[v];
  if (var.arg >= 0) return format("arg_{}", var.arg);
  auto it = names_.find(var.cell.get());
  if (it != names_.end() && !it->second.empty()) return it->second;
  return format("v{}", v);
}

void Recording::add_ops(ir::Graph& g, size_t begin, size_t end, std::vector<ir::ValueId>& ids) const {
  std::unordered_map<LocId, ir::LocId> forward, backward;
  for (size_t i = begin; i < end; ++i) {
    const Op& op = ops_[i];
    auto& known = op.backward ? backward : forward;
    auto it = known.find(op.loc);
    if (it == known.end()) {
      Place p = location_place(op.loc);
      ir::LocId loc = p.file.empty() ? ir::kNoLoc : g.loc(p.file, p.line, p.function, op.backward ? "backward" : "");
      it = known.emplace(op.loc, loc).first;
    }
    SmallVec<ir::ValueId, 6> in;
    for (uint32_t v : op.in) in.push_back(ids[v]);
    ir::NodeId n = g.add_node(*op.op, op.attrs, {in.data(), in.size()}, it->second);
    g.set_rerun(n, op.rerun);
    for (size_t k = 0; k < op.out.size(); ++k) ids[op.out[k]] = g.node(n).outputs[k];
  }
}

ir::Graph Recording::segment_graph(const Segment& s) const {
  ir::Graph g("segment");
  std::vector<ir::ValueId> ids(vars_.size(), ir::kNone);
  for (uint32_t v : s.in) ids[v] = g.add_input(format("v{}", v), vars_[v].value->meta);
  add_ops(g, s.begin, s.end, ids);
  for (uint32_t v : s.out) g.add_output(format("o{}", v), ids[v]);
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
    if (e.as_constants || var.constant) {
      ValuePtr now = var.constant ? var.fixed : var.cell->value;
      Buffer b = make_contiguous(now->meta, to_host(now->meta, contiguous_of(*now)));
      size_t offset = static_cast<size_t>(b.layout.offset) * dtype_size(now->meta.dtype);
      ids[v] = g.add_constant(now->meta, b.storage, offset, var_name(v));
    } else {
      var_index[var.cell.get()] = g.vars().size();
      ids[v] = g.add_var(unique(var_name(v)), var.meta);
    }
  }
  add_ops(g, 0, ops_.size(), ids);
  for (size_t i = 0; i < results_.size(); ++i)
    g.add_output(i < e.result_names.size() ? e.result_names[i] : format("out{}", i), ids[results_[i]]);
  if (!e.as_constants)
    for (auto& c : commits_)
      if (auto it = var_index.find(c.cell.get()); it != var_index.end()) g.commit(it->second, ids[c.var]);
  return g;
}

pass::PipelineOptions pipeline_options(int opt_level) {
  pass::PipelineOptions o;
  o.opt_level = opt_level;
  o.evaluate = kernel_evaluator();
  o.can_fuse = g_can_fuse;
  return o;
}

void set_fusion(pass::CanFuse can_fuse) { g_can_fuse = std::move(can_fuse); }

RefPtr<Program> Recording::compile(ir::Graph g) const {
  pass::optimize(g, pipeline_options(opt_.opt_level));
  return Program::compile(g);
}

std::vector<Tensor*> Recording::captured() const {
  std::vector<Tensor*> out;
  for (uint32_t v : captured_)
    if (!vars_[v].constant) out.push_back(vars_[v].cell.get());
  return out;
}

std::string Recording::report() const {
  std::string s;
  if (whole_) s += whole_->report().str() + "\n" + whole_->dump();
  for (auto& seg : segments_)
    for (auto& [key, p] : seg.programs) s += p->report().str() + "\n" + p->dump();
  return s;
}

// ---- replay

std::vector<TensorPtr> Recording::replay(std::span<Tensor* const> args) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded.");
  MGE_CHECK(!cut_, Env, "trace: the recording holds the first part of the call only; run the function.");
  MGE_CHECK(!active_tracer(), Env, "trace: a traced function cannot be called inside another one.");
  check_arguments(args, true);
  if (!whole_) {
    Export e;
    e.as_constants = opt_.capture_as_const;
    ir::Graph g = graph(e);
    whole_vars_.clear();
    for (uint32_t v : captured_)
      if (!vars_[v].constant && !e.as_constants) whole_vars_.push_back(v);
    MGE_ASSERT(whole_vars_.size() == g.vars().size(), "trace: {} vars for {} captured tensors", g.vars().size(),
               whole_vars_.size());
    whole_ = compile(std::move(g));
  }
  Program& p = *whole_;
  // All that can fail comes first: from the first bind_var on the program owns the state.
  std::vector<Buffer> state;
  for (size_t i = 0; i < whole_vars_.size(); ++i) {
    const Var& var = vars_[whole_vars_[i]];
    Tensor& cell = *var.cell;
    if (!cell.meta().same_type(var.meta))
      mismatch(format("a captured tensor changed from {} to {}", var.meta.str(), cell.meta().str()), 0);
    state.push_back(contiguous_of(*cell.value));
  }
  for (size_t i = 0; i < args.size(); ++i) p.bind_input(i, contiguous_of(*args[i]->value));
  for (size_t i = 0; i < whole_vars_.size(); ++i) {
    Value& now = *vars_[whole_vars_[i]].cell->value;
    // When nobody else looks, the update may happen in place.
    if (p.graph().vars()[i].out != ir::kNone && now.ref_count() == 1) now.buffer = {};
    p.bind_var(i, std::move(state[i]));
  }
  auto put_back = [&] {
    for (size_t i = 0; i < whole_vars_.size(); ++i) {
      Tensor& cell = *vars_[whole_vars_[i]].cell;
      if (p.graph().vars()[i].out == ir::kNone) continue;
      ValuePtr v = make_ref<Value>();
      v->meta = cell.meta();
      v->buffer = p.var(i);
      v->set_ready();
      cell.value = std::move(v);
      cell.links.clear();
    }
  };
  try {
    p.run();
  } catch (...) {
    put_back();
    p.release_buffers();
    throw;
  }
  std::vector<TensorPtr> out;
  for (size_t i = 0; i < results_.size(); ++i) out.push_back(tensor_from_buffer(p.output_meta(i), p.output(i)));
  put_back();
  p.release_buffers();
  return out;
}

}  // namespace mge
