// In which memory order each node of a graph works, for the whole graph at once: conversions between orders, reads
// against the order of memory and the kernels' own times together cost least (docs/adr/0047-orders-of-a-graph.md).
//   Orders o = assign_layouts(g, input_layouts, OrderTarget::Cost);
//   ask_layouts(kernel, args, o.of(n), in, out);       what the node then needs and gives
// A kernel is offered its operands in one order or the other and says what it makes of that (Kernel::layouts), so no
// order is chosen that a kernel does not have, and no kernel is chosen that eager execution would not choose: the bits
// are the same whatever comes out.
#pragma once
#include <vector>

#include "ir/graph.h"
#include "kernel/kernel.h"

namespace mge {

/// In which order a node is offered its operands.
enum class Order : uint8_t { AsIs, RowMajor, ChannelsLast };

/// What is asked for: least cost, channels-last wherever a kernel has it, or that every kernel decides for itself by
/// the order its operands come in, as in eager execution.
enum class OrderTarget : uint8_t { Cost, ChannelsLast, Local };

struct Orders {
  std::vector<Order> by_node;   // shorter than the graph: the rest is AsIs
  double local_ns = 0, ns = 0;  // estimates of a run, each kernel for itself and as assigned
  int changed = 0;              // nodes that are not offered what is there
  Order of(ir::NodeId n) const {
    return static_cast<size_t>(n) < by_node.size() ? by_node[static_cast<size_t>(n)] : Order::AsIs;
  }
};

/// `inputs`: the layouts that graph inputs come in; empty: row-major.
Orders assign_layouts(const ir::Graph& g, const std::vector<Layout>& inputs, OrderTarget target);

/// `in` comes with the layouts that operands have and leaves with those they must have; `out` leaves with those of the
/// results. `a` is over them.
void ask_layouts(const Kernel& k, const KernelArgs& a, Order order, TensorArg* in, TensorArg* out);

/// "row-major", "channels-last" or "strided".
const char* order_name(const Shape& s, const Layout& l);

}  // namespace mge
