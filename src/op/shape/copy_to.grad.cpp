#include "op/shape/copy_to.h"
#include "op/emitter.h"

namespace mge {

// A gradient goes back to where the value came from.
void register_copy_to_grads(OpRegistry& r) {
  r.grad("copy_to", [](VjpCtx& c) {
    const CompNode* home = c.in_metas[0].cn ? c.in_metas[0].cn : CompNode::default_node();
    bool borrow = attrs_as<CopyToAttrs>(c.attrs).borrow;
    c.set(0, c.em->emit1("copy_to", {c.gy()}, make_attrs(CopyToAttrs{home->logical, borrow})));
  });
}

}  // namespace mge
