#include "plan/prepared.h"

namespace mge {

RefPtr<Storage> PreparedWeights::get(const Kernel& k, const KernelArgs& with, size_t bytes) {
  const std::lock_guard lock(mutex_);
  RefPtr<Storage>& s = made_[{with.in[static_cast<size_t>(k.prepare.operand)].ptr, k.prepare.run, bytes}];
  if (!s) {
    s = allocate_storage({}, bytes);
    k.prepare.run(with, s->ptr);
  }
  return s;
}

}  // namespace mge
