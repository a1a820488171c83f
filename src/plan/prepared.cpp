#include "plan/prepared.h"

#include <cstring>
#include <string>

#include "core/memory_source.h"

namespace mge {
namespace {

// Of all that a kernel of ours may look at when it brings its operand into order: the attributes, how the operand lies,
// how much it makes of it. Sizes of other operands are none of it, so networks of other input sizes find it.
size_t made_from(const KernelArgs& with, const TensorArg& operand, size_t bytes) {
  std::string s =
      format("{} {} {} {}", bytes, with.op->name, with.attrs ? with.attrs->print() : "", operand.shape.str());
  for (int i = 0; i < operand.shape.rank; ++i) s += format(",{}", operand.layout.stride[i]);
  return std::hash<std::string>()(s);
}

}  // namespace

RefPtr<Storage> PreparedWeights::get(const Kernel& k, const KernelArgs& with, size_t bytes) {
  const TensorArg& operand = with.in[static_cast<size_t>(k.prepare.operand)];
  const Key key{operand.ptr, k.prepare.run, made_from(with, operand, bytes)};
  // A library's order may depend on the other sizes, and mostly does not: what it made is compared.
  const bool compares = k.tier == KernelTier::Library;
  auto find = [&](const void* made) -> RefPtr<Storage> {
    for (auto& other : made_[key])
      if (!compares || (made && std::memcmp(other->ptr, made, bytes) == 0)) return other;
    return {};
  };
  {
    const std::lock_guard lock(mutex_);
    if (RefPtr<Storage> known = find(nullptr)) return known;
  }
  const UseMemory pool(UseMemory::kPool);  // networks share it, one of which may have memory of its own
  RefPtr<Storage> s = allocate_storage({}, bytes);
  k.prepare.run(with, s->ptr);
  const std::lock_guard lock(mutex_);
  if (RefPtr<Storage> known = find(s->ptr)) return known;  // another thread made it meanwhile
  made_[key].push_back(s);
  return s;
}

}  // namespace mge
