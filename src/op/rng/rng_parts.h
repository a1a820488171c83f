// The decompositions of the random ops: arithmetic on the words of rng_bits. The words are those the kernels use, so a
// device that has only rng_bits draws the same numbers up to rounding, uniform ones to the bit.
#pragma once
#include "op/emitter.h"

namespace mge {

void decompose_rng_uniform(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_rng_normal(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_rng_gamma(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_rng_poisson(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_rng_multinomial(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_rng_skip(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);
void decompose_dropout(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out);

}  // namespace mge
