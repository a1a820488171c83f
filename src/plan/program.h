// A graph compiled for concrete shapes: a list of kernel calls with resolved arguments, an arena laid out once, and the
// few pointers that change from run to run. Uses the kernels eager execution would choose, so it gives the same bits.
//   RefPtr<Program> p = Program::compile(graph);
//   p->bind_input(0, x);  p->bind_var(0, std::move(w));
//   p->run();
//   Buffer y = p->output(0), w1 = p->var(0);  p->release_buffers();
// Outputs get fresh storage each run, so callers may keep them; they may also be views of an input or a constant. A var
// that the caller gave away (bind_var by move, no other owner) is updated in place where the kernel allows it. One
// Program runs on one thread at a time; a second caller gets an Assertion error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "kernel/run.h"
#include "plan/layouts.h"
#include "plan/memory.h"
#include "plan/prepared.h"

namespace mge {

struct CompileOptions {
  bool in_place = true;
  bool share_memory = true;  // false: every value has memory of its own, to look at; nothing is done in place either
  bool reorder = true;       // nodes, within their dependencies, when that needs less memory (plan/schedule.h)
  /// Inputs arrive with these strides (a bound buffer laid out otherwise is copied). Empty: contiguous.
  std::vector<Layout> input_layouts = {};
  /// How memory orders are assigned (plan/layouts.h). No bit depends on it.
  OrderTarget orders = OrderTarget::Cost;
  /// Weights that are constants are brought into the order their kernels want now, rather than in each run: faster,
  /// and another copy of them in memory.
  bool weight_preprocess = false;
  /// The same for weights that lie in a mapped file, whose pages are given back for it: no more memory than before.
  std::shared_ptr<PreparedWeights> prepared_mapped = {};
  /// Record level 1: what a run needs is resolved once, memory of intermediates included, which the program keeps; it
  /// runs on one stream. 2: the graph goes, too. Errors still name op, inputs and line; nothing can be listed.
  int record = 0;
  /// Intermediates are to need no more than so many bytes, as far as computing cheap ops again helps
  /// (plan/recompute.h); 0: as few as possible. It costs time. A run that does not get the memory it needs tries it
  /// before it gives up.
  static constexpr size_t kComputeOnce = SIZE_MAX;
  size_t recompute_to = kComputeOnce;
  /// release_buffers() keeps input bindings (Lite binds once and writes into the same memory).
  bool keep_inputs = false;

  // The checked executor. Any of these makes runs slow; all of them name the node and its location. The environment
  // can ask for them, too: MGE_CHECK_PROGRAMS=memory,nan,oracle.
  bool poison = false;          // fill memory with 0xAA before first and after last use; canaries behind each buffer
  bool check_nan = false;       // a float result with NaN or Inf is an error
  bool compare_oracle = false;  // run the reference interpreter too and compare outputs and vars
  double oracle_rtol = 1e-4, oracle_atol = 1e-5;
};

struct PlanReport {
  size_t arena_bytes = 0;   // peak of the chosen plan
  size_t lower_bound = 0;   // most bytes live at once: no plan can be smaller
  size_t sum_bytes = 0;     // without any sharing
  size_t output_bytes = 0;  // fresh storage per run
  size_t const_bytes = 0;
  size_t prepared_bytes = 0;      // constants in the order of their kernels (weight_preprocess)
  size_t converted_bytes = 0;     // constants in another order, made once; among const_bytes
  size_t copy_bytes = 0;          // written in each run by copies to another order
  size_t workspace_bytes = 0;     // largest
  size_t reordered_bytes = 0;     // that the order saves against the one the graph came with, as far as the graph tells
  size_t recomputable_bytes = 0;  // alive at the peak that cheap ops could make again: what that would save at most
  int instrs = 0, views = 0, in_place = 0, copies = 0, donated_vars = 0, recomputed = 0;
  int parts = 0;          // operands of concat that are written where it wants them
  int converted = 0;      // constants made anew in another order
  int channels_last = 0;  // values that lie so
  int reordered = 0;      // nodes that work in another order than eager execution would have them
  const char* strategy = "";
  std::string str() const;
};

class Program : public RefCounted {
 public:
  static RefPtr<Program> compile(const ir::Graph& g, const CompileOptions& opt = {});
  ~Program();

  const ir::Graph& graph() const;
  size_t n_inputs() const;
  size_t n_vars() const;
  size_t n_outputs() const;
  const Meta& input_meta(size_t i) const;
  const Meta& var_meta(size_t i) const;
  const Meta& output_meta(size_t i) const;

  /// The buffer must hold the declared meta (the caller has checked it); other strides than declared are copied.
  void bind_input(size_t i, Buffer b);
  /// Move the last reference in to let the var be updated in place. Every var must be bound before each run.
  void bind_var(size_t i, Buffer b);

  /// begin + run_until(n_instrs()) + finish.
  /// A kernel's error comes out with the op named and the user's location; the program can be run again. On devices
  /// with streams the work is enqueued when this returns: outputs and vars carry it. `command` is the open work that
  /// the program is part of, for its stream; on other streams it opens its own, whose errors `explain` words. A long
  /// run looks for Ctrl-C between its instructions (core/backend.h), which ends it as an error would.
  void run(Work* command = nullptr, Explain explain = {});
  // Piecewise, for callers that feed and read in the middle: inputs may be bound up to needed_at(), outputs read from
  // ready_at().
  void begin(Work* command = nullptr, Explain explain = {});
  void run_until(size_t instr_end);
  void finish();
  size_t n_instrs() const;
  /// Whether it acts on domains: process groups (OpDef::domain).
  bool has_effects() const;
  /// How long a run takes on one core, as far as the sizes tell (kernel/cost.h).
  double estimated_ns() const;
  size_t input_needed_at(size_t i) const;  // index of the first instruction that reads it; n_instrs() when none does
  size_t output_ready_at(size_t i) const;  // valid once run_until(this) returned

  /// Valid from output_ready_at() until release_buffers() or the next begin().
  Buffer output(size_t i) const;
  /// The var's value now: committed if the committing instruction has run (also when a later one failed), else as
  /// bound.
  Buffer var(size_t i) const;
  /// Drops every reference the program holds to memory of the last run, so that the caller is the only owner of
  /// results.
  void release_buffers();

  const PlanReport& report() const;
  struct Impl;
  /// One line per instruction: op, kernel, operands with their places, location.
  std::string dump() const;

  /// From now on the time of every instruction is taken (plan/describe.h tells it); off: no more, and nothing is paid.
  /// On devices with streams it is the time to enqueue.
  void watch(bool on);
  bool watched() const;
  int64_t last_begin() const;                       // of the last watched run; 0: none
  const Impl* impl() const { return impl_.get(); }  // for the room's own files

 private:
  friend void verify_program(const Program& p);
  friend struct ProgramTestPeer;
  friend class RefPtr<Program>;
  using RefCounted::release;  // hidden: `p->release()` would drop a reference; release_buffers() is what callers mean
  Program();
  static RefPtr<Program> compile_once(const ir::Graph& g, const CompileOptions& opt, size_t recompute_to);
  void prepare(Work* command, const Explain& explain);
  bool shrink();
  void widen();
  void swap_plans();
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<Impl> roomy_;  // the plan that was left for one that needs less memory and more time
};

/// Replays the instructions symbolically and proves that every operand still holds the value its node produced, byte by
/// byte. Knows nothing of the planner's intervals. Internal error naming the instruction otherwise.
void verify_program(const Program& p);

}  // namespace mge
