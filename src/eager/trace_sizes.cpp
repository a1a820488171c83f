// Sizes of a recorded call: shapes as tensors, guards, and what other sizes a recording takes.
#include "eager/trace.h"

namespace mge {

Recording::Var* Recording::find_var(const Tensor& t) {
  const Value* v = t.value.get();
  if (v->trace_epoch == epoch_) return &vars_[v->trace_var];
  for (size_t i = 0; i < n_args_; ++i)
    if (vars_[i].value.get() == v) return &vars_[i];
  return nullptr;
}

// Where arguments keep their sizes there are still those that follow from values.
bool Recording::any_size(const Tensor& t) const {
  const Var* v = find_var(t);
  return v && v->sized;
}

const OpDef& shape_of_op() {
  static const OpDef& op = OpRegistry::global().get("shape_of");
  return op;
}

// Computed here and now from the meta, whatever mode the call is in.
TensorPtr Recording::sizes_of(Tensor& t) {
  const Var* var_of_t = find_var(t);  // moves when the op below makes a variable
  const bool known = var_of_t, any = known && var_of_t->sized;
  if (!opt_.any_size && !any) return nullptr;
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
  if (known) {
    find_var(t)->sizes = sizes;
    has_sizes_ = true;
  }
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
  has_sizes_ = true;
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
  const std::vector<ir::KnownInput> known = known_inputs(stages_.parts[0], slots);
  const auto alone = make_alone();
  return parts_[0].accepts({metas.data(), metas.size()}, known);
}

}  // namespace mge
