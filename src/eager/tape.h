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

/// For user-defined functions: output gradients in (empty = none), input gradients out.
using CustomVjp = std::function<std::vector<TensorPtr>(const std::vector<TensorPtr>&)>;
/// Told once, when the gradient of an attached tensor is complete.
using GradCallback = std::function<void(TensorPtr)>;

struct GradNode : RefCounted {
  uint64_t session_id = 0, seq = 0;
  const OpDef* op = nullptr;  // null: an attached tensor or a custom rule
  Attrs attrs;
  SmallVec<GradEdge, 2> edges;
  SmallVec<TensorPtr, 2> saved_in, saved_out;
  SmallVec<Meta, 2> in_metas, out_metas;
  GradCallback callback;
  CustomVjp custom;
  LocId loc = 0;
  SmallVec<TensorPtr, 1> grads;  // per output, while a backward is running
  bool queued = false;
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
  bool recording() const { return active_ && suppressed_ == 0; }
  int level() const { return level_; }
  uint64_t id() const { return id_; }
  static void begin_group();
  static void end_group();

 private:
  friend void tape_record(const OpDef&, const Attrs&, std::span<Tensor* const>, std::span<TensorPtr>);
  uint64_t id_ = 0;  // new for each start, so that links of an earlier recording are recognised as stale
  int level_ = 0, suppressed_ = 0;
  bool active_ = false;
  std::shared_ptr<SessionList> home_;  // the active sessions of its thread, while it is one of them
};

bool any_grad_session();
/// Some recording session is linked to some input.
bool tape_wants(const OpDef& op, std::span<Tensor* const> in);
void tape_record(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out);
/// Outputs get the custom rule for every recording session that tracks some input.
void tape_record_custom(CustomVjp rule, std::span<Tensor* const> in, std::span<Tensor* const> out);
/// The innermost recording session that tracks some input; null when none does.
GradSession* tracking_session(std::span<Tensor* const> in);
/// The forward line of the node whose backward is running; 0 otherwise.
LocId backward_location();

}  // namespace mge
