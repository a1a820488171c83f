#include "plan/prepared.h"

#include <cstring>

namespace mge {

RefPtr<Storage> PreparedWeights::get(const Kernel& k, const KernelArgs& with, size_t bytes) {
  RefPtr<Storage> s = allocate_storage({}, bytes);
  k.prepare.run(with, s->ptr);
  const std::lock_guard lock(mutex_);
  auto& known = made_[{with.in[static_cast<size_t>(k.prepare.operand)].ptr, k.prepare.run, bytes}];
  // What a kernel makes may depend on other operands' sizes, and mostly does not.
  for (auto& other : known)
    if (std::memcmp(other->ptr, s->ptr, bytes) == 0) return other;
  known.push_back(s);
  return s;
}

}  // namespace mge
