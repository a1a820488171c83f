// Recording of one call of a traced function, and its two ways of running again.
//   Recording: ops run eagerly and are written down (record_begin … record_end).
//   Host mode: Python runs again and every op is matched against the recording; values are computed by compiled
//   programs
//              when the call ends, or where the recorded call read a value on the host (a segment ends there).
//   Replay:    no Python at all; one program computes outputs and commits state.
// Sizes (TraceOptions::any_size): a recording is made with the sizes of one call and holds for all that its guards
// allow. Shapes are tensors then (shape_of); what is computed from them, and every attribute made of that, is computed
// anew for other sizes (ir/bind.h); a size that is taken for a number is a guard.
// Variables of a recording are External (made outside: arguments, parameters, constants) or Internal (results of ops).
#pragma once
#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "eager/tape.h"
#include "ir/graph.h"
#include "pass/pipeline.h"
#include "plan/sizes.h"

namespace mge {

struct TraceOptions {
  int opt_level = 2;
  bool capture_as_const = false;  // replay with the captured tensors as they were, folded into the program
  bool replay = false;            // meant for replay: what a replay could not know is refused or makes it host_only
  bool any_size = false;          // arguments of other sizes are let in
  pass::GraphOptimizationConfig graph_opt = {};
  bool lazy = false;         // the recorded call is written down first and computed when it ends
  bool record_only = false;  // lazy, and never computed
  bool imperative = false;   // matched ops are run one by one
  size_t late_args = 0;      // so many of the last arguments arrive after the results that do not need them
};

/// The passes as eager traces and files use them: with constant folding on the kernels of this build.
pass::PipelineOptions pipeline_options(int opt_level, const pass::GraphOptimizationConfig& graph_opt = {},
                                       const pass::InferenceOptions& inference = {});
/// Whoever links an engine for fused elementwise regions (jit/interp) says here which ops it can run.
void set_fusion(pass::CanFuse can_fuse);

class Recording : public RefCounted, public Tracer {
 public:
  explicit Recording(TraceOptions opt) : opt_(opt) {}
  ~Recording() override;

  // Recording. `args` are the tensors the caller feeds anew on each call.
  void record_begin(std::span<Tensor* const> args);
  /// `results` are what the function returned. Throws when another trace is active.
  void record_end(std::span<Tensor* const> results);
  /// Leaves the recording unusable; after an exception in the function.
  void record_abort();
  /// Not empty: why it cannot be replayed and must run in host mode; found while it was recorded or when it ended.
  const std::string& host_only() const { return host_only_; }
  /// Arguments that the function may reach in another way too (`outside`) must be the same tensors in later calls.
  void pin_arguments(std::span<Tensor* const> outside);
  /// Whether a call with these arguments can be this one again: those captured or pinned are where they were, and
  /// captured tensors whose values were read have them still, and the guards allow the sizes.
  bool accepts(std::span<Tensor* const> args);
  /// The cell was made during the recorded call.
  bool is_inside(const Tensor& t) const {
    return std::find(epochs_.begin(), epochs_.end(), t.birth_epoch) != epochs_.end();
  }
  /// From now on `now` is what `was` was: a gradient that a parameter has got anew.
  void rebind(Tensor& was, Tensor& now);

  /// Begins and ends a part of the call that is not seen and may differ from call to call. All values computed so far
  /// can be read in it, and what goes on into the trace is fed anew.
  size_t boundaries() const { return boundaries_.size(); }
  bool takes_any_size() const { return opt_.any_size; }
  void exclude_begin() override;
  void exclude_end() override;
  void needs_host(const std::string& why) override;
  void on_name(Tensor& t, const std::string& name) override;

  // Host mode.
  void match_begin(std::span<Tensor* const> args);
  void match_end();
  void match_abort();

  // Replay. Outputs in the order of `results`.
  std::vector<TensorPtr> replay(std::span<Tensor* const> args);

  // Replay in two halves (TraceOptions::late_args; trace_halves.cpp): what does not need the late arguments, and, once
  // they are there, the rest.
  struct Halfway : RefCounted {
    std::vector<TensorPtr> results;  // null: of the second half
    std::vector<ValuePtr> slots;     // what the second half goes on with; empty when it has run
  };
  /// `args`: those that are not late.
  RefPtr<Halfway> replay_forward(std::span<Tensor* const> args);
  /// Results of the second half, null at the places of the first.
  std::vector<TensorPtr> replay_backward(Halfway& half, std::span<Tensor* const> late);

  /// The whole recording as a graph. As constants: externals that are no arguments become constants (for a file);
  /// otherwise they are Vars, and those assigned during the call are committed.
  struct Export {
    bool as_constants = false;
    std::vector<std::string> arg_names, result_names;
    bool replay = false;  // arguments that were assigned are outputs too, and assigned state is never a constant
  };
  ir::Graph graph(const Export& e);
  size_t n_ops() const { return ops_.size(); }
  bool usable() const { return state_ == State::Recorded; }
  /// Programs compiled for replay; of all parts together.
  size_t n_programs() const;
  /// Compiled so far, for replay and for host mode.
  std::vector<RefPtr<Program>> programs() const;
  /// Of these, the ones of the sizes that were used last.
  std::vector<RefPtr<Program>> latest() const;
  int opt_level() const { return opt_.opt_level; }
  /// From now on the time of every instruction of them is taken (Program::watch).
  void watch(bool on);
  /// Reports of the compiled programs, for the curious.
  std::string report() const;
  /// Called when a name for an external tensor is wanted; set by the bindings.
  void set_name(const Tensor* cell, std::string name) { names_[cell] = std::move(name); }
  /// Tensors that the call assigned and that are no arguments.
  std::vector<Tensor*> assigned() const;
  /// External tensors that are no arguments, in order of first use.
  std::vector<Tensor*> captured() const;

 private:
  enum class State { Empty, Recording, Recorded, Matching };
  struct Var {
    Meta meta;
    bool external = false;
    bool constant = false;   // made during the call from host data: fed anew in host mode, fixed in replay
    int arg = -1;            // position among the arguments
    int same_as = -1;        // the argument of a lower position that was this very tensor
    TensorPtr cell;          // external: the tensor that held it; a shape: the one that calls of these sizes are given
    ValuePtr value;          // while matching; while recording, of one from outside until it is assigned
    RefPtr<Life> life;       // while recording, of the value
    ValuePtr fixed;          // constant: its value in the recorded call; at_once: in every call of these sizes
    int producer = -1;       // op index
    bool is_static = false;  // made from constants alone: the same in every call
    bool sized = false;      // its shape may be another one in the next call
    bool is_size = false;    // a handful of numbers that follow from sizes: known without running anything
    bool at_once = false;    // such a size, or numbers that one may be computed with: not left for the end of a segment
    bool late = false;       // sizes that depend on values play a part: known while the call runs, not before
    bool read = false;       // read on the host during the call
    int state_of = -1;       // what a tensor from outside, this variable, is given by the last segment
    bool kept = false;       // still held by somebody when the call ended
    ValuePtr spare;          // of the last call, which nobody has kept: the next one's
    uint32_t bound = 0;      // external: the epoch of a call in which an op has taken it
    uint32_t same = 0;       // at_once: the epoch of a call in which it is what it is in every call of these sizes
    TensorPtr sizes;         // its shape as a tensor, of the call that is open
    std::string name;        // given by the program during the call
  };
  struct SizeVar {
    int field, element;
    uint32_t var;
  };
  struct Op {
    const OpDef* op;
    Attrs attrs;
    SmallVec<uint32_t, 4> in, out;
    SmallVec<SizeVar, 1> sizes;  // attributes that are what variables hold
    Attrs now;                   // with sizes: the attributes of the call that is matched
    LocId loc;
    bool backward;
    uint64_t rerun;
    uint32_t modes;              // of the thread, as far as they decide what an op is made of
    const std::string* modules;  // that were running
  };
  struct Commit {
    TensorPtr cell;  // null for an argument
    uint32_t var;
    int arg = -1;
  };
  struct SizeGuard {
    uint32_t var;
    std::vector<char> want;
    LocId loc;
  };
  struct Read {
    TensorPtr cell;
    ValuePtr value;
  };
  struct Segment {
    size_t begin, end;              // ops
    std::vector<uint32_t> in, out;  // vars that enter and leave
    size_t n_state = 0;             // of the last segment: so many at the end of both are tensors that the call assigns
    std::unordered_map<uint64_t, RefPtr<Program>> programs;  // by the metas of `in`
    RefPtr<Program> exact;                                   // the one for the sizes that were recorded
  };

  bool on_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out,
             LocId loc) override;
  bool match(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out,
             uint32_t modes) override;
  void on_assign(Tensor& cell, const Tensor& from) override;
  bool materialize(Value& v) override;
  uint32_t epoch() const override { return epoch_; }
  void on_read(Tensor& t) override;
  bool any_size(const Tensor& t) const override;
  TensorPtr sizes_of(Tensor& t) override;
  bool on_size(Tensor& t) override;

  Var* find_var(const Tensor& t);
  const Var* find_var(const Tensor& t) const { return const_cast<Recording*>(this)->find_var(t); }
  /// Somebody besides this recording holds the result.
  static bool lives(const Var& v) { return v.value ? v.value->ref_count() > 1 : v.life->ref_count() > 1; }
  // What dispatch goes by besides the op and its inputs, and the tape.
  static constexpr uint32_t kOpModes = mode::kSettings | mode::kRule;
  void enter(State s);
  void leave();
  void next_epoch();
  void check_arguments(std::span<Tensor* const> args, bool metas) const;
  void finish_match();
  void finish_recording();
  void run_segments();
  void find_leaks();
  void fail_uncomputed();
  void fail_uncomputed(const Var& v, std::shared_ptr<const ExecError>& error) const;
  void set_host_only(const std::string& reason, LocId loc);
  void note_sizes(Op& rec);
  bool same_attributes(Op& rec, const Attrs& attrs);
  bool may_be(const Var& var, const Value& v) const;
  bool exact_attributes(Op& rec, const Attrs& attrs);
  bool is_same(const Op& rec) const;
  ValuePtr known_value(uint32_t var);
  TensorPtr known_sizes(const Var& of);
  void guard(uint32_t var, Tensor& t);
  bool allows_sizes(std::span<Tensor* const> args);
  std::unique_lock<std::mutex> make_alone();
  RefPtr<Program> program_of(size_t part, std::span<const Meta> metas, std::span<const ValuePtr> slots);
  void make_parts();
  std::vector<ir::KnownInput> known_inputs(const Stage& part, std::span<const ValuePtr> slots) const;
  std::vector<TensorPtr> replay_parts(std::span<Tensor* const> args);
  std::vector<ValuePtr> first_slots(std::span<Tensor* const> args) const;
  void run_parts(size_t begin, size_t end, std::vector<ValuePtr>& slots);
  bool is_given_by(size_t begin, size_t end, int slot) const;
  void assign_state(const std::vector<ValuePtr>& slots, bool late);
  uint32_t var_of(Tensor& t);
  uint32_t new_var(const Meta& m);
  void make_segments();
  template <class Leaves>
  Segment segment_of(size_t begin, size_t end, const Leaves& leaves) const;
  void flush();
  void compute_recorded();
  void take_back();
  void match_op(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out,
                LocId loc);
  RefPtr<Program> segment_program(Segment& s, size_t n_state);
  void run_segment(size_t index, bool give_away = false);
  void find_state(Segment& s);
  RefPtr<Program> compile(ir::Graph g) const;
  bool keeps_types(const Segment& s) const;
  ir::Graph segment_graph(const Segment& s, size_t n_state) const;
  void add_op(ir::Graph& g, const Op& op, const Attrs& attrs, std::vector<ir::ValueId>& ids) const;
  std::string var_name(uint32_t v) const;
  bool is_constant(uint32_t v, const Export& e) const;
  static constexpr const char* kSameOps =
      "Every call must make the same ops: choose with F.where, or put what differs into `with exclude_from_trace():`.";
  [[noreturn]] void mismatch(const char* reason, const std::string& found, LocId loc,
                             const char* way_out = kSameOps) const;
  [[noreturn]] void refuse_read() const;
  [[noreturn]] void refuse_early_read() const;

  TraceOptions opt_;
  State state_ = State::Empty;
  uint32_t epoch_ = 0;
  std::vector<uint32_t> epochs_;  // of this call: a part that is not seen begins a new one
  std::string host_only_;
  std::vector<SizeGuard> guards_;
  std::vector<Read> reads_;        // captured tensors that were read on the host
  std::vector<TensorPtr> pinned_;  // by argument; null: any tensor will do
  std::unordered_map<const Tensor*, size_t> captured_cells_;
  std::vector<uint32_t> first_of_cell_;  // the variables in it
  std::vector<Var> vars_;
  std::vector<Op> ops_;
  std::vector<Commit> commits_;
  std::vector<uint32_t> results_, captured_;  // captured: externals that are no arguments, in order of first use
  std::vector<Segment> segments_;
  std::vector<size_t> breaks_;      // op counts at which a value of the open segment was read
  std::vector<size_t> boundaries_;  // op counts at which a part that is not seen began
  std::unordered_map<const Life*, SmallVec<uint32_t, 1>> externals_;  // while recording
  std::unordered_map<const Tensor*, std::string> names_;
  size_t n_args_ = 0;
  std::vector<const Tensor*> arg_cells_;  // of the recorded call; only compared, and only until it has returned
  size_t flushed_ = 0;                    // lazy: ops computed so far
  // matching
  size_t pc_ = 0, segment_ = 0, boundary_ = 0;
  bool exact_ = false;      // so far all sizes are those of the recorded call
  bool has_sizes_ = false;  // some Var::sizes
  bool to_fix_ = false;     // some Var::fixed may be made of this call
  struct Undo {
    TensorPtr cell;
    ValuePtr value;
    SmallVec<GradLink, 1> links;
  };
  std::vector<Undo> undo_;  // assignments of this call, taken back when it fails
  // replay
  Stages stages_;      // without their graphs, which `parts_` hold
  std::mutex making_;  // of parts and their programs
  std::vector<SizedGraph> parts_;
  bool watched_ = false;
  std::vector<uint32_t> whole_vars_;
};

}  // namespace mge
