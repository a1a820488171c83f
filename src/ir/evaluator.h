// How a pass computes with constants without knowing kernels: whoever runs the pipeline hands this in
// (plan/evaluate.h).
#pragma once
#include <functional>

#include "core/meta.h"
#include "core/storage.h"
#include "op/opdef.h"

namespace mge::ir {

/// Contiguous values. `storage` may be shared; nobody writes to it.
struct ConstTensor {
  Meta meta;
  RefPtr<Storage> storage;
  size_t offset = 0;  // bytes
};

/// Element `i` of a tensor of integers; a Value error when it holds others.
int64_t integer_at(const ConstTensor& t, int64_t i);

/// Fills out[i].storage and offset; out[i].meta is set by the caller. May throw: the pass then leaves the node alone.
using Evaluator = std::function<void(const OpDef& op, const AttrsBase* attrs, std::span<const ConstTensor> in,
                                     std::span<ConstTensor> out)>;

}  // namespace mge::ir
