// One OpDef per op: everything the engine knows of it. Bindings, stubs, IR text, files, docs and test coverage are
// derived from the registry, never typed again.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/meta.h"
#include "op/attrs.h"

namespace mge {

using OpId = uint16_t;
class VjpCtx;
class Emitter;
struct Val;
struct ScalarBody;
struct OpName;
// Registration is inlined, so that of an op that is not in this build (op/in_build.h) the compiler sees no use.
#define MGE_INLINED __attribute__((always_inline))

enum Trait : uint32_t {
  kElementwise = 1,  // out[i] depends on in[i] after broadcasting; has a scalar body
  kView = 2,         // may alias its first input instead of copying
  kReduction = 4,
  kComputeBound = 8,
  kEffect = 16,  // ordered by a token among those of its domain, never removed or merged
  kRandom = 32,  // same inputs, other values: never merged
  kNoGrad = 64,  // differentiable nowhere by definition (comparison, argmax); a stated reason is in doc
  kCommutative = 128,
  kQuantised = 256,  // infer and kernels take quantised inputs; others see their real values (op/quant/real.h)
  kPacked = 512,     // and 4-bit ones, two to a byte; others get them as 8 bits
};

/// Which dtypes the inputs are cast to before infer sees them (api §4.3).
enum class Promote : uint8_t {
  None,     // as they come
  Arith,    // one common dtype
  Bool,     // all inputs must be bool
  Same,     // must already agree; a Type error otherwise
  Float,    // Arith, and all-int input becomes float32
  Product,  // Arith, and whole numbers of less than 32 bits become int32: products are summed up
};

/// Autocast (automatic mixed precision): the precision that floating inputs are cast to before promotion.
enum class Amp : uint8_t {
  None,  // as they come
  Low,   // half precision: products, which add up in float32 inside
  High,  // float32: what overflows or loses accuracy in half precision
  Norm,  // input 0 and output 0 are rounded to half precision, everything is computed in high
};

/// Which inputs hand their memory-format label ("nhwc") on to output 0, where it has as many axes and is no bool.
enum class KeepsFormat : uint8_t { No, Any, First };

struct InferCtx {
  const struct OpDef* op;
  const AttrsBase* attrs;
  std::span<const Meta* const> in;
  std::span<Meta> out;  // to be filled; cn is set by the caller

  size_t n() const { return in.size(); }
  const Meta& x(size_t i) const { return *in[i]; }
  const Shape& shape(size_t i) const { return in[i]->shape; }
  DType dtype(size_t i) const { return in[i]->dtype; }
};

/// Output layout when the op can be a view of its first input; false = a kernel must copy.
struct ViewCtx {
  const AttrsBase* attrs;
  const Shape& in_shape;
  const Layout& in;
  const Shape& out_shape;
  Layout* out;
};

/// What a backward pass must keep. Metas of all inputs and outputs are always kept (they cost nothing).
struct Saves {
  uint32_t inputs = 0;   // bit i: the value of input i
  uint32_t outputs = 0;  // bit i: the value of output i
  enum class ReadFor : uint8_t {
    Any,     // all of them, whichever gradient is wanted
    Other,   // each of the first two inputs for the gradient of the other one: products
    Second,  // outputs for the gradient of the second input
  } read_for = ReadFor::Any;

  /// Those that gradients of only some inputs need (bit i: that of input i). x * 0.5 keeps nothing of x.
  Saves for_gradients(uint32_t wanted) const {
    Saves some = *this;
    if (read_for == ReadFor::Other) some.inputs &= ~3u | (wanted & 1) << 1 | (wanted >> 1 & 1);
    if (read_for == ReadFor::Second && !(wanted & 2)) some.outputs = 0;
    return some;
  }
};

struct OpDef {
  OpId id = 0;
  std::string name, doc;
  std::vector<std::string> inputs;  // names
  uint8_t required = 0;             // the first `required` inputs must be given
  bool variadic = false;            // the last input repeats (concat)
  std::vector<std::string> outputs;
  /// Where the attributes decide how many results there are (fused); null: as many as `outputs` names.
  size_t (*count_outputs)(const AttrsBase*) = nullptr;
  bool has_attrs = false;
  AttrSchema schema;
  void (*infer)(InferCtx&) = nullptr;
  Promote promote = Promote::None;
  Amp amp = Amp::None;
  KeepsFormat keeps_format = KeepsFormat::No;
  bool (*view)(const ViewCtx&) = nullptr;
  void (*vjp)(VjpCtx&) = nullptr;
  uint64_t sized_vjp = 0;  // bit i: the rule hands field i of the attributes on as it is, or does not look at it
  Saves saves;
  Saves (*saves_of)(const AttrsBase*) = nullptr;  // fewer than `saves` for some attributes; null: always `saves`
  /// Of an op that takes a part of x: the op of (x, y), with the same attributes, that gives x with that part replaced
  /// by y. The gradient of the part can then be added into that of x without another tensor of its size.
  const OpDef* put_back = nullptr;
  /// Emits primitives that compute the same value (not always the same bits); null for primitives.
  void (*decompose)(Emitter&, const AttrsBase*, std::span<const Val> in, std::span<Val> out) = nullptr;
  const ScalarBody* scalar = nullptr;
  uint32_t traits = 0;
  /// Of a kEffect op: what it acts on (a process group). Effects on one domain keep their order, those on different
  /// ones need not; null: all such ops act on one domain. What a kRandom op acts on is the generator it takes as
  /// `state`.
  std::string (*domain)(const AttrsBase*) = nullptr;
  double (*cost)(const InferCtx&) = nullptr;  // floating-point operations; null = one per output element
  uint32_t refuses = 0;  // bit i: some values of input i are an error when it runs; a variadic input has the last bit
  int version = 1;
  mutable std::atomic<bool> asked{false};  // somebody looked it up (OpRegistry::asked_for)

  bool is(Trait t) const { return traits & t; }
  size_t n_out(const AttrsBase* a) const { return count_outputs ? count_outputs(a) : outputs.size(); }
};

/// Fluent construction: r.op("conv2d").attrs<Conv2dAttrs>().in("x","weight").opt("bias").out("y").infer(f)…
/// Of an op that is not in this build it does nothing.
class OpBuilder {
 public:
  MGE_INLINED explicit OpBuilder(OpDef* d) : d_(d) {}
  template <class T>
  MGE_INLINED OpBuilder& attrs() {
    if (d_) set_schema<T>(*d_);
    return *this;
  }
  template <class... N>
  MGE_INLINED OpBuilder& in(N... names) {
    if (d_) add_inputs(*d_, {names...}, true);
    return *this;
  }
  template <class... N>
  MGE_INLINED OpBuilder& opt(N... names) {
    if (d_) add_inputs(*d_, {names...}, false);
    return *this;
  }
  MGE_INLINED OpBuilder& variadic_in(const char* name) {
    if (d_) add_variadic(*d_, name);
    return *this;
  }
  template <class... N>
  MGE_INLINED OpBuilder& out(N... names) {
    if (d_) add_outputs(*d_, {names...});
    return *this;
  }
  MGE_INLINED OpBuilder& variadic_out(const char* name, size_t (*count)(const AttrsBase*)) {
    return set(&OpDef::count_outputs, count).out(name);
  }
  MGE_INLINED OpBuilder& infer(void (*f)(InferCtx&)) { return set(&OpDef::infer, f); }
  MGE_INLINED OpBuilder& promote(Promote p) { return set(&OpDef::promote, p); }
  MGE_INLINED OpBuilder& amp(Amp a) { return set(&OpDef::amp, a); }
  MGE_INLINED OpBuilder& keeps_format(KeepsFormat k) { return set(&OpDef::keeps_format, k); }
  MGE_INLINED OpBuilder& view(bool (*f)(const ViewCtx&)) { return set(&OpDef::view, f).traits(kView); }
  MGE_INLINED OpBuilder& decompose(decltype(OpDef::decompose) f) { return set(&OpDef::decompose, f); }
  MGE_INLINED OpBuilder& traits(uint32_t t) {
    if (d_) d_->traits |= t;
    return *this;
  }
  /// It acts on something outside of the graph, named by the attributes (OpDef::domain).
  MGE_INLINED OpBuilder& effect(std::string (*domain)(const AttrsBase*)) {
    return set(&OpDef::domain, domain).traits(kEffect);
  }
  MGE_INLINED OpBuilder& cost(double (*f)(const InferCtx&)) { return set(&OpDef::cost, f); }
  /// What is said of such values is said before anything is written, so that a result over an operand is safe.
  MGE_INLINED OpBuilder& refuses(uint32_t inputs) { return set(&OpDef::refuses, inputs); }
  MGE_INLINED OpBuilder& version(int v) { return set(&OpDef::version, v); }
  inline OpBuilder& doc(const char* text);  // op/in_build.h
  MGE_INLINED OpBuilder& scalar(const ScalarBody* b) {
    return set(&OpDef::scalar, b).keeps_format(KeepsFormat::Any).traits(kElementwise);
  }

 private:
  template <class T>
  MGE_INLINED OpBuilder& set(T OpDef::*field, std::type_identity_t<T> value) {
    if (d_) d_->*field = value;
    return *this;
  }
  template <class T>
  static void set_schema(OpDef& d) {
    d.schema = make_schema<T>();
    d.has_attrs = true;
  }
  static void add_inputs(OpDef& d, std::initializer_list<const char*> names, bool required);
  static void add_variadic(OpDef& d, const char* name);
  static void add_outputs(OpDef& d, std::initializer_list<const char*> names);

  OpDef* d_;
};

class OpRegistry {
 public:
  /// All built-in ops, made once by register_all on first use.
  static OpRegistry& global();
  /// Registering a name twice is an internal error.
  inline OpBuilder op(OpName name);  // op/in_build.h
  const OpDef* find(std::string_view name) const;
  /// The same for those who register something: not counted by asked_for.
  const OpDef* registered(std::string_view name) const;
  /// Value error that names near misses when unknown.
  const OpDef& get(std::string_view name) const;
  const OpDef& at(OpId id) const { return *ops_[id]; }
  /// vjp rules live in *.grad.cpp files, which Lite leaves out: r.grad("conv2d", vjp_conv2d, {.inputs = 0b11}).
  void grad(std::string_view op, void (*vjp)(VjpCtx&), Saves saves = {}, Saves (*saves_of)(const AttrsBase*) = nullptr);
  /// The vjp rule of `op` is right when this field of its attributes is made of sizes (SizeOperand), or any field;
  /// others are fixed before it runs.
  void sized_grad(std::string_view op, std::string_view field = {});
  /// `op` takes a part of its input that `put` puts back (OpDef::put_back).
  void put_back(std::string_view op, std::string_view put);
  size_t size() const { return ops_.size(); }
  /// What this build has, for errors about what it has not: "all ops".
  static const char* build_has();
  /// The ops that were looked up since the start of the process, in the order of their registration.
  std::vector<const OpDef*> asked_for() const;

 private:
  OpDef* add(const char* name);
  std::vector<std::unique_ptr<OpDef>> ops_;
};

/// All ops, all vjp rules: the build writes both lists, from src/op/*/*.cpp (cmake/registration.cmake).
void register_all(OpRegistry& r);
void register_all_grads(OpRegistry& r);

/// Runs arity check and infer; throws on the caller's stack. `out` must have op.n_out(attrs) entries.
void infer_op(const OpDef& op, const AttrsBase* attrs, std::span<const Meta* const> in, std::span<Meta> out);
/// The dtype that autocast casts an input of dtype `t` to; `t` itself when it leaves it alone.
DType amp_dtype(Amp amp, DType t, DType low, DType high);
/// Fills want[i] with the dtype input i is cast to. Returns true when any differs from its own.
bool promote_op(const OpDef& op, std::span<const Meta* const> in, std::span<DType> want);
/// The common dtype of api §4.3 step 2; Type error naming `who` when there is none.
DType promote_types(std::string_view who, DType a, DType b);

}  // namespace mge
