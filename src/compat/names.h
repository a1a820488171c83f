// What the original calls the ops that one of ours stands for, in the order it would make them; the last one gives the
// result. Names of ops and outputs in dumped models are made of these.
//   opr_types(conv2d, attrs, {x, w, b})   {"Convolution", "ADD"}
//   opr_types(add, nullptr, {x, y})       {"ADD"}      an Elemwise goes by its mode
#pragma once
#include <span>
#include <string>
#include <vector>

#include "op/opdef.h"

namespace mge::compat {

std::vector<std::string> opr_types(const OpDef& op, const AttrsBase* attrs, std::span<const Meta* const> in);
/// What follows the name of the op in that of its result `index`: ":o5" where the original's op has several results.
std::string result_suffix(const OpDef& op, const AttrsBase* attrs, size_t index);

}  // namespace mge::compat
