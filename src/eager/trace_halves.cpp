// A recording of forward and backward together, run as two programs: the caller's own tape comes between them.
#include "eager/trace.h"

namespace mge {

RefPtr<Recording::Halfway> Recording::replay_forward(std::span<Tensor* const> args) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded.");
  make_parts();
  auto half = make_ref<Halfway>();
  half->slots = first_slots(args);
  run_parts(0, stages_.late_from, half->slots);
  assign_state(half->slots, false);
  for (size_t i = 0; i < results_.size(); ++i) {
    const ValuePtr& v = half->slots[static_cast<size_t>(stages_.outputs[i])];
    half->results.push_back(v ? make_ref<Tensor>(v) : nullptr);
  }
  return half;
}

std::vector<TensorPtr> Recording::replay_backward(Halfway& half, std::span<Tensor* const> late) {
  MGE_CHECK(!half.slots.empty(), Value,
            "partial_trace: backward has already run for this call, and what it needs was freed. Call the function "
            "again, or backward once with the sum.");
  const size_t first = n_args_ - late.size();
  for (size_t i = 0; i < late.size(); ++i) half.slots[first + i] = late[i]->value;
  run_parts(stages_.late_from, parts_.size(), half.slots);
  assign_state(half.slots, true);
  std::vector<TensorPtr> out;
  for (size_t i = 0; i < results_.size(); ++i)
    out.push_back(half.results[i] ? nullptr : make_ref<Tensor>(half.slots[static_cast<size_t>(stages_.outputs[i])]));
  half.slots.clear();
  return out;
}

}  // namespace mge
