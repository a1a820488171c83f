#include "kernel/rows.h"

#include <utility>

namespace mge {
namespace {
std::vector<std::pair<void (*)(const KernelArgs&), RowsKernel>>& table() {
  static std::vector<std::pair<void (*)(const KernelArgs&), RowsKernel>> t;
  return t;
}
}  // namespace

void add_rows(void (*whole)(const KernelArgs&), const RowsKernel& rows) { table().emplace_back(whole, rows); }

const RowsKernel* rows_of(const Kernel& k) {
  for (auto& [whole, rows] : table())
    if (whole == k.run) return &rows;
  return nullptr;
}

}  // namespace mge
