#include "eager/trace.h"

#include "eager/tape.h"

namespace mge {
namespace {

std::atomic<uint32_t> g_next_epoch{1};
// What dispatch goes by besides the op and its inputs, and the tape.
constexpr uint32_t kOpModes = mode::kSettings | mode::kRule;

bool is_exactly(const Meta& m, const Meta& recorded) { return m.cn == recorded.cn && m.same_type(recorded); }

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
  epoch_ = g_next_epoch++;
  epochs_.assign(1, epoch_);
  state_ = s;
  externals_.clear();
  set_active_tracer(this);
}

void Recording::leave() {
  set_active_tracer(nullptr);
  externals_.clear();
  for (auto& v : vars_) v.sizes = nullptr;
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
    if (!var.read && !var.at_once) mismatch("data unreadable", "this value was not read in the recorded call", 0);
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

// ---- sizes

Recording::Var* Recording::find_var(const Tensor& t) {
  const Value* v = t.value.get();
  if (v->trace_epoch == epoch_) return &vars_[v->trace_var];
  for (size_t i = 0; i < n_args_; ++i)
    if (vars_[i].value.get() == v) return &vars_[i];
  return nullptr;
}

bool Recording::any_size(const Tensor& t) const {
  const Var* v = opt_.any_size ? find_var(t) : nullptr;
  return v && v->sized;
}

const OpDef& shape_of_op() {
  static const OpDef& op = OpRegistry::global().get("shape_of");
  return op;
}

// Computed here and now from the meta, whatever mode the call is in.
TensorPtr Recording::sizes_of(Tensor& t) {
  if (!opt_.any_size) return nullptr;
  const Var* var_of_t = find_var(t);  // moves when the op below makes a variable
  const bool known = var_of_t, any = known && var_of_t->sized;
  if (known && var_of_t->sizes) return var_of_t->sizes;
  if (known && exact_ && state_ == State::Matching)
    if (TensorPtr sizes = known_sizes(*var_of_t)) return sizes;
  const OpDef& shape_of = shape_of_op();
  const Meta& m = t.meta();
  Meta of;
  const Meta* in = &m;
  infer_op(shape_of, nullptr, {&in, 1}, {&of, 1});
  of.cn = m.cn;
  Buffer b = allocate_for_host(of);
  std::copy(m.shape.begin(), m.shape.end(), static_cast<int32_t*>(b.storage->ptr));
  TensorPtr sizes = tensor_from_host(of, std::move(b));
  Tensor* x = &t;
  LocId loc = -backward_location();
  on_op(shape_of, nullptr, {&x, 1}, {&sizes->value, 1}, loc ? loc : current_location());
  if (state_ == State::Recording) {
    Var& var = vars_[sizes->value->trace_var];
    var.is_size = true;
    var.is_static = !any;
    var.sized = false;
  }
  if (known) find_var(t)->sizes = sizes;
  return sizes;
}

// The next op of the recording is this one, and its result needs no computing. The tensor of the last call serves again
// when nobody has kept it.
TensorPtr Recording::known_sizes(const Var& of) {
  const auto id = static_cast<uint32_t>(&of - vars_.data());
  if (pc_ >= ops_.size() || ops_[pc_].op != &shape_of_op() || ops_[pc_].in[0] != id) return nullptr;
  const uint32_t out = ops_[pc_++].out[0];
  Var& var = vars_[out];
  TensorPtr& t = var.cell;
  // Held by nobody but t and var.fixed, and not assigned another value.
  const bool free = t && t->ref_count() == 1 && t->value == var.fixed && var.fixed->ref_count() == 2;
  if (!free) {
    Buffer b = allocate_for_host(var.meta);
    std::copy(of.meta.shape.begin(), of.meta.shape.end(), static_cast<int32_t*>(b.storage->ptr));
    t = tensor_from_host(var.meta, std::move(b));
    var.fixed = t->value;
    var.fixed->birth_epoch = 0;
    var.fixed->trace_var = out;
  }
  t->links.clear();
  t->birth_epoch = t->value->trace_epoch = var.same = epoch_;
  var.value = t->value;
  return vars_[id].sizes = t;
}

// The value that a variable has in every call of these sizes, as a value of this one.
ValuePtr Recording::known_value(uint32_t id) {
  Var& var = vars_[id];
  ValuePtr v = make_ref<Value>();
  v->meta = var.meta;
  v->buffer = var.fixed->buffer;
  v->known = var.fixed->known;
  v->trace_epoch = epoch_;
  v->trace_var = id;
  v->set_ready();
  var.value = v;
  return v;
}

bool Recording::on_size(Tensor& t) {
  Value& v = *t.value;
  if (v.trace_epoch == epoch_) {
    Var& var = vars_[v.trace_var];
    if (var.is_static || var.is_size) return !var.is_static;
    if (state_ == State::Recording) {
      var.read = true;
      if (breaks_.empty() || breaks_.back() != ops_.size()) breaks_.push_back(ops_.size());
    }
    return true;
  }
  if (v.birth_epoch == epoch_) return false;
  if (find_var(t) || !opt_.replay) return true;
  on_read(t);  // state: watched
  return false;
}

// The attributes of this call stay with the op, the tensors they were made of become variables.
void Recording::note_sizes(Op& rec) {
  for (auto& s : rec.attrs->sizes())
    rec.sizes.push_back({s.field, s.element, var_of(*static_cast<Tensor*>(s.value.get()))});
  rec.attrs = rec.now = rec.op->schema.build(rec.op->name, rec.attrs->values());
}

void Recording::guard(uint32_t id, Tensor& t) {
  if (vars_[id].is_static || vars_[id].meta.bytes() == 0) return;
  for (auto& g : guards_)
    if (g.var == id) return;
  const Meta& m = t.meta();
  Buffer b = make_contiguous(m, host_buffer(*t.value));
  const char* p = static_cast<const char*>(b.data(m.dtype));
  LocId loc = -backward_location();
  guards_.push_back({id, std::vector<char>(p, p + m.bytes()), loc ? loc : current_location()});
}

bool Recording::allows_sizes(std::span<Tensor* const> args) {
  bool same = true, fits = true;
  for (size_t i = 0; i < args.size(); ++i) {
    same &= args[i]->meta().shape == vars_[i].meta.shape;
    fits &= args[i]->meta().shape.rank == vars_[i].meta.shape.rank;
  }
  if (same || !opt_.any_size || !fits) return same;
  make_parts();
  std::vector<ValuePtr> slots(stages_.n_slots);
  for (size_t i = 0; i < args.size(); ++i) slots[i] = args[i]->value;
  for (size_t i = 0; i < whole_vars_.size(); ++i) slots[n_args_ + i] = vars_[whole_vars_[i]].cell->value;
  SmallVec<Meta, 4> metas;
  for (int slot : stages_.parts[0].in) metas.push_back(slots[static_cast<size_t>(slot)]->meta);
  return parts_[0].accepts({metas.data(), metas.size()}, known_inputs(stages_.parts[0], slots));
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

// What was recorded since the last time is computed now: everything that somebody still holds.
void Recording::flush() {
  if (flushed_ == ops_.size()) return;
  if (opt_.record_only) refuse_early_read();
  if (breaks_.empty() || breaks_.back() != ops_.size()) breaks_.push_back(ops_.size());
  segments_.push_back(segment_of(flushed_, ops_.size(), [&](uint32_t v) { return lives(vars_[v]); }));
  flushed_ = ops_.size();
  run_segment(segments_.size() - 1);
}

// The end of a call that was only written down so far. With record_only it is all there is: state is as it was.
void Recording::compute_recorded() {
  if (opt_.record_only) return take_back();
  for (size_t i = 0; i < segments_.size(); ++i)
    if (segments_[i].begin >= flushed_) run_segment(i);
  if (opt_.replay && host_only_.empty())  // from now on the whole call is one program
    for (auto& s : segments_) {
      s.programs.clear();
      s.exact = nullptr;
    }
  undo_.clear();
  fail_uncomputed();
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

// ---- parts that are not seen

void Recording::exclude_begin() {
  if (state_ == State::Recording) {
    if (opt_.replay) set_host_only("exclude_from_trace", current_location());
    if (opt_.lazy) flush();
    boundaries_.push_back(ops_.size());
    if (breaks_.empty() || breaks_.back() != ops_.size()) breaks_.push_back(ops_.size());
    drain_executor();
    for (auto& v : vars_)
      if (!v.external && lives(v)) v.read = true;
    return;
  }
  if (boundary_ >= boundaries_.size() || boundaries_[boundary_] != pc_)
    mismatch("operator mismatch", "exclude_from_trace is at another place than in the recorded call", 0);
  ++boundary_;
  while (segment_ < segments_.size() && segments_[segment_].end <= pc_) run_segment(segment_++);
  fail_uncomputed();
}

void Recording::exclude_end() {
  epoch_ = g_next_epoch++;
  epochs_.push_back(epoch_);
  externals_.clear();
}

void Recording::needs_host(const std::string& why) {
  if (state_ == State::Recording && opt_.replay) set_host_only(why, current_location());
}

void Recording::record_abort() {
  leave();
  take_back();
  state_ = State::Empty;
  vars_.clear();
  ops_.clear();
}

// `leaves`: whether a variable that the segment computes is wanted after it.
template <class Leaves>
Recording::Segment Recording::segment_of(size_t begin, size_t end, const Leaves& leaves) const {
  Segment s{begin, end, {}, {}, 0, {}, {}};
  std::vector<bool> seen(vars_.size());
  for (size_t i = begin; i < end; ++i) {
    if (vars_[ops_[i].out[0]].at_once) continue;
    for (uint32_t v : ops_[i].in)
      if (!seen[v] && (vars_[v].external || vars_[v].at_once || vars_[v].producer < static_cast<int>(begin))) {
        seen[v] = true;
        s.in.push_back(v);
      }
    for (uint32_t v : ops_[i].out)
      if (leaves(v)) s.out.push_back(v);
  }
  return s;
}

void Recording::make_segments() {
  segments_.clear();
  std::vector<size_t> ends = breaks_;
  if (ends.empty() || ends.back() != ops_.size()) ends.push_back(ops_.size());
  std::vector<int> last_use(vars_.size(), -1);
  for (size_t i = 0; i < ops_.size(); ++i)
    for (uint32_t v : ops_[i].in)
      if (!vars_[ops_[i].out[0]].at_once) last_use[v] = static_cast<int>(i);
  size_t begin = 0;
  for (size_t end : ends) {
    segments_.push_back(segment_of(begin, end, [&](uint32_t v) {
      return vars_[v].kept || vars_[v].read || last_use[v] >= static_cast<int>(end);
    }));
    begin = end;
  }
  find_state(segments_.back());
}

// Tensors from outside that the last segment gives another value may give it their memory, too: as state they are at
// the end of `in`, and their next values, in the same order, at the end of `out`.
void Recording::find_state(Segment& s) {
  std::vector<uint32_t> in, out;
  auto take = [](std::vector<uint32_t>& from, uint32_t v) {
    auto it = std::find(from.begin(), from.end(), v);
    return it == from.end() ? false : (from.erase(it), true);
  };
  auto has = [](const std::vector<uint32_t>& of, uint32_t v) { return std::find(of.begin(), of.end(), v) != of.end(); };
  for (auto& c : commits_) {
    auto it = c.cell ? captured_cells_.find(c.cell.get()) : captured_cells_.end();
    if (it == captured_cells_.end()) continue;
    const auto was = static_cast<uint32_t>(it->second);
    const Var &from = vars_[was], &to = vars_[c.var];
    if (!to.meta.same_type(from.meta) || to.meta.cn != from.meta.cn) continue;
    if (!has(s.in, was) || !take(s.out, c.var)) continue;
    take(s.in, was);
    in.push_back(was);
    out.push_back(c.var);
    vars_[c.var].state_of = static_cast<int>(was);
  }
  s.n_state = in.size();
  s.in.insert(s.in.end(), in.begin(), in.end());
  s.out.insert(s.out.end(), out.begin(), out.end());
}

// ---- host mode

void Recording::match_begin(std::span<Tensor* const> args) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded.");
  check_arguments(args, false);
  enter(State::Matching);
  pc_ = segment_ = boundary_ = 0;
  exact_ = true;
  for (size_t i = 0; i < args.size(); ++i) {
    vars_[i].value = args[i]->value;
    exact_ &= is_exactly(args[i]->meta(), vars_[i].meta);
  }
}

void Recording::check_arguments(std::span<Tensor* const> args, bool metas) const {
  if (args.size() != n_args_)
    mismatch("input size mismatch", format("the recording takes {} tensor arguments; got {}", n_args_, args.size()), 0);
  for (size_t i = 0; i < args.size(); ++i) {
    const Var& var = vars_[i];
    const Meta& m = args[i]->meta();
    const bool fits =
        opt_.any_size ? m.dtype == var.meta.dtype && m.shape.rank == var.meta.shape.rank : m.same_type(var.meta);
    if (metas && !fits)
      mismatch(m.dtype == var.meta.dtype
                   ? "input size mismatch"
                   : format("dtype mismatch: {} vs {}", dtype_name(var.meta.dtype), dtype_name(m.dtype)).c_str(),
               format("argument {} changed from {} to {}", i, var.meta.str(), args[i]->meta().str()), 0);
    if (var.same_as >= 0 && args[i]->value != args[static_cast<size_t>(var.same_as)]->value)
      mismatch("input id mismatch",
               format("arguments {} and {} were one tensor in the recorded call and are two now", var.same_as, i), 0);
  }
}

// Those that sizes decide may differ, if they come from the same places.
bool Recording::same_attributes(Op& rec, const Attrs& attrs) {
  if (rec.sizes.empty() && (!attrs || attrs->sizes().empty())) return attrs_equal(rec.attrs.get(), attrs.get());
  auto given = attrs->sizes();
  if (given.size() != rec.sizes.size()) return false;
  std::vector<NamedAttr> was = rec.attrs->values(), now = attrs->values();
  for (size_t i = 0; i < given.size(); ++i) {
    const SizeVar& want = rec.sizes[i];
    auto* t = static_cast<Tensor*>(given[i].value.get());
    if (want.field != given[i].field || want.element != given[i].element) return false;
    const bool inside = t->value->trace_epoch == epoch_;
    Var& var = vars_[want.var];
    if (inside ? t->value->trace_var != want.var : !var.external) return false;
    if (!inside) var.value = t->value;
    was[static_cast<size_t>(want.field)].value = now[static_cast<size_t>(want.field)].value;
  }
  rec.now = rec.op->schema.build(rec.op->name, now);
  exact_ &= attrs_equal(rec.now.get(), rec.attrs.get());
  return attrs_equal(rec.now.get(), rec.op->schema.build(rec.op->name, was).get());
}

// The same without looking at numbers that cannot differ. False: perhaps.
bool Recording::exact_attributes(Op& rec, const Attrs& attrs) {
  auto given = attrs ? attrs->sizes() : std::span<const SizeOperand>();
  if (given.size() != rec.sizes.size()) return false;
  for (size_t i = 0; i < given.size(); ++i) {
    const SizeVar& want = rec.sizes[i];
    const Value& v = *static_cast<Tensor*>(given[i].value.get())->value;
    if (want.field != given[i].field || want.element != given[i].element || v.trace_epoch != epoch_ ||
        v.trace_var != want.var || vars_[want.var].same != epoch_)
      return false;
  }
  if (!attrs_equal(rec.attrs.get(), attrs.get())) return false;
  if (!given.empty() && rec.now != rec.attrs) rec.now = rec.attrs;
  return true;
}

// Whether what is computed at once from these inputs is what it is in every call of these sizes.
bool Recording::is_same(const Op& rec) const {
  for (uint32_t v : rec.in)
    if (vars_[v].same != epoch_) return false;
  return exact_ && !rec.in.empty();
}

// The way of most ops. Whatever is not just as it was goes on to dispatch and match_op, which find out.
bool Recording::match(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) {
  if (state_ != State::Matching || !exact_ || opt_.imperative || pc_ >= ops_.size()) return false;
  Op& rec = ops_[pc_];
  if (rec.op != &op || rec.in.size() != in.size() || rec.modes != (mode::t_word & kOpModes)) return false;
  if ((rec.attrs != attrs || !rec.sizes.empty()) && !exact_attributes(rec, attrs)) return false;
  for (size_t i = 0; i < in.size(); ++i) {
    Value* v = in[i]->value.get();
    if (v->trace_epoch == epoch_) {
      if (v->trace_var != rec.in[i]) return false;
      continue;
    }
    Var& var = vars_[rec.in[i]];
    if (var.value.get() == v && var.external) continue;
    if (!var.external || var.value || !is_exactly(v->meta, var.meta)) return false;
    var.value = in[i]->value;
  }
  const bool at_once = vars_[rec.out[0]].at_once;
  if (at_once) {
    if (!is_same(rec)) return false;
    for (uint32_t o : rec.out)
      if (!vars_[o].fixed) return false;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    Var& var = vars_[rec.out[i]];
    if (at_once) {
      out[i] = make_ref<Tensor>(known_value(rec.out[i]));
      var.same = epoch_;
      continue;
    }
    ValuePtr v = std::move(var.spare);
    if (!v) {
      v = make_ref<Value>();
      v->meta = var.meta;
      v->trace_var = rec.out[i];
    }
    v->trace_epoch = epoch_;
    v->deferred = true;
    var.value = v;
    out[i] = make_ref<Tensor>(std::move(v));
  }
  ++pc_;
  return true;
}

void Recording::match_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                         std::span<const ValuePtr> out, LocId loc) {
  if (pc_ >= ops_.size()) mismatch("too many instructions", format("the recording ends before {}", op.name), loc);
  Op& rec = ops_[pc_];
  if (rec.op != &op || !same_attributes(rec, attrs))
    mismatch("operator mismatch",
             format("the recording has {}{} here, the call made {}{}", rec.op->name,
                    rec.attrs ? rec.attrs->print() : "", op.name, attrs ? attrs->print() : ""),
             loc);
  if (rec.in.size() != in.size())
    mismatch("input size mismatch",
             format("{} takes {} inputs, {} when it was recorded", op.name, in.size(), rec.in.size()), loc);
  for (size_t i = 0; i < in.size(); ++i) {
    Value* v = in[i]->value.get();
    uint32_t want = rec.in[i];
    Var& var = vars_[want];
    if (v->trace_epoch == epoch_) {
      if (var.external) mismatch("expect external node, got internal", format("input {} of {}", i, op.name), loc);
      if (v->trace_var != want) mismatch("input id mismatch", format("input {} of {}", i, op.name), loc);
      continue;
    }
    if (!var.external) mismatch("expect internal node, got external", format("input {} of {}", i, op.name), loc);
    if (var.value && var.value.get() != v) mismatch("input id mismatch", format("input {} of {}", i, op.name), loc);
    if (v->meta.dtype != var.meta.dtype)
      mismatch(format("dtype mismatch: {} vs {}", dtype_name(var.meta.dtype), dtype_name(v->meta.dtype)).c_str(),
               format("input {} of {}", i, op.name), loc);
    if (var.meta.cn && v->meta.cn && !v->meta.cn->same_as(*var.meta.cn))
      mismatch(format("comp_node mismatch: {} vs {}", var.meta.cn->logical, v->meta.cn->logical).c_str(),
               format("input {} of {}", i, op.name), loc);
    exact_ &= is_exactly(v->meta, var.meta);
    var.value = in[i]->value;
  }
  const bool same = vars_[rec.out[0]].at_once && is_same(rec);
  for (size_t i = 0; i < out.size(); ++i) {
    Var& var = vars_[rec.out[i]];
    out[i]->trace_epoch = epoch_;
    out[i]->trace_var = rec.out[i];
    var.value = out[i];
    exact_ &= is_exactly(out[i]->meta, var.meta);
    if (same) var.same = epoch_;
  }
  ++pc_;
}

bool Recording::materialize(Value& v) {
  if (state_ == State::Recording && opt_.lazy && v.trace_epoch == epoch_ && v.deferred) {
    flush();
    return true;
  }
  if (state_ != State::Matching || v.trace_epoch != epoch_) return false;
  if (!vars_[v.trace_var].read) mismatch("data unreadable", "this value was not read in the recorded call", 0);
  while (segment_ < segments_.size() && segments_[segment_].end <= pc_ && v.deferred) run_segment(segment_++);
  if (v.deferred && !v.ready()) mismatch("data unreadable", "the value is read earlier than in the recorded call", 0);
  return true;
}

void Recording::run_segments() {
  for (; segment_ < segments_.size(); ++segment_) run_segment(segment_, segment_ + 1 == segments_.size());
  for (auto& u : undo_)
    if (u.cell->value->deferred && !u.cell->value->ready())
      mismatch("tensors not equals", "a tensor was assigned that the recorded call left alone", 0);
}

void Recording::match_end() {
  if (state_ != State::Matching) return;
  if (pc_ != ops_.size()) {
    const Op& next = ops_[pc_];
    std::string found =
        format("the call ends after {} of {} recorded ops; next was {}", pc_, ops_.size(), next.op->name);
    LocId loc = next.loc;
    match_abort();
    mismatch("mismature end", found, loc);
  }
  try {
    run_segments();
  } catch (...) {
    match_abort();
    throw;
  }
  for (auto& v : vars_)
    if (v.at_once && !v.fixed && v.same == epoch_ && v.value->ready()) {
      v.fixed = make_ref<Value>();
      v.fixed->meta = v.meta;
      v.fixed->buffer = v.value->buffer;
      v.fixed->known = v.value->known;
    }
  finish_match();
}

// A call that failed did nothing: state it had assigned, perhaps to values that will never be computed, is as before.
void Recording::match_abort() {
  if (state_ != State::Matching) return;
  take_back();
  finish_match();
}

void Recording::take_back() {
  for (; !undo_.empty(); undo_.pop_back()) {
    Undo& u = undo_.back();
    u.cell->value = std::move(u.value);
    u.cell->links = std::move(u.links);
  }
  fail_uncomputed();
}

// Ends matching, successfully or not: values that nobody computed must not look pending for ever.
void Recording::finish_match() {
  leave();
  undo_.clear();
  fail_uncomputed();
  for (auto& v : vars_) {
    if (exact_ && v.value && !v.external && !v.at_once && v.value->ref_count() == 1) {
      v.spare = std::move(v.value);
      Value& x = *v.spare;
      x.buffer = {};
      x.known = nullptr;
      x.error = nullptr;
      x.life = nullptr;
      x.state.store(mge::State::Pending, std::memory_order_relaxed);
    }
    v.value = nullptr;
  }
  state_ = State::Recorded;
}

void Recording::fail_uncomputed() {
  std::shared_ptr<const ExecError> error;
  for (auto& v : vars_) {
    if (v.external || !v.value || !v.value->deferred || v.value->ready()) continue;
    if (v.value->ref_count() == 1) continue;  // nobody else will see it
    if (!error)
      error = std::make_shared<ExecError>(
          ErrorKind::Trace,
          opt_.record_only && state_ != State::Matching
              ? "trace error because data unreadable\n  trace(record_only=True) writes the call down and computes "
                "nothing. Call the function again, or leave out record_only=True."
              : "trace error because data unreadable\n  the traced program does not keep this value, since the "
                "recorded call did not. Return it from the traced function.");
    v.value->error = error;
    v.value->state.store(mge::State::Failed, std::memory_order_release);
  }
}

}  // namespace mge
