#include "op/dist/collective.h"
#include <algorithm>

#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

template <class A>
void check_place(const InferCtx& c, const A& a) {
  MGE_CHECK(a.size >= 1 && a.rank >= 0 && a.rank < a.size, Value,
            "{}: rank must lie in a group of size members; got rank {} of {}.", c.op->name, a.rank, a.size);
  if (c.n())
    MGE_CHECK(!c.x(0).cn || !c.x(0).cn->queue, NotImplemented,
              "{}: processes exchange tensors of the CPU; x is on {}. Copy it to cpu0 first.", c.op->name,
              c.x(0).cn->logical);
}
void check_root(const InferCtx& c, const CollectiveAttrs& a) {
  MGE_CHECK(a.root >= 0 && a.root < a.size, Value, "{}: root must be a rank of the group; got {} of {}.", c.op->name,
            a.root, a.size);
}
void check_data(const InferCtx& c, DType t) {
  MGE_CHECK(is_float(t) || is_int(t) || t == DType::Bool, NotImplemented,
            "{}: takes real numbers and bool; got {}. Send its parts, or its bytes as uint8.", c.op->name,
            dtype_name(t));
}
void check_mode(const InferCtx& c, const CollectiveAttrs& a) {
  const bool chooses = a.mode == "max" || a.mode == "min", adds = a.mode == "sum" || a.mode == "prod";
  MGE_CHECK(chooses || adds, Value, "{}: mode must be sum, prod, max or min; got '{}'.", c.op->name, a.mode);
  MGE_CHECK(chooses || c.dtype(0) != DType::Bool, Type,
            "{}: bool has no {}; mode=\"max\" is any and mode=\"min\" is all, or cast to int32.", c.op->name, a.mode);
}
const CollectiveAttrs& check(const InferCtx& c) {
  const auto& a = attrs_as<CollectiveAttrs>(c.attrs);
  check_place(c, a);
  check_root(c, a);
  check_data(c, c.dtype(0));
  return a;
}
/// What a rank that gets no value has instead: something to hang gradients on.
void nothing(InferCtx& c, DType t) {
  c.out[0].dtype = t;
  c.out[0].shape = Shape{0};
}
void like_x(InferCtx& c) { c.out[0].dtype = c.dtype(0), c.out[0].shape = c.shape(0); }

void need_axis(const InferCtx& c) {
  MGE_CHECK(c.shape(0).rank >= 1, Value, "{}: x needs an axis to lay blocks along; got a scalar. Reshape it to [1].",
            c.op->name);
}
void divided(InferCtx& c, int64_t size) {
  need_axis(c);
  MGE_CHECK(c.shape(0)[0] % size == 0, Assertion,
            "{}: axis 0 of x must divide into {} equal blocks, one for each rank; got {}.", c.op->name, size,
            c.x(0).str());
}

void infer_all_reduce(InferCtx& c) {
  check_mode(c, check(c));
  like_x(c);
}
void infer_reduce(InferCtx& c) {
  const auto& a = check(c);
  check_mode(c, a);
  a.rank == a.root ? like_x(c) : nothing(c, c.dtype(0));
}
void infer_broadcast(InferCtx& c) {
  check(c);
  like_x(c);
}
void set_joined(InferCtx& c, int64_t size) {
  need_axis(c);
  like_x(c);
  c.out[0].shape[0] = c.shape(0)[0] * size;
}
void infer_all_gather(InferCtx& c) { set_joined(c, check(c).size); }
void infer_gather(InferCtx& c) {
  const auto& a = check(c);
  set_joined(c, a.size);
  if (a.rank != a.root) nothing(c, c.dtype(0));
}
void infer_block(InferCtx& c) {
  const auto& a = check(c);
  divided(c, a.size);
  like_x(c);
  c.out[0].shape[0] = c.shape(0)[0] / a.size;
}
void infer_reduce_scatter(InferCtx& c) {
  check_mode(c, attrs_as<CollectiveAttrs>(c.attrs));
  infer_block(c);
}
void infer_all_to_all(InferCtx& c) {
  divided(c, check(c).size);
  like_x(c);
}

const PeerAttrs& check_peer(const InferCtx& c) {
  const auto& a = attrs_as<PeerAttrs>(c.attrs);
  check_place(c, a);
  MGE_CHECK(a.peer >= 0 && a.peer < a.size && a.peer != a.rank, Value,
            "{}: peer must be another rank of the group; got {}, this is rank {} of {}.", c.op->name, a.peer, a.rank,
            a.size);
  return a;
}
void infer_send(InferCtx& c) {
  check_peer(c);
  check_data(c, c.dtype(0));
  nothing(c, c.dtype(0));
}
void infer_recv(InferCtx& c) {
  const auto& a = check_peer(c);
  check_data(c, a.dtype);
  for (int64_t d : a.shape)
    MGE_CHECK(d >= 0, Value, "dist_recv: sizes must not be negative; got {}.", to_shape(a.shape).str());
  c.out[0].dtype = a.dtype;
  c.out[0].shape = to_shape(a.shape);
}

struct Row {
  OpName name;
  const char* doc;
  void (*infer)(InferCtx&);
};
constexpr Row kCollectives[] = {
    {"dist_all_reduce", "The sum (product, maximum, minimum) of x over all ranks, on every rank.", infer_all_reduce},
    {"dist_reduce", "The same on the root alone; other ranks get an empty tensor.", infer_reduce},
    {"dist_broadcast", "The root's x on every rank. The others give a tensor like it, whose values nobody reads.",
     infer_broadcast},
    {"dist_all_gather", "The x of all ranks, one after the other along axis 0, on every rank.", infer_all_gather},
    {"dist_reduce_scatter", "Block r, along axis 0, of the sum of x over all ranks, on rank r.", infer_reduce_scatter},
    {"dist_gather", "The x of all ranks along axis 0 on the root; other ranks get an empty tensor.", infer_gather},
    {"dist_scatter", "Block r, along axis 0, of the root's x on rank r. The others give a tensor like it.",
     infer_block},
    {"dist_all_to_all", "Block r, along axis 0, of each rank's x, in the order of ranks, on rank r.", infer_all_to_all},
};

}  // namespace

void register_collectives(OpRegistry& r) {
  constexpr bool any = std::ranges::any_of(kCollectives, [](const Row& row) { return row.name.here; }) ||
                       in_build("dist_send") || in_build("dist_recv");
  if constexpr (!any) return;
  for (const Row& row : kCollectives)
    r.op(row.name)
        .attrs<CollectiveAttrs>()
        .in("x")
        .out("y")
        .infer(row.infer)
        .effect([](const AttrsBase* a) { return attrs_as<CollectiveAttrs>(a).group; })
        .doc(row.doc);
  auto group = [](const AttrsBase* a) { return attrs_as<PeerAttrs>(a).group; };
  r.op("dist_send")
      .attrs<PeerAttrs>()
      .in("x")
      .out("sent")
      .infer(infer_send)
      .effect(group)
      .doc("Sends x to a peer, which receives it. The result is empty: gradients come back through it.");
  r.op("dist_recv")
      .attrs<PeerAttrs>()
      .opt("after")
      .out("y")
      .infer(infer_recv)
      .effect(group)
      .doc("Receives what a peer sends. `after` is not read: gradients reach the peer if one flows to it.");
}

}  // namespace mge
