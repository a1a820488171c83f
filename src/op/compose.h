// What decompositions say beyond the words of op/emitter.h: positions, slices, picking and placing, all in primitives.
//   Val rows = take_rows(x, axis, iota(x, n));
#pragma once
#include <string>
#include <vector>

#include "op/emitter.h"

namespace mge {

/// 16-bit floats as float32, everything else as it is: kernels compute in float32 and round once, and so do the parts.
Val wide(const Val& x);
Val maximum(const Val& a, const Val& b);
Val minimum(const Val& a, const Val& b);
/// A value everywhere in a shape, on the device of `like`.
Val filled(const Val& like, double v, DType t, const Shape& s);
/// int32 0..n-1 on the device of `like`; made by doubling, so a device needs no op for it.
Val iota(const Val& like, int64_t n);
/// iota(s[axis]) in the shape [1,..,n,..,1] that broadcasts against `s`.
Val iota_along(const Val& like, const Shape& s, int axis);

/// x[from:to:step] along one axis; step > 0.
Val slice_axis(const Val& x, int axis, int64_t from, int64_t to, int64_t step = 1);
/// The one element at `i` along an axis, without that axis.
Val element(const Val& x, int axis, int64_t i);
Val concat(const std::vector<Val>& parts, int axis);
/// x with `before` and `after` elements of `fill` added along an axis.
Val padded(const Val& x, int axis, int64_t before, int64_t after, double fill);

/// x[i, j, ..] by int32 indices for the named axes (multi_index.h); the index dimensions come at `at` in the result.
Val index_get(const Val& x, Ints axes, int64_t at, const std::vector<Val>& index);
Val index_set(const Val& x, const Val& v, Ints axes, int64_t at, const std::vector<Val>& index);
Val index_incr(const Val& x, const Val& v, Ints axes, int64_t at, const std::vector<Val>& index);
/// x[.., index, ..]: slices along one axis.
Val take_rows(const Val& x, int axis, const Val& index);
/// One element per entry of index, which has the rank of x: its place along the axis; the other axes count along.
Val get_along(const Val& x, int axis, const Val& index);
Val set_along(const Val& x, const Val& v, int axis, const Val& index);
Val incr_along(const Val& x, const Val& v, int axis, const Val& index);
/// index when every entry is in 0..size-1, else an error that names `who`.
Val checked_index(const Val& index, int64_t size, std::string who);

}  // namespace mge
