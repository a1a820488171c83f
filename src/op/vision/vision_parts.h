// The decompositions of the image ops: index arithmetic, gathers and weights.
#pragma once
#include "op/emitter.h"

namespace mge {

void decompose_remap(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_remap_dx(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_remap_dmap(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_resize(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_resize_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_roi_align(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_roi_align_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_roi_pooling(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_roi_pooling_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);

}  // namespace mge
