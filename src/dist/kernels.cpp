#include "dist/kernels.h"

#include "dist/group.h"
#include "op/dist/collective.h"
#include "op/in_build.h"

namespace mge::dist {
namespace {

template <class A>
std::shared_ptr<ProcessGroup> group_of(const OpDef& op, const A& a) {
  auto g = ProcessGroup::find(a.group);
  MGE_CHECK(g, Value, "{}: this process has no group named '{}'; it was closed, or never made.", op.name, a.group);
  MGE_CHECK(g->size() == a.size && g->rank() == a.rank, Value,
            "{}: group '{}' has {} members and this is rank {}; got size {} and rank {}.", op.name, a.group, g->size(),
            g->rank(), a.size, a.rank);
  return g;
}

template <Op kOp>
void collective(const KernelArgs& k) {
  constexpr bool reduces = kOp == Op::AllReduce || kOp == Op::Reduce || kOp == Op::ReduceScatter;
  constexpr bool rooted = kOp == Op::Reduce || kOp == Op::Broadcast || kOp == Op::Gather || kOp == Op::Scatter;
  const auto& a = k.as<CollectiveAttrs>();
  const TensorArg& x = k.in[0];
  group_of(*k.op, a)->run({.op = kOp,
                           .mode = reduces ? parse_mode(a.mode) : Mode::None,
                           .root = rooted ? static_cast<int>(a.root) : -1,
                           .dtype = x.dtype,
                           .shape = x.shape,
                           .in = x.ptr,
                           .out = k.out[0].ptr});
}
void send(const KernelArgs& k) {
  const auto& a = k.as<PeerAttrs>();
  const TensorArg& x = k.in[0];
  group_of(*k.op, a)->run(
      {.op = Op::Send, .root = static_cast<int>(a.peer), .dtype = x.dtype, .shape = x.shape, .in = x.ptr});
}
void recv(const KernelArgs& k) {
  const auto& a = k.as<PeerAttrs>();
  const TensorArg& y = k.out[0];
  group_of(*k.op, a)->run(
      {.op = Op::Recv, .root = static_cast<int>(a.peer), .dtype = y.dtype, .shape = y.shape, .out = y.ptr});
}

}  // namespace

void check_call(const OpDef& op, const AttrsBase* attrs) {
  const bool between_two = op.name == op_name(Op::Send) || op.name == op_name(Op::Recv);
  auto g = between_two ? group_of(op, attrs_as<PeerAttrs>(attrs)) : group_of(op, attrs_as<CollectiveAttrs>(attrs));
  g->check_usable(op.name.c_str());
}

void register_kernels(KernelRegistry& r) {
  struct Row {
    Op op;
    void (*run)(const KernelArgs&);
  };
  static constexpr Row kRows[] = {
      {Op::AllReduce, collective<Op::AllReduce>},
      {Op::Reduce, collective<Op::Reduce>},
      {Op::Broadcast, collective<Op::Broadcast>},
      {Op::AllGather, collective<Op::AllGather>},
      {Op::ReduceScatter, collective<Op::ReduceScatter>},
      {Op::Gather, collective<Op::Gather>},
      {Op::Scatter, collective<Op::Scatter>},
      {Op::AllToAll, collective<Op::AllToAll>},
      {Op::Send, send},
      {Op::Recv, recv},
  };
  for (auto& row : kRows)
    r.add(std::string(op_name(row.op)), KernelTier::Ref, {.name = op_name(row.op), .run = row.run});
}

}  // namespace mge::dist
