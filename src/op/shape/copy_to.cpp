// The only op whose output is on another device than its input.
#include "op/shape/copy_to.h"
#include "op/in_build.h"

#include "op/opdef.h"

namespace mge {
namespace {

void infer_copy_to(InferCtx& c) {
  const auto& a = attrs_as<CopyToAttrs>(c.attrs);
  MGE_CHECK(!a.device.empty(), Value, "copy_to: needs a device, for example device=\"cpu1\".");
  const CompNode* to = CompNode::get(a.device);
  const CompNode* from = c.x(0).cn;
  MGE_CHECK(!a.borrow || !from || from->device == to->device, Value,
            "copy_to: {} and {} are different devices; memory can be borrowed between streams of one device only.",
            from->logical, to->logical);
  c.out[0] = c.x(0);
  c.out[0].cn = to;
}

bool view_copy_to(const ViewCtx& c) {
  if (!attrs_as<CopyToAttrs>(c.attrs).borrow) return false;
  *c.out = c.in;
  return true;
}

}  // namespace

void register_copy_to(OpRegistry& r) {
  r.op("copy_to")
      .traits(kQuantised)
      .attrs<CopyToAttrs>()
      .in("x")
      .out("y")
      .infer(infer_copy_to)
      .keeps_format(KeepsFormat::First)
      .view(view_copy_to)
      .doc("The same value on another device.");
}

}  // namespace mge
