// What a Program is made of. Private to plan; compile.cpp fills it, program.cpp runs it, verify.cpp proves it.
#pragma once
#include <algorithm>
#include <atomic>
#include <vector>

#include "base/features.h"
#include "core/profile.h"
#include "ir/explain.h"
#include "plan/bands.h"
#include "plan/beside.h"
#include "plan/program.h"
#include "plan/replay.h"

namespace mge {

enum class Where : uint8_t { Arena, Input, Var, Const, Output };

/// One piece of memory; several values may live in it (views) or one after the other (in place).
struct PlanBuffer {
  Where where = Where::Arena;
  int index = -1;  // which input, var or constant
  size_t bytes = 0;
  int first = 0, last = 0;  // instructions that write it first and touch it last
  size_t offset = 0;        // in the arena
  int donor = -1;           // Output: the var whose memory is taken over when the caller gave it away
  int home = 0;
};

/// A stream (or the calling thread) that instructions run on, with the memory of their intermediates.
struct Home {
  Device device;
  Stream* queue = nullptr;
  size_t bytes = 0;       // of the arena
  int peak = -1;          // the instruction at which most of it is in use
  RefPtr<Storage> arena;  // during a run: from the pool, and back to it
  void* base = nullptr;   // where the arguments expect it: the last run's, as a rule this one's too
  RefPtr<Work> work;      // of this run
  bool borrowed = false;  // the caller opened it and will close it
};

/// Where a value lies: a buffer and a layout inside it, offset in elements from the buffer's start.
struct Place {
  int buffer = -1;
  Layout layout;
};

/// What an argument block entry points at, beside the TensorArg itself.
struct ArgRef {
  int value = -1;  // graph value; -2-k for copy k, made by an instruction or, of a constant, when compiled
  int buffer = -1;
  int64_t offset = 0;  // bytes
};

struct Instr {
  const Kernel* kernel = nullptr;  // null: a strided copy, or a move between homes
  int home = 0, from = 0;          // where it runs; a move comes from another one
  ir::NodeId node = ir::kNone;
  uint32_t first_arg = 0;
  uint16_t n_in = 0, n_out = 0;
  int workspace = -1;  // buffer
  float ns = 0;        // estimated
  int domain = -1;     // of an effect: place in Impl::domains
  int join = -1;       // of such: the first instruction that has to wait for it
  int chain = -1;      // that it is the first of: place in Impl::chains
  KernelArgs args;     // spans into Impl::args
};

/// Nanoseconds: the last run of an instruction, and all since somebody watches.
struct InstrTime {
  int64_t begin = 0, end = 0, total = 0;
  int64_t runs = 0;
};

struct Patch {
  TensorArg* arg;
  int64_t offset;  // bytes
};

struct Program::Impl {
  ir::Graph graph;
  CompileOptions opt;
  PlanReport report;

  std::vector<Instr> code;
  std::vector<Chain> chains;
  std::vector<TensorArg> args;
  std::vector<ArgRef> refs;  // parallel to args
  std::vector<PlanBuffer> buffers;
  std::vector<Place> place;                 // per graph value; buffer -1 = never computed
  std::vector<int> ready;                   // per graph value: instructions that must have run
  std::vector<std::vector<Patch>> patches;  // per buffer
  std::vector<int> input_needed;            // per input
  std::vector<int> input_buffer, var_buffer, out_buffers;
  std::vector<RefPtr<Storage>> prepared;  // Kernel::prepare
  std::vector<RefPtr<Storage>> consts;    // per buffer of kind Const, by PlanBuffer::index
  struct Converted {
    int copy;  // as ArgRef::value says it
    int of;    // graph value
    Place at;
  };
  std::vector<Converted> converted;  // constants in another order
  int n_copies = 0;                  // of both kinds
  std::vector<Home> homes;
  std::vector<std::string> domains;
  // What errors say of an instruction; and, when the graph is gone (record level 2), for all of them, with the
  // attributes that arguments point at.
  ir::Told tell(size_t instr) const;
  std::vector<ir::Told> told;
  std::vector<Attrs> attrs;
  void dump_layouts();  // counts them, and prints them if MGE_DUMP_IR asks
  void drop_graph();
  void check_graph() const;       // that it is there
  double total_ns = 0;            // estimated, of a run
  std::vector<ir::NodeId> again;  // nodes that compute what was computed before (CompileOptions::recompute_to)
  // The last instruction that may refuse a value (plan/refusals.h), or -1. Nothing before it writes over state, and
  // nothing is committed until it has run, so whatever is refused leaves state as it was.
  int settled = -1;
  int first_commit = 0;  // the first instruction that assigns, once all before `settled` have run
  /// Whether the var holds its next value when the instructions before `pc` have run.
  bool is_committed(const ir::Var& v, size_t pc) const {
    return v.out != ir::kNone && static_cast<size_t>(std::max(ready[v.out], settled + 1)) <= pc;
  }

  // State of one run.
  std::vector<Buffer> in, var;               // as bound; storage null = not bound
  std::vector<RefPtr<Storage>> out_storage;  // per buffer, kind Output only
  std::vector<Buffer> oracle_vars;           // deep copies, when comparing
  size_t pc = 0, unbound_inputs = 0;
  struct Flying {
    size_t instr;
    std::function<void()> wait;
  };
  std::vector<Flying> flying;             // effects that go on beside
  std::vector<const std::string*> where;  // per instruction the user's line, once somebody has profiled a run
  std::vector<InstrTime> times;           // per instruction while watched; else empty
  std::atomic<bool> busy{false};

  Replays replays;
  /// Runs the whole of it as a graph of the device; false: it is to be run here.
  bool run_recorded(Program& self);

  void set_base(int buffer, void* base) {
    for (auto& p : patches[static_cast<size_t>(buffer)]) p.arg->ptr = static_cast<char*>(base) + p.offset;
  }
  void* base_of(int buffer) const;
  Buffer buffer_of(ir::ValueId v) const;
  std::pair<RefPtr<Storage>, size_t> memory_of(const ArgRef& r) const;
  void take_arenas();
  void take_outputs();
  [[noreturn]] void rethrow_no_memory(const Home& h) const;
  void open_work(Work* command, const Explain& explain);
  void close_work();
  void enqueue(size_t instr, RefPtr<Program> keep);
  void move_between(const Instr& c);
  bool run_chain(const Chain& c, bool profiled);
  bool launch_beside(size_t instr);
  void land(size_t before);
  void abandon();
  void end_run();
  [[noreturn]] void rethrow(size_t instr) const;
  std::string state_left(size_t instr) const;
  profile::Event event_of(size_t instr);
  void take_time(size_t instr);

  // checked.cpp
  bool checked() const { return has("checks") && (opt.poison || opt.check_nan); }
  bool compared() const { return has("checks") && opt.compare_oracle; }
  void poison_all() const;
  void before_instr(size_t i) const;
  void after_instr(size_t i) const;
  void compare_with_oracle() const;
};

constexpr size_t kCanaryBytes = 64;

/// Turns on what the environment asks for: MGE_CHECK_PROGRAMS=memory,nan,oracle or all, and
/// MGE_MEMORY_ORDER=cost, channels-last or local (plan/layouts.h).
void check_as_asked(CompileOptions& opt);

void unfuse(ir::Graph& g);

/// Bytes alive at the peak, not needed there, that elementwise ops could make again from operands still there when they
/// are: what computing twice would save at most.
size_t recomputable_bytes(const Program::Impl& p, int home);

}  // namespace mge
