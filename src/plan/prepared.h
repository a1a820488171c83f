// Weights in the order of their kernels (Kernel::prepare), made when a program is compiled and shared by programs of
// one model: those of other input sizes, and of networks that share their weights.
//   CompileOptions o;  o.prepared_mapped = std::make_shared<PreparedWeights>();
#pragma once
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernel/kernel.h"

namespace mge {

class PreparedWeights {
 public:
  /// What `k` makes of its operand; `with` has its pointer. The same memory where it was made before with the same
  /// bytes. The operand's memory must outlive this.
  RefPtr<Storage> get(const Kernel& k, const KernelArgs& with, size_t bytes);

 private:
  using Key = std::tuple<const void*, decltype(Kernel::Prepare::run), size_t>;
  std::mutex mutex_;
  std::map<Key, std::vector<RefPtr<Storage>>> made_;
};

}  // namespace mge
