// Autodiff. A session records ops whose inputs are linked to it; nodes are owned by the tensors they produced, so a
// branch whose outputs die is freed at once. Backward walks by descending age and emits ops through dispatch, so it can
// be recorded by sessions that were started earlier (higher order).
#pragma once
#include <functional>

#include "eager/dispatch.h"

namespace mge {

struct GradEdge {
  RefPtr<GradNode> node;  // null: this input needs no gradient
  uint32_t index = 0;
};

/// For user-defined functions: output gradients in (empty = none), input gradients out. For an Unrecorded part: nothing
/// in, its outputs computed again out (rematerialisation, checkpointing).
using CustomVjp = std::function<std::vector<TensorPtr>(const std::vector<TensorPtr>&)>;
/// Told once, when the gradient of an attached tensor is complete.
using GradCallback = std::function<void(TensorPtr)>;

/// Shapes of inputs, and of the first output, that may be others in later calls, as tensors.
struct GradSizes {
  SmallVec<TensorPtr, 3> in;
  TensorPtr out;
};

struct GradNode : RefCounted {
  uint64_t session_id = 0, seq = 0;
  const OpDef* op = nullptr;  // null: an attached tensor or a custom rule
  Attrs attrs;
  SmallVec<GradEdge, 2> edges;
  SmallVec<TensorPtr, 2> saved_in, saved_out;
  SmallVec<Meta, 2> in_metas, out_metas;
  std::unique_ptr<GradSizes> sizes;  // while a call is recorded for any sizes
  GradCallback callback;
  CustomVjp custom;
  bool unrecorded = false;  // custom runs a part of the forward pass again; its nodes then take the place of this one
  uint64_t rerun = 0;       // which second run recorded it; 0: none
  LocId loc = 0;
  SmallVec<TensorPtr, 1> grads;  // per output, while a backward is running
  bool queued = false;
  // Of an attached tensor: the first op that took it, and as which input. 0: none yet. Its gradient is complete as soon
  // as backward has passed that op.
  uint64_t first_use = 0;
  size_t first_input = 0;
  bool spent = false;  // a backward went through and took what was saved
  ~GradNode();
};

class GradSession;
using SessionList = std::vector<GradSession*>;

/// Belongs to the thread that started it; ops of other threads are not recorded.
class GradSession : public RefCounted {
 public:
  GradSession();
  ~GradSession();
  /// Sessions are nested: a later one is at a higher level, unless opened inside begin_group/end_group.
  void start();
  void stop();
  bool active() const { return active_; }
  void attach(Tensor& t, GradCallback on_grad);
  bool is_attached(const Tensor& t) const;
  void backward(std::span<Tensor* const> ys, std::span<Tensor* const> dys);
  void suppress() { ++suppressed_; }
  void resume() { --suppressed_; }
  bool recording() const { return listening() && !noting_; }
  /// The link by which an op on `t` is recorded now; null: it is not.
  const GradLink* link_of(const Tensor& t);
  int level() const { return level_; }
  uint64_t id() const { return id_; }
  /// Which tensors were attached, in any order.
  uint64_t attached() const { return attached_; }
  static void begin_group();
  static void end_group();

 private:
  friend class Unrecorded;
  friend class SecondRun;
  bool listening() const { return active_ && suppressed_ == 0; }
  uint64_t attached_ = 0;
  uint64_t id_ = 0;  // new for each start, so that links of an earlier recording are recognised as stale
  int level_ = 0, suppressed_ = 0;
  bool active_ = false;
  bool noting_ = false, noted_ = false;   // inside an Unrecorded part: whether an op would have been recorded
  uint64_t gap_begin_ = 0, gap_end_ = 0;  // in a second run: nodes of these seqs came after the first
  std::shared_ptr<SessionList> home_;     // the active sessions of its thread, while it is one of them
};

bool any_grad_session();
/// Some recording session is linked to some input.
bool tape_wants(const OpDef& op, std::span<Tensor* const> in);
void tape_record(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out);
/// Outputs get the custom rule for every recording session that tracks some input.
void tape_record_custom(CustomVjp rule, std::span<Tensor* const> in, std::span<Tensor* const> out);

/// A part of the forward pass that keeps nothing for backward (autodiff.checkpoint): when backward arrives, it is run
/// again and recorded then, and the walk goes on through what that recorded. New nodes are the youngest, so gradients
/// meet in the order they would have met in without it.
///   Unrecorded part;  ys = f(xs without links);  part.end();  part.record([=] { return f(xs); }, xs, ys);
class Unrecorded {
 public:
  Unrecorded();
  ~Unrecorded() { end(); }
  Unrecorded(const Unrecorded&) = delete;
  void end();
  /// Outputs get a node in every session that would have recorded something or tracks some input.
  void record(CustomVjp again, std::span<Tensor* const> in, std::span<Tensor* const> out);

 private:
  std::vector<std::pair<GradSession*, uint64_t>> open_;  // with their ids: one may have been stopped meanwhile
  std::vector<uint64_t> noted_;                          // ids
};

/// The innermost recording session that tracks some input; null when none does.
GradSession* tracking_session(std::span<Tensor* const> in);
/// The forward line of the node whose backward is running; 0 otherwise.
LocId backward_location();
/// Not 0 while an Unrecorded part is run again, and while backward goes through what that recorded: a number of its own
/// for each second run. What a trace records meanwhile is not the same computation as in the first run.
uint64_t current_rerun();
/// Whether some session of this thread records.
bool any_recording();
/// What of the recording sessions of this thread decides which ops the tape keeps something for.
uint64_t grad_context();
/// Forgets links of sessions that have ended, and with them what those saved.
void drop_stale_links(Tensor& t);
/// Which of them follow `t`, a bit for each.
uint64_t link_mask(const Tensor& t);

}  // namespace mge
