#include "op/vision/vision.h"
#include "op/in_build.h"

#include <algorithm>

#include "op/nn.h"
#include "op/vision/vision_parts.h"

namespace mge {
namespace {

void check_border(const InferCtx& c, const std::string& border) {
  static constexpr std::string_view kBorders[] = {"replicate", "reflect", "reflect_101", "wrap", "constant"};
  MGE_CHECK(std::find(std::begin(kBorders), std::end(kBorders), border) != std::end(kBorders), Value,
            "{}: border must be replicate, reflect, reflect_101, wrap or constant; got \"{}\".", c.op->name, border);
}

// x [N,C,H,W] with at least one pixel, map [N,OH,OW,2]; returns the shape of the result.
Shape remap_shape(const InferCtx& c, const Shape& x, size_t map) {
  const Shape& m = c.shape(map);
  MGE_CHECK(x.rank == 4 && m.rank == 4 && m[3] == 2 && m[0] == x[0], Value,
            "{}: needs images [N,C,H,W] and positions [N,OH,OW,2] of as many images; got {} and {}.", c.op->name,
            x.str(), m.str());
  MGE_CHECK(x[2] > 0 && x[3] > 0, Value, "{}: images without pixels cannot be sampled; got {}.", c.op->name, x.str());
  return Shape{x[0], x[1], m[1], m[2]};
}

void infer_remap(InferCtx& c) {
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  check_border(c, attrs_as<RemapAttrs>(c.attrs).border);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = remap_shape(c, c.shape(0), 1);
}
void infer_remap_dx(InferCtx& c) {
  const auto& at = attrs_as<RemapDxAttrs>(c.attrs);
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  check_border(c, at.border);
  Shape x = to_shape(at.x_shape);
  nn::check_shape_is(c, 0, remap_shape(c, x, 1), format("(remap of x_shape {})", x.str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = x;
}
void infer_remap_dmap(InferCtx& c) {
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  check_border(c, attrs_as<RemapAttrs>(c.attrs).border);
  nn::check_shape_is(c, 2, remap_shape(c, c.shape(0), 1), "(that of the result of remap)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(1);
}

void check_resize(const InferCtx& c, const std::string& mode, const Ints& size) {
  nn::check_float(c, 0);
  nn::check_rank(c, 0, 3, 5);
  MGE_CHECK(mode == "linear" || mode == "cubic" || mode == "nearest", Value,
            "{}: mode must be linear, cubic or nearest; got \"{}\".", c.op->name, mode);
  const Shape& x = c.shape(0);
  bool ok = size.size() + 2 == x.rank;
  for (int64_t n : size) ok = ok && n > 0;
  for (int i = 2; i < x.rank; ++i) ok = ok && x[i] > 0;
  MGE_CHECK(ok, Value,
            "{}: needs one size above 0 for each axis after the first two, none of them empty; got {} for {}.",
            c.op->name, print_attr(size), x.str());
}
void resized(InferCtx& c, const Ints& size) {
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = Shape(c.shape(0).d, 2);
  for (int64_t n : size) c.out[0].shape.push_back(n);
}
void infer_resize(InferCtx& c) {
  const auto& at = attrs_as<ResizeAttrs>(c.attrs);
  check_resize(c, at.mode, at.size);
  resized(c, at.size);
}
void infer_resize_bwd(InferCtx& c) {
  const auto& at = attrs_as<ResizeBwdAttrs>(c.attrs);
  check_resize(c, at.mode, at.x_size);
  resized(c, at.x_size);
}

// x [N,C,H,W], rois [K,5]; returns the shape of the result.
Shape regions_shape(const InferCtx& c, const Ints& size) {
  nn::check_float(c, 0);
  nn::check_float(c, 1);
  nn::check_rank(c, 0, 4, 4);
  const Shape& r = c.shape(1);
  MGE_CHECK(r.rank == 2 && r[1] == 5, Value, "{}: rois must be [K,5]: image, x1, y1, x2, y2; got {}.", c.op->name,
            r.str());
  nn::Pair p = nn::pair_of(c, "size", size, 1);
  return Shape{r[0], c.shape(0)[1], p.h, p.w};
}
template <class A>
void infer_regions(InferCtx& c) {
  c.out[0].shape = regions_shape(c, attrs_as<A>(c.attrs).size);
  c.out[0].dtype = c.dtype(0);
}
template <class A>
void infer_regions_bwd(InferCtx& c) {
  nn::check_shape_is(c, 2, regions_shape(c, attrs_as<A>(c.attrs).size), "(that of the pooled regions)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}
void check_samples(const InferCtx& c) {
  const nn::Pair n = nn::pair_of(c, "samples", attrs_as<RoiAlignAttrs>(c.attrs).samples, 1);
  constexpr int64_t kMost = 1 << 16;
  MGE_CHECK(n.h <= kMost && n.w <= kMost / n.h, Value, "{}: a cell takes at most {} samples; got {} x {}.", c.op->name,
            kMost, n.h, n.w);
}
void infer_roi_align(InferCtx& c) {
  check_samples(c);
  infer_regions<RoiAlignAttrs>(c);
}
void infer_roi_align_bwd(InferCtx& c) {
  check_samples(c);
  infer_regions_bwd<RoiAlignAttrs>(c);
}

void infer_nms(InferCtx& c) {
  const auto& at = attrs_as<NmsAttrs>(c.attrs);
  nn::check_dtype(c, 0, DType::F32);
  nn::check_dtype(c, 1, DType::F32);
  const Shape& b = c.shape(0);
  MGE_CHECK(b.rank == 2 && b[1] == 4 && c.shape(1) == (Shape{b[0]}), Value,
            "nms: needs boxes [N,4] and scores [N]; got {} and {}.", b.str(), c.shape(1).str());
  MGE_CHECK(at.max_output >= 0, Value, "nms: max_output must not be negative; got {}.", at.max_output);
  c.out[0].dtype = c.out[1].dtype = DType::I32;
  c.out[0].shape = Shape{at.max_output};
  c.out[1].shape = Shape{};
}

}  // namespace

void register_vision(OpRegistry& r) {
  auto op = [&r](OpName name) MGE_INLINED { return r.op(name); };
  op("remap")
      .attrs<RemapAttrs>()
      .in("x", "map")
      .out("y")
      .infer(infer_remap)
      .decompose(decompose_remap)
      .promote(Promote::Float)
      .doc("y[n,c,i,j] = x[n,c] at the pixel position map[n,i,j] = (column, row), bilinear or nearest.");
  op("remap_dx")
      .attrs<RemapDxAttrs>()
      .in("gy", "map")
      .out("gx")
      .infer(infer_remap_dx)
      .decompose(decompose_remap_dx)
      .promote(Promote::Float)
      .doc("Adjoint of remap in x.");
  op("remap_dmap")
      .attrs<RemapAttrs>()
      .in("x", "map", "gy")
      .out("gmap")
      .infer(infer_remap_dmap)
      .decompose(decompose_remap_dmap)
      .promote(Promote::Float)
      .doc("Gradient of remap in map. It jumps where a position crosses a pixel.");
  op("resize")
      .attrs<ResizeAttrs>()
      .in("x")
      .out("y")
      .infer(infer_resize)
      .decompose(decompose_resize)
      .keeps_format(KeepsFormat::First)
      .promote(Promote::Float)
      .doc("x resized along all axes after the first two, one axis after the other; the edge is repeated outside.");
  op("resize_bwd")
      .attrs<ResizeBwdAttrs>()
      .in("gy")
      .out("gx")
      .infer(infer_resize_bwd)
      .decompose(decompose_resize_bwd)
      .promote(Promote::Float)
      .doc("Adjoint of resize, with a result of size x_size.");
  op("roi_align")
      .attrs<RoiAlignAttrs>()
      .in("x", "rois")
      .out("y")
      .refuses(0b10)
      .infer(infer_roi_align)
      .decompose(decompose_roi_align)
      .promote(Promote::Float)
      .doc("Mean or largest of bilinear samples in each cell of each region; rois are [K,5]: image, x1, y1, x2, y2.");
  op("roi_align_bwd")
      .attrs<RoiAlignAttrs>()
      .in("x", "rois", "gy")
      .out("gx")
      .refuses(0b10)
      .infer(infer_roi_align_bwd)
      .decompose(decompose_roi_align_bwd)
      .promote(Promote::Float)
      .doc("Adjoint of roi_align in x; x says where the largest samples are.");
  op("roi_pooling")
      .attrs<RoiPoolAttrs>()
      .in("x", "rois")
      .out("y")
      .refuses(0b10)
      .infer(infer_regions<RoiPoolAttrs>)
      .decompose(decompose_roi_pooling)
      .promote(Promote::Float)
      .doc("Largest or mean of the pixels in each cell of each region, whose corners are rounded; 0 without pixels.");
  op("roi_pooling_bwd")
      .attrs<RoiPoolAttrs>()
      .in("x", "rois", "gy")
      .out("gx")
      .refuses(0b10)
      .infer(infer_regions_bwd<RoiPoolAttrs>)
      .decompose(decompose_roi_pooling_bwd)
      .promote(Promote::Float)
      .doc("Adjoint of roi_pooling in x; x says where the largest pixels are.");
  op("nms")
      .attrs<NmsAttrs>()
      .in("boxes", "scores")
      .out("index", "count")
      .infer(infer_nms)
      .traits(kNoGrad)
      .doc(
          "Indices of boxes [N,4] by falling score, without those that overlap a kept one by more than iou_thresh: "
          "count "
          "of them, then -1. A choice, so nothing to differentiate.");
}

}  // namespace mge
