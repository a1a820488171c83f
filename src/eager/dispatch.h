// The fixed pipeline of every op: promote, infer (throws here, on the user's stack), trace, submit, grad.
//   TensorPtr y = apply1(op, attrs, {x, w});
#pragma once
#include "eager/executor.h"
#include "eager/modes.h"

namespace mge {

/// Runs one op. `out` has op.n_out(attrs) entries. Errors of promotion and inference leave nothing behind.
void dispatch(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out);

/// The same without the casts of autocast: for functions made of an op that autocast does not name.
void dispatch_uncast(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out);
/// The dtype that a tensor of dtype `t` will have as an input of `op`, as far as autocast says: numbers beside it
/// follow that one, so that they are not rounded twice.
DType cast_dtype(const OpDef& op, DType t);

/// Like dispatch, for updates in place of state: the first outputs replace the values of `cells`, whose old memory is
/// given to the op when nobody else holds it. Inputs of the op = `in`, in which cells appear like any other tensor.
void dispatch_update(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<Tensor* const> cells);

/// Whether a handful of integers, already computed, is worked on at once although ops are queued. On by default.
void set_host_compute(bool on);
bool host_compute();

/// A ready value around memory that already exists.
TensorPtr tensor_from_buffer(const Meta& meta, Buffer buffer);
/// The same from allocate_for_host memory, brought to the device that `m` names.
TensorPtr tensor_from_host(const Meta& m, Buffer host);
/// A 0-d tensor; small common constants are shared.
TensorPtr scalar_tensor(double value, DType dtype, const CompNode* cn);
/// Same value, no gradient history.
TensorPtr detach(const Tensor& t);
/// The cell takes over another value and its gradient history (`_reset`); recorded by an active trace.
void assign(Tensor& cell, const Tensor& from);
/// The sizes of `t` for a tensor attribute of Python: a tensor while a call is recorded for any sizes, else null.
TensorPtr traced_sizes(Tensor& t);
/// The integers in `t`, to make attributes of. `later`, where given, says whether later calls of a trace have others;
/// then `t` goes with the attribute. Where not given, a recorded call is for these numbers alone.
Ints size_numbers(Tensor& t, bool* later);
/// Whoever goes by the sizes of `t` as numbers says so: a call that is being recorded then holds for these alone.
void fix_sizes(Tensor& t);
/// Waits; the value in memory that the host can read, possibly strided: its own, or a copy.
Buffer read_buffer(Tensor& t);
/// Waits for the value and returns its memory where it is, which the host may not be able to read.
Buffer device_buffer(Tensor& t);
/// The same for a value that no tracer has to hear of: the host's copy of a handful of integers, else waits.
Buffer host_buffer(Value& v);

class EagerEmitter final : public Emitter {
 public:
  void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) override;
  const Meta& meta(const Val& v) override;
  Val constant(double value, DType dtype, const Val& like) override;
  Val literal(const Meta& m, const void* data) override;
  std::optional<HostValue> known(const Val& v) override;
  Val detached(const Val& v) override { return val(detach(*tensor(v))); }
  Val size_operand(const Val& v) override;
  bool any_size(const Val& v) override;
  void fix(const Val& v) override;
  SizeValue size_value(const Val& v, int64_t guess) override;
  std::optional<SizeValues> size_values(const Val& v) override;
  Val val(TensorPtr t);
  static Tensor* tensor(const Val& v) { return static_cast<Tensor*>(v.p.get()); }
  static EagerEmitter& get();
};

/// Where ops on tensors of mode kNode go: variables of a graph that a program edits, without values. One per process.
class NodeDispatch {
 public:
  virtual ~NodeDispatch() = default;
  virtual void apply(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) = 0;
  /// The sizes of a variable as one.
  virtual TensorPtr sizes_of(Tensor& t) = 0;
  /// What a variable holds, in host memory, where that follows from constants and sizes; a Value error otherwise.
  virtual Buffer read(Tensor& t) = 0;
};
void set_node_dispatch(NodeDispatch* d);

/// Sees every op after promotion and gradient recording. One at a time per thread.
class Tracer {
 public:
  virtual ~Tracer() = default;
  /// True: the outputs have been provided (their values stay Pending) and must not be run.
  virtual bool on_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out,
                     LocId loc) = 0;
  /// Whether this is the next op of a recorded call that runs again, all sizes as they were: then `out` is filled, and
  /// nothing of the op is left to do but what the tape wants. False: it goes the way of every op, to on_op. `modes`: of
  /// the thread.
  virtual bool match(const OpDef& /*op*/, const Attrs& /*attrs*/, std::span<Tensor* const> /*in*/,
                     std::span<TensorPtr> /*out*/, uint32_t /*modes*/) {
    return false;
  }
  virtual void on_assign(Tensor& cell, const Tensor& from) = 0;
  /// A value that this tracer left Pending is needed now. False: not ours.
  virtual bool materialize(Value& v) = 0;
  virtual uint32_t epoch() const = 0;
  /// A value is about to be read on the host, so that a recording can keep it readable, or refuse.
  virtual void on_read(Tensor& t) = 0;
  /// Whether the sizes of this tensor may be others in the next call, so that nobody may take them for numbers.
  virtual bool any_size(const Tensor& t) const = 0;
  /// The sizes of a tensor as one: int32, one per axis, already computed. Null: this call is recorded for its own
  /// sizes.
  virtual TensorPtr sizes_of(Tensor& t) = 0;
  /// An attribute is about to be made of what `t` holds, which may be read now. True: it is another one in the next
  /// call, and `t` goes with the attribute (SizeOperand).
  virtual bool on_size(Tensor& t) = 0;
  /// Around a part of the call that is not seen; the caller takes the tracer off its thread meanwhile.
  virtual void exclude_begin() = 0;
  virtual void exclude_end() = 0;
  /// The call did something beside its ops that a replay would leave out.
  virtual void needs_host(const std::string& /*why*/) {}
  /// The program gives what `t` holds a name.
  virtual void on_name(Tensor& /*t*/, const std::string& /*name*/) {}
};
Tracer* active_tracer();
void set_active_tracer(Tracer* t);

}  // namespace mge
