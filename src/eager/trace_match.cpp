// Host mode: Python runs again, and each op it makes is the one that was recorded.
#include "eager/trace.h"

namespace mge {

namespace {

bool is_exactly(const Meta& m, const Meta& recorded) { return m.cn == recorded.cn && m.same_type(recorded); }

// As callers of the original compare them: Float32.
std::string dtype_mismatch(DType recorded, DType now) {
  auto capital = [](std::string name) {
    name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
    return name;
  };
  return format("dtype mismatch: {} vs {}", capital(std::string(dtype_name(recorded))),
                capital(std::string(dtype_name(now))));
}

}  // namespace

void Recording::match_begin(std::span<Tensor* const> args) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded.");
  check_arguments(args, false);
  enter(State::Matching);
  pc_ = segment_ = boundary_ = 0;
  exact_ = true;
  to_fix_ = false;
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
      mismatch(m.dtype == var.meta.dtype ? "input size mismatch" : dtype_mismatch(var.meta.dtype, m.dtype).c_str(),
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
bool Recording::match(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out,
                      uint32_t modes) {
  if (state_ != State::Matching || !exact_ || opt_.imperative || pc_ >= ops_.size()) return false;
  Op& rec = ops_[pc_];
  if (rec.op != &op || rec.in.size() != in.size() || rec.modes != (modes & kOpModes)) return false;
  if ((rec.attrs != attrs || !rec.sizes.empty()) && !exact_attributes(rec, attrs)) return false;
  for (size_t i = 0; i < in.size(); ++i) {
    Value* v = in[i]->value.get();
    if (v->trace_epoch == epoch_) {
      if (v->trace_var != rec.in[i]) return false;
      continue;
    }
    Var& var = vars_[rec.in[i]];
    if (var.value.get() == v && var.external) {
      var.bound = epoch_;
      continue;
    }
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
    out[i] = make_ref<Tensor>(std::move(v), epoch_);
  }
  ++pc_;
  return true;
}

// Whether an argument that no op has taken yet may be another tensor from outside: operands that change places.
bool Recording::may_be(const Var& var, const Value& v) const {
  return var.arg >= 0 && var.bound != epoch_ && var.state_of < 0 && is_exactly(v.meta, var.value->meta);
}

void Recording::match_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in,
                         std::span<const ValuePtr> out, LocId loc) {
  if (pc_ >= ops_.size()) mismatch("too many instructions", format("the recording ends before {}", op.name), loc);
  Op& rec = ops_[pc_];
  if (rec.in.size() != in.size())
    mismatch("input size mismatch",
             format("the recording has {} of {} inputs here, the call made {} of {}", rec.op->name, rec.in.size(),
                    op.name, in.size()),
             loc);
  if (rec.op != &op || !same_attributes(rec, attrs))
    mismatch("operator mismatch",
             format("the recording has {}{} here, the call made {}{}", rec.op->name,
                    rec.attrs ? rec.attrs->print() : "", op.name, attrs ? attrs->print() : ""),
             loc);
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
    if (var.value && var.value.get() != v && !may_be(var, *v))
      mismatch("input id mismatch", format("input {} of {}", i, op.name), loc);
    var.bound = epoch_;
    if (v->meta.dtype != var.meta.dtype)
      mismatch(dtype_mismatch(var.meta.dtype, v->meta.dtype).c_str(), format("input {} of {}", i, op.name), loc);
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
    if (!same) continue;
    var.same = epoch_;
    to_fix_ |= !var.fixed;
  }
  ++pc_;
}

bool Recording::materialize(Value& v) {
  if (state_ == State::Recording && opt_.lazy && v.trace_epoch == epoch_ && v.deferred) {
    flush();
    return true;
  }
  // What is not deferred was computed by whoever asked (at_once) and may still be on its way through a stream.
  if (state_ != State::Matching || v.trace_epoch != epoch_ || !v.deferred) return false;
  if (!vars_[v.trace_var].read) mismatch("value unreadable", "this value was not read in the recorded call", 0);
  while (segment_ < segments_.size() && segments_[segment_].end <= pc_ && v.deferred) run_segment(segment_++);
  if (v.deferred && !v.ready()) mismatch("value unreadable", "the value is read earlier than in the recorded call", 0);
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
    bool held = false;  // what the recorded call dropped
    for (const Var& v : vars_)
      held |= !v.external && !v.kept && v.value && (v.value->deferred || opt_.imperative) && v.value->ref_count() > 1;
    if (held) found += ", and it gives a value that the recorded call did not give";
    match_abort();
    mismatch(held ? "data unreadable" : "mismature end", found, loc);
  }
  try {
    run_segments();
  } catch (...) {
    match_abort();
    throw;
  }
  for (auto& v : std::span(vars_).first(to_fix_ ? vars_.size() : 0))
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
  std::shared_ptr<const ExecError> error;
  for (auto& v : vars_) {
    Value* x = v.value.get();
    if (!x) continue;
    if (x->ref_count() > 1) {
      fail_uncomputed(v, error);
    } else if (exact_ && !v.external && !v.at_once) {
      v.spare = std::move(v.value);
      if (x->state.load(std::memory_order_relaxed) != mge::State::Pending) {
        x->buffer = {};
        x->known = nullptr;
        x->error = nullptr;
        x->state.store(mge::State::Pending, std::memory_order_relaxed);
      }
      if (x->life) x->life = nullptr;
      continue;
    }
    v.value = nullptr;
  }
  state_ = State::Recorded;
}

void Recording::fail_uncomputed() {
  std::shared_ptr<const ExecError> error;
  for (auto& v : vars_)
    if (v.value && v.value->ref_count() > 1) fail_uncomputed(v, error);  // else nobody else will see it
}

void Recording::fail_uncomputed(const Var& v, std::shared_ptr<const ExecError>& error) const {
  if (v.external || !v.value->deferred || v.value->ready()) return;
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

}  // namespace mge
