#include "eager/trace.h"

#include "eager/tape.h"

namespace mge {
namespace {

std::atomic<uint32_t> g_next_epoch{1};

const RefPtr<Life>& life_of(Value& v) {
  if (!v.life) v.life = make_ref<Life>();
  return v.life;
}

}  // namespace

Recording::~Recording() {
  if (active_tracer() == this) set_active_tracer(nullptr);
}

// Callers match on the reason, which is the rest of the first line; what was found and the user's line come after it.
void Recording::mismatch(const char* reason, const std::string& found, LocId loc, const char* way_out) const {
  std::string where = location_text(loc ? loc : current_location());
  throw Error(ErrorKind::Trace, format("trace error because {}\n  {}. {}{}{}", reason, found, way_out,
                                       where.empty() ? "" : "\n  at ", where));
}

void Recording::set_host_only(const std::string& reason, LocId loc) {
  if (!host_only_.empty()) return;
  std::string where = location_text(loc);
  host_only_ = reason + (where.empty() ? "" : " (" + where + ")");
}

void Recording::enter(State s) {
  MGE_CHECK(!active_tracer(), Env, "trace: a traced function cannot be called inside another one.");
  epochs_.clear();
  next_epoch();
  state_ = s;
  externals_.clear();
  set_active_tracer(this);
}

void Recording::leave() {
  set_active_tracer(nullptr);
  externals_.clear();
  if (!has_sizes_) return;
  has_sizes_ = false;
  for (auto& v : vars_) v.sizes = nullptr;
}

void Recording::next_epoch() {
  epoch_ = g_next_epoch++;
  epochs_.push_back(epoch_);
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
  boundaries_.clear();
  reads_.clear();
  host_only_.clear();
  guards_.clear();
  parts_.clear();
  undo_.clear();
  flushed_ = 0;
  exact_ = true;
  n_args_ = args.size();
  arg_cells_.clear();
  for (size_t i = 0; i < args.size(); ++i) {
    uint32_t v = new_var(args[i]->meta());
    vars_[v].external = true;
    vars_[v].arg = static_cast<int>(i);
    vars_[v].sized = opt_.any_size && args[i]->meta().shape.rank > 0;
    vars_[v].cell = TensorPtr(args[i]);
    arg_cells_.push_back(args[i]);
    vars_[v].value = args[i]->value;
    vars_[v].life = life_of(*args[i]->value);
    // An argument given twice is one variable: later calls must give it twice as well.
    auto& known = externals_[vars_[v].life.get()];
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
  const RefPtr<Life>& life = life_of(*v);
  auto& known = externals_[life.get()];
  for (uint32_t id : known)
    if (constant || vars_[id].cell.get() == cell) return id;
  // A cell that was assigned during the call stands for what it was assigned, not for what it held before.
  for (auto& c : commits_)
    if (c.cell.get() == cell && vars_[c.var].life == life) return c.var;
  uint32_t id = new_var(v->meta);
  Var& var = vars_[id];
  var.external = true;
  var.constant = var.is_static = constant;
  var.cell = TensorPtr(cell);
  var.value = t.value;
  var.life = life;
  known.push_back(id);
  return id;
}

bool Recording::on_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out,
                      LocId loc) {
  if (state_ == State::Matching) {
    match_op(op, attrs, in, out, loc);
    return !opt_.imperative && !vars_[ops_[pc_ - 1].out[0]].at_once;  // those are computed by whoever asked
  }
  Op rec{&op,
         attrs,
         {},
         {},
         {},
         nullptr,
         loc,
         backward_location() != 0,
         current_rerun(),
         mode::t_word & kOpModes,
         current_modules()};
  const bool pure = !(op.traits & (kEffect | kRandom));
  bool is_static = pure, sized = false, from_sizes = pure, any_sizes = false, late = false;
  for (auto* t : in) {
    rec.in.push_back(var_of(*t));
    const Var& v = vars_[rec.in.back()];
    is_static &= v.is_static;
    sized |= v.sized;
    any_sizes |= v.is_size;
    late |= v.late;
    from_sizes &= v.is_size || (v.is_static && ir::is_handful(v.meta));
  }
  if (attrs && !attrs->sizes().empty()) {
    note_sizes(rec);
    for (auto& s : rec.sizes) {
      const Var& v = vars_[s.var];
      is_static &= v.is_static;
      late |= v.late || !(v.is_size || v.is_static);
    }
    sized |= !is_static;
  }
  for (auto& v : out) from_sizes &= ir::is_handful(v->meta);
  bool waits = false;  // for something that is computed when the call ends
  for (auto* t : in) waits |= t->value->deferred && !t->value->ready();
  for (auto& v : out) {
    uint32_t id = new_var(v->meta);
    vars_[id].life = life_of(*v);
    if (opt_.lazy) vars_[id].value = v;  // no memory as yet
    vars_[id].is_static = is_static;
    vars_[id].sized = sized && !is_static;
    vars_[id].is_size = any_sizes && from_sizes && !vars_[id].sized;
    vars_[id].at_once = vars_[id].is_size || (is_static && from_sizes && !waits);
    vars_[id].late = late;
    vars_[id].producer = static_cast<int>(ops_.size());
    v->trace_epoch = epoch_;
    v->trace_var = id;
    rec.out.push_back(id);
  }
  const bool now = vars_[rec.out[0]].at_once;
  ops_.push_back(std::move(rec));
  return opt_.lazy && !now;
}

void Recording::on_assign(Tensor& cell, const Tensor& from) {
  if (cell.birth_epoch == epoch_) return;
  if (state_ == State::Matching || opt_.lazy) undo_.push_back({TensorPtr(&cell), cell.value, cell.links});
  if (state_ != State::Recording) return;
  // Reading the cell's value at the start first makes it a variable, so that a commit always has a state to replace.
  bool first = true;
  for (auto& c : commits_) first &= c.cell.get() != &cell;
  if (first) {
    Var& was = vars_[var_of(cell)];
    // From here on the cell does not hold it either. Constants of a file or a replay are what the call began with.
    if (was.external && was.arg < 0 && !was.constant && !opt_.capture_as_const && !opt_.lazy) was.value = nullptr;
  }
  uint32_t v = from.value->trace_epoch == epoch_ ? from.value->trace_var : var_of(const_cast<Tensor&>(from));
  for (auto& c : commits_)
    if (c.cell.get() == &cell) {
      c.var = v;
      return;
    }
  commits_.push_back({TensorPtr(&cell), v});
}

void Recording::on_read(Tensor& t) {
  Value& v = *t.value;
  if (state_ == State::Matching && opt_.imperative && v.trace_epoch == epoch_) {
    const Var& var = vars_[v.trace_var];
    if (!var.read && !var.is_size && !var.at_once)
      mismatch("value unreadable", "this value was not read in the recorded call", 0);
  }
  if (state_ != State::Recording) return;
  if (v.trace_epoch == epoch_) {
    Var& var = vars_[v.trace_var];
    if (var.is_size && var.late) {
      set_host_only("a size that depends on values is used as a number", current_location());
      if (!opt_.capture_as_const) return;  // a file cannot run Python: it holds for this number
    }
    if (var.is_size) return guard(v.trace_var, t);
    if (opt_.replay && !var.is_static) refuse_read();
    if (v.deferred && !v.ready() && !var.is_static) refuse_early_read();
    var.read = true;
    if (breaks_.empty() || breaks_.back() != ops_.size()) breaks_.push_back(ops_.size());
    return;
  }
  if (!opt_.replay || v.birth_epoch == epoch_) return;
  // A tensor from outside: an argument is another one in the next call; state is watched.
  const Tensor* cell = t.origin ? t.origin.get() : &t;
  for (size_t i = 0; i < n_args_; ++i)
    if (vars_[i].cell.get() == cell) refuse_read();
  reads_.push_back({TensorPtr(const_cast<Tensor*>(cell)), t.value});
}

void Recording::on_name(Tensor& t, const std::string& name) {
  if (state_ == State::Recording && t.value->trace_epoch == epoch_) vars_[t.value->trace_var].name = name;
}

void Recording::refuse_read() const {
  mismatch("data unreadable",
           "a value is read on the host in a call that is recorded with without_host=True. Later calls do not run "
           "Python, so they would go by the value of this one",
           0, "Return the tensor and read it outside, choose with F.where, or leave out without_host=True.");
}

void Recording::refuse_early_read() const {
  std::string where = location_text(current_location());
  throw Error(
      ErrorKind::Value,
      format("trace: a value is read on the host inside trace({}, so it is not known yet. Return the tensor and "
             "read it outside, choose with F.where, or use trace(symbolic=False).{}{}",
             opt_.record_only ? "record_only=True), where the call is written down and nothing is computed"
                              : "symbolic=True), where the call is recorded first and computed when it ends",
             where.empty() ? "" : "\n  at ", where));
}

void Recording::record_end(std::span<Tensor* const> results) {
  for (auto* t : results) results_.push_back(var_of(*t));
  if (opt_.replay && any_recording()) set_host_only("gradients are being recorded when the call ends", 0);
  for (auto* t : results) drop_stale_links(*t);
  for (auto& c : commits_) drop_stale_links(*c.cell);
  finish_recording();
}

void Recording::finish_recording() {
  leave();
  drain_executor();  // commands in the queue hold values too
  for (auto& c : commits_)
    for (size_t i = 0; i < n_args_ && c.arg < 0; ++i)
      if (vars_[i].cell == c.cell) c.arg = static_cast<int>(i);
  for (auto& v : vars_)
    if (!v.external) v.kept = lives(v);
  for (uint32_t r : results_) vars_[r].kept = true;
  for (auto& c : commits_) vars_[c.var].kept = true;
  if (opt_.replay) find_leaks();
  captured_.clear();
  captured_cells_.clear();
  first_of_cell_.clear();
  for (auto& c : commits_)
    if (c.arg >= 0) c.cell = nullptr;
  for (uint32_t v = 0; v < vars_.size(); ++v)
    if (vars_[v].external && vars_[v].arg < 0) {
      captured_.push_back(v);
      // Of several variables of one cell the first is the value the call began with.
      if (!vars_[v].constant && captured_cells_.emplace(vars_[v].cell.get(), v).second) first_of_cell_.push_back(v);
    }
  make_segments();
  if (opt_.lazy) compute_recorded();
  for (auto& v : vars_) {
    if (v.constant || (opt_.capture_as_const && v.external && v.arg < 0)) v.fixed = v.value;
    if (v.arg >= 0) v.cell = nullptr;
    v.value = nullptr;
    v.life = nullptr;
  }
  pinned_.assign(n_args_, nullptr);
  state_ = State::Recorded;
}

// A replay gives results and assigned state. Whatever else of the call outlives it (an element of somebody's list, an
// attribute) would stay as it is now; and a tensor from outside that nobody holds any more (the next one of an
// iterator) would be taken again and again.
void Recording::find_leaks() {
  std::vector<bool> given(vars_.size());
  for (uint32_t r : results_) given[r] = true;
  for (auto& c : commits_) given[c.var] = true;
  std::unordered_map<const Tensor*, uint32_t> ours;
  for (auto& c : commits_) ++ours[c.cell.get()];
  for (auto& r : reads_) ++ours[r.cell.get()];
  for (auto& u : undo_) ++ours[u.cell.get()];
  for (auto& v : vars_)
    if (v.cell) ++ours[v.cell.get()];
  for (uint32_t i = 0; i < vars_.size(); ++i) {
    const Var& v = vars_[i];
    if (!v.external && v.kept && !given[i])
      return set_host_only("a tensor computed in the call is kept without being returned",
                           ops_[static_cast<size_t>(v.producer)].loc);
    if (v.external && !v.constant && v.arg < 0 && !opt_.capture_as_const && v.cell->ref_count() <= ours[v.cell.get()])
      return set_host_only("the call uses a tensor made outside of the recording that nobody holds", 0);
  }
}

void Recording::pin_arguments(std::span<Tensor* const> outside) {
  MGE_CHECK(pinned_.size() == n_args_, Env, "trace: nothing was recorded.");
  for (auto* t : outside)
    for (size_t i = 0; i < n_args_; ++i)
      if (arg_cells_[i] == t) pinned_[i] = TensorPtr(t);
}

bool Recording::accepts(std::span<Tensor* const> args) {
  if (args.size() + opt_.late_args != n_args_) return false;
  for (size_t i = 0; i < args.size(); ++i)
    if (pinned_[i] ? pinned_[i].get() != args[i] : captured_cells_.count(args[i]) != 0) return false;
  for (uint32_t v : first_of_cell_) {
    const Meta &now = vars_[v].cell->meta(), &was = vars_[v].meta;
    if (!now.same_type(was) || now.cn != was.cn) return false;
  }
  for (auto& r : reads_)
    if (r.cell->value != r.value) return false;
  return allows_sizes(args);
}

void Recording::rebind(Tensor& was, Tensor& now) {
  auto it = captured_cells_.find(&was);
  if (it == captured_cells_.end()) return;
  size_t v = it->second;
  captured_cells_.erase(it);
  captured_cells_[&now] = v;
  for (auto& c : commits_)
    if (c.cell.get() == &was) c.cell = TensorPtr(&now);
  vars_[v].cell = TensorPtr(&now);
}

void Recording::record_abort() {
  leave();
  take_back();
  state_ = State::Empty;
  vars_.clear();
  ops_.clear();
}

}  // namespace mge
