#include "op/vision/byte_table.h"

#include "op/compose.h"
#include "op/emitter.h"
#include "op/in_build.h"

namespace mge {
namespace {

void infer_byte_table(InferCtx& c) {
  const auto& a = attrs_as<ByteTableAttrs>(c.attrs);
  const Shape &x = c.shape(0), &t = c.shape(1);
  MGE_CHECK(c.dtype(0) == DType::U8, Type, "byte_table: x is uint8; got {}.", c.x(0).str());
  MGE_CHECK(is_float(c.dtype(1)) && t.rank == 2 && t[1] == 256, Value,
            "byte_table: the table is floating point and has 256 columns; got {}.", c.x(1).str());
  MGE_CHECK(!a.to_nchw || x.rank == 4, Value, "byte_table: to_nchw needs an image [N,H,W,C]; got x {}.", x.str());
  if (t[0] != 1) {
    const int axis = a.to_nchw ? 3 : normalize_axis("byte_table", a.axis, x.rank);
    MGE_CHECK(x[axis] == t[0], Value, "byte_table: x has {} channels (axis {} of {}) but the table {} rows.", x[axis],
              axis, x.str(), t[0]);
  }
  c.out[0].dtype = c.dtype(1);
  c.out[0].shape = a.to_nchw ? Shape{x[0], x[3], x[1], x[2]} : x;
}

void decompose_byte_table(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& a = attrs_as<ByteTableAttrs>(attrs);
  const Val& x = in[0];
  const int64_t rows = in[1].shape()[0];
  Val place = cast(x, DType::I32);
  if (rows != 1) {
    const int axis = a.to_nchw ? 3 : normalize_axis("byte_table", a.axis, x.rank());
    place = place + iota_along(x, x.shape(), axis) * 256;
  }
  Val y = take_rows(reshape(in[1], Shape{rows * 256}), 0, place);
  out[0] = a.to_nchw ? transpose(y, {0, 3, 1, 2}) : y;
}

}  // namespace

void register_byte_table(OpRegistry& r) {
  r.op("byte_table")
      .attrs<ByteTableAttrs>()
      .in("x", "table")
      .out("y")
      .infer(infer_byte_table)
      .decompose(decompose_byte_table)
      .traits(kNoGrad)
      .doc("Looks bytes up in a table with a row for each channel; bytes have no gradient.");
}

}  // namespace mge
