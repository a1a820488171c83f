#include "op/saves.h"

#include <string_view>
#include <vector>

namespace mge {
namespace {

enum class Reads : uint8_t {
  All,
  Other,          // of the first two inputs each is read for the gradient of the other one: products
  SecondsOutput,  // outputs are read for the gradient of the second input
};
struct Row {
  std::string_view op;
  Reads reads;
};
constexpr Row kRows[] = {
    {"mul", Reads::Other},         {"matmul", Reads::Other},    {"conv2d", Reads::Other},
    {"conv2d_dx", Reads::Other},   {"conv2d_dw", Reads::Other}, {"conv3d", Reads::Other},
    {"conv3d_dx", Reads::Other},   {"conv3d_dw", Reads::Other}, {"div", Reads::SecondsOutput},
    {"pow", Reads::SecondsOutput},
};

Reads reads_of(const OpDef& op) {
  static const std::vector<Reads> by_id = [] {
    const OpRegistry& r = OpRegistry::global();
    std::vector<Reads> all(r.size(), Reads::All);
    for (auto& row : kRows)
      if (const OpDef* d = r.registered(row.op)) all[d->id] = row.reads;
    return all;
  }();
  return op.id < by_id.size() ? by_id[op.id] : Reads::All;  // custom ops come later
}

}  // namespace

Saves saves_for(const OpDef& op, Saves all, uint32_t wanted) {
  switch (reads_of(op)) {
    case Reads::Other:
      all.inputs &= ~3u | (wanted & 1) << 1 | (wanted >> 1 & 1);
      break;
    case Reads::SecondsOutput:
      if (!(wanted & 2)) all.outputs = 0;
      break;
    case Reads::All:
      break;
  }
  return all;
}

}  // namespace mge
