// A Value is one computed thing; a Tensor is a cell that holds a Value and may be pointed at another one later.
// Ownership by thread: meta is written before the value is shared; buffer and error are the executor's until the state
// word says Ready or Failed (release/acquire), after that they do not change.
#pragma once
#include <atomic>
#include <memory>

#include "base/recycled.h"
#include "base/small_vec.h"
#include "kernel/run.h"
#include "op/emitter.h"

namespace mge {

class GradSession;
struct GradNode;
using LocId = int32_t;  // a place in the user's program; 0 = unknown

/// Ready: enqueued on its stream, and on the CPU that is computed. Whoever reads memory waits for buffer.work, too.
enum class State : uint32_t { Pending, Ready, Failed };

/// Lives as long as a value, and as long as whoever wants to know whether that still lives.
struct Life : RefCounted {};

struct Value : RefCounted, Recycled<Value> {
  Meta meta;
  Buffer buffer;
  RefPtr<Storage> known;  // a handful of integers on a device with streams: the same in host memory, contiguous
  std::shared_ptr<const ExecError> error;
  std::atomic<State> state{State::Pending};
  // Trace: the variable this value is in the recording `trace_epoch`; executor-independent.
  uint32_t trace_epoch = 0, trace_var = 0;
  uint32_t birth_epoch = 0;  // recording during which it was made from host data; 0 = outside, or a result
  RefPtr<Life> life;         // what recordings hold instead of the value, whose memory goes when eager's would
  bool deferred = false;     // Pending until a tracer computes it: the executor knows nothing of it

  bool ready() const { return state.load(std::memory_order_acquire) == State::Ready; }
  void set_ready() { state.store(State::Ready, std::memory_order_release); }
};
using ValuePtr = RefPtr<Value>;

struct GradLink {
  GradSession* session;  // only compared; a link of a finished session is ignored and dropped
  uint64_t session_id;
  RefPtr<GradNode> node;
  uint32_t index;  // which output of the node
};

/// What a Python Tensor holds. Value semantics: assigning through the cell replaces the value, nobody else sees it.
struct Tensor : ValImpl, Recycled<Tensor> {
  ValuePtr value;
  SmallVec<GradLink, 1> links;
  uint32_t birth_epoch = 0;  // recording during which the cell was made; 0 = outside
  uint32_t modes = 0;        // what the cell brings into dispatch: mode::kNchw or kNhwc, its memory-format label
  RefPtr<Tensor> origin;     // made during a recording as another name (detach, saved) of this outside cell

  explicit Tensor(ValuePtr v);
  /// For who knows the recording that is open on this thread, or that there is none.
  Tensor(ValuePtr v, uint32_t epoch);
  /// Another name for `of`, without its gradient links.
  static RefPtr<Tensor> alias(const Tensor& of);
  const Meta& meta() const { return value->meta; }
  ~Tensor() override;
};
using TensorPtr = RefPtr<Tensor>;

}  // namespace mge
