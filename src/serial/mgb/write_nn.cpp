// Convolutions, pooling, normalisation, recurrence, images, random numbers.
#include <cmath>

#include "compat/op_class.h"
#include "op/conv/conv2d.h"
#include "op/conv/conv3d.h"
#include "op/conv/conv_geom.h"
#include "op/loss/softmax.h"
#include "op/norm/batch_norm.h"
#include "op/norm/layer_norm.h"
#include "op/pool/pool.h"
#include "op/quant/product.h"
#include "op/recurrence/recurrence.h"
#include "op/rng/rng.h"
#include "op/vision/vision.h"
#include "serial/mgb/write_impl.h"

namespace mge::serial::mgb {
namespace {

void add_policy(Oprs& w) { w.last().params.push_back({&table_named("ExecutionPolicy"), {}}); }

template <size_t D>
Fields geometry(const ConvAttrs<D>& at, bool grouped) {
  static constexpr const char* kNames[3][3] = {
      {"pad_d", "pad_h", "pad_w"}, {"stride_d", "stride_h", "stride_w"}, {"dilate_d", "dilate_h", "dilate_w"}};
  Fields f;
  for (size_t i = 0; i < D; ++i) {
    f.push_back({kNames[0][3 - D + i], at.pad[i]});
    f.push_back({kNames[1][3 - D + i], at.stride[i]});
    f.push_back({kNames[2][3 - D + i], at.dilate[i]});
  }
  f.push_back({"sparse", int64_t{grouped}});
  return f;
}

/// The weight with an axis of groups where there are several.
template <size_t D>
VarId weight(Oprs& w, size_t i, int64_t groups, bool* grouped) {
  const Shape& s = w.meta(i).shape;
  *grouped = s.rank == static_cast<int>(D) + 3;
  if (groups == 1 || *grouped) return w.in(i);
  *grouped = true;
  std::vector<int64_t> shape{groups, s[0] / groups};
  shape.insert(shape.end(), s.begin() + 1, s.end());
  return w.reshape(w.in(i), w.ints(shape));
}

template <size_t D, class A>
void conv(Oprs& w) {
  const auto& at = w.attrs<A>();
  bool grouped;
  const VarId filter = weight<D>(w, 1, at.groups, &grouped);
  const char* type = D == 2 ? "ConvolutionV2" : "Convolution3D";
  const char* table = D == 2 ? "Convolution" : "Convolution3D";
  Fields f = geometry<D>(at, grouped);
  // Ours sum float16 in float32.
  if (D == 2 && w.meta(0).dtype == DType::F16) f.push_back({"compute_mode", int64_t{1}});
  VarId y = w.opr1(type, table, f, {w.in(0), filter});
  add_policy(w);
  if (w.n_in() > 2) y = w.elemwise("ADD", {y, w.in(2)});
  w.result(y);
}

/// The least size that a gradient of this size comes from is what MegEngine takes; others are told by a tensor.
template <size_t D, class A>
bool is_least(const Graph& g, const ir::Node& n) {
  if (!n.sizes.empty()) return false;  // of this call, and maybe of no other
  const auto& at = attrs_as<A>(n.attrs.get());
  const Shape &dy = g.meta(n.inputs[0]).shape, &f = g.meta(n.inputs[1]).shape, &y = g.meta(n.outputs[0]).shape;
  for (size_t i = 0; i < D; ++i) {
    const int k = static_cast<int>(i);
    if (conv_inputs(dy[2 + k], f[f.rank - static_cast<int>(D) + k], at.stride[i], at.pad[i], at.dilate[i]) != y[2 + k])
      return false;
  }
  return true;
}
template <size_t D, class A>
void conv_dx(Oprs& w) {
  const auto& at = w.attrs<A>();
  bool grouped;
  const VarId filter = weight<D>(w, 1, at.groups, &grouped);
  Vars in{filter, w.in(0)};
  if (!w.node().sizes.empty() || !is_least<D, A>(w.graph(), w.node()))
    in.push_back(w.broadcast(w.number(0, w.out_meta().dtype), w.sizes("x_shape").var));
  const char* type = D == 2 ? "ConvolutionBackwardDataV2" : "Convolution3DBackwardData";
  const char* table = D == 2 ? "Convolution" : "Convolution3D";
  const VarId y = w.opr1(type, table, geometry<D>(at, grouped), in);
  add_policy(w);
  w.result(y);
}
// The values of the weight do not matter, its shape does.
void conv2d_dw(Oprs& w) {
  const auto& at = w.attrs<Conv2dDwAttrs>();
  const VarId shape = w.sizes("w_shape").var;
  VarId like = shape;
  const bool grouped = at.groups > 1 || at.w_shape.size() == 5;
  if (grouped && at.w_shape.size() == 4)
    like = w.join({w.ints({at.groups, at.w_shape[0] / at.groups}), w.part(shape, 1, INT32_MAX)});
  const VarId y = w.opr1("ConvolutionBackwardFilterV2", "Convolution", geometry<2>(at, grouped),
                         {w.in(0), w.in(1), w.broadcast(w.number(0, w.out_meta().dtype), like)});
  add_policy(w);
  w.result(like == shape ? y : w.reshape(y, shape));
}
std::string refuse_conv(const Graph& g, const ir::Node& n) {
  const Meta& m = g.meta(n.inputs[0]);
  return is_float(m.dtype) ? std::string() : format("of {}", dtype_name(m.dtype));
}

// Quantised: the sum is of 32 bits; what it becomes is the output type.
void qconv2d(Oprs& w) {
  const auto& at = w.attrs<QConv2dAttrs>();
  bool grouped;
  const VarId filter = weight<2>(w, 1, at.groups, &grouped);
  Fields f = geometry<2>(at, grouped);
  const bool real = !is_quant(at.type.dtype);
  if (at.act == "relu" && !real) f.push_back({"nonlineMode", int64_t{1}});
  Vars in{w.in(0), filter};
  if (w.n_in() > 2) in.push_back(w.in(2));
  VarId y = w.opr1("ConvBiasForwardV4", "ConvBias", f, in);
  add_policy(w);
  const Quant sum = product_quant(w.meta(0).quant, w.meta(1).quant, 1);
  w.last().output_dtype =
      real ? compat::TypeParam{DType::QI32, sum} : compat::TypeParam{w.out_meta().dtype, w.out_meta().quant};
  if (real) y = w.convert(y, w.out_meta().dtype);
  if (real && at.act == "relu") y = w.elemwise("RELU", {y});
  w.result(y);
}

// The sum is of 32 bits there, too; the bias and what it becomes come behind it.
void qconv2d_dx(Oprs& w) {
  const auto& at = w.attrs<QConv2dDxAttrs>();
  bool grouped;
  const VarId filter = weight<2>(w, 1, at.groups, &grouped);
  Vars in{filter, w.in(0)};
  if (!w.node().sizes.empty() || !is_least<2, QConv2dDxAttrs>(w.graph(), w.node()))
    in.push_back(w.broadcast(w.number(0, DType::F32), w.sizes("x_shape").var));
  VarId y = w.opr1("ConvolutionBackwardDataV2", "Convolution", geometry<2>(at, grouped), in);
  add_policy(w);
  const Quant sum = product_quant(w.meta(0).quant, w.meta(1).quant, 1);
  w.last().output_dtype = {DType::QI32, sum};
  const Meta& out = w.out_meta();
  if (w.n_in() == 2 && at.act == "none" && out.dtype == DType::QI32 && is_product_quant(out.quant, sum))
    return w.result(y);
  y = w.convert(y, DType::F32);
  if (w.n_in() > 2) y = w.elemwise("ADD", {y, w.convert(w.in(2), DType::F32)});
  if (at.act == "relu") y = w.elemwise("RELU", {y});
  w.result(is_quant(out.dtype) ? w.convert(y, out.dtype, out.quant) : y);
}

Fields window(const Ints& kernel, const Ints& stride, const Ints& pad) {
  const Ints& s = stride.empty() ? kernel : stride;
  return {{"window_h", kernel[0]}, {"window_w", kernel.back()}, {"stride_h", s[0]},
          {"stride_w", s.back()},  {"pad_h", pad[0]},           {"pad_w", pad.back()}};
}

/// The size that is wanted of the image along an axis: what the input is divided by to get the stride.
VarId wanted_size(Oprs& w, int axis) {
  const Graph& g = w.graph();
  const ir::Node& n = w.node();
  const std::vector<NamedAttr> values = n.attrs->values();
  for (auto& s : n.sizes) {
    const bool whole = s.element == SizeOperand::kWhole;
    if (values[static_cast<size_t>(s.field)].name != "stride" || (!whole && s.element != axis)) continue;
    const ir::NodeId from = g.value(s.value).producer;
    if (from == ir::kNone || g.node(from).op->name != "floor_div") continue;
    const ir::ValueId by = g.node(from).inputs[1];
    if (g.constant_of(by)) continue;
    return whole && g.meta(by).shape.numel() == 2 ? w.part(w.of(by), axis, axis + 1) : w.of(by);
  }
  return w.ints({w.out_meta().shape[axis + 2]});
}
/// The image that is left where windows follow the sizes of the input: AdaptivePooling has those of ours.
template <class A>
std::string refuse_pool(const Graph& g, const ir::Node& n) {
  if (n.sizes.empty()) return {};
  const auto& at = attrs_as<A>(n.attrs.get());
  const Shape &x = g.meta(n.inputs[0]).shape, &y = g.meta(n.outputs[0]).shape;
  bool same = at.pad == Ints{0, 0} && at.kernel.size() == 2 && at.stride.size() == 2;
  for (size_t i = 0; same && i < 2; ++i) {
    const int64_t in = x[static_cast<int>(i) + 2], out = y[static_cast<int>(i) + 2];
    same = at.stride[i] == in / out && at.kernel[i] == in - (out - 1) * at.stride[i];
    // Windows side by side, as many for any size, are not those.
    for (auto& a : n.sizes)
      for (auto& b : n.sizes) same &= out == 1 || a.field == b.field || a.value != b.value;
  }
  return same ? "" : "with windows computed from sizes";
}
bool adaptive_pool(Oprs& w, int64_t mode) {
  if (w.node().sizes.empty()) return false;
  w.sizes_are_written();
  const VarId size = w.join({wanted_size(w, 0), wanted_size(w, 1)});
  w.result(w.opr1("AdaptivePoolingV1", "AdaptivePooling", {{"mode", mode}}, {w.in(0), size}));
  return true;
}
void max_pool2d(Oprs& w) {
  if (adaptive_pool(w, 0)) return;
  const auto& at = w.attrs<PoolAttrs>();
  Fields f = window(at.kernel, at.stride, at.pad);
  f.push_back({"mode", int64_t{0}});
  w.result(w.opr1("PoolingV1", "Pooling", f, {w.in(0)}));
}
void avg_pool2d(Oprs& w) {
  if (adaptive_pool(w, 2)) return;
  const auto& at = w.attrs<AvgPoolAttrs>();
  Fields f = window(at.kernel, at.stride, at.pad);
  f.push_back({"mode", int64_t{at.include_pad ? 1 : 2}});
  w.result(w.opr1("PoolingV1", "Pooling", f, {w.in(0)}));
}

void pool_bwd(Oprs& w, const Ints& kernel, const Ints& stride, const Ints& pad, int64_t mode, const Vars& in) {
  Fields f = window(kernel, stride, pad);
  f.push_back({"mode", mode});
  w.result(w.opr1("PoolingBackwardV1", "Pooling", f, in));
}
void max_pool2d_bwd(Oprs& w) {
  const auto& at = w.attrs<PoolAttrs>();
  pool_bwd(w, at.kernel, at.stride, at.pad, 0, {w.in(0), w.in(1), w.in(2)});
}
void avg_pool2d_bwd(Oprs& w) {  // of image and result the shapes count
  const auto& at = w.attrs<AvgPoolBwdAttrs>();
  const VarId x = w.broadcast(w.number(0, w.out_meta().dtype), w.sizes("x_shape").var);
  pool_bwd(w, at.kernel, at.stride, at.pad, at.include_pad ? 1 : 2, {x, w.in(0), w.in(0)});
}

void batch_norm(Oprs& w) {
  const Vars in{w.in(0), w.in(1), w.in(2), w.in(3), w.in(4)};
  const double eps = w.attrs<BatchNormAttrs>().eps;
  const Vars v =
      w.opr("BatchNormV1", "BN", {{"param_dim", int64_t{2}}, {"fwd_mode", int64_t{1}}, {"epsilon", eps}}, in, 4);
  w.result(v[3]);
}
std::string refuse_batch_norm(const Graph& g, const ir::Node& n) {
  if (g.meta(n.inputs[0]).shape.rank != 4 || g.meta(n.inputs[0]).dtype != DType::F32 || n.inputs.size() != 5)
    return "not of images";
  for (size_t i = 1; i < 5; ++i)
    if (g.meta(n.inputs[i]).shape.rank != 4) return "statistics not of shape [1,C,1,1]";
  return {};
}
void softmax(Oprs& w) {
  int64_t axis = w.attrs<SoftmaxAttrs>().axis;
  if (axis < 0) axis += w.meta(0).shape.rank;
  w.result(w.opr1("Softmax", "Softmax", {{"axis", axis}}, {w.in(0)}));
}
void layer_norm(Oprs& w) {
  const auto& at = w.attrs<LayerNormAttrs>();
  const Shape& s = w.meta(0).shape;
  const int64_t size = layer_norm_geom(s, at.n_axes).size;
  Vars in{w.in(0)};
  for (size_t i = 1; i < w.n_in(); ++i) in.push_back(w.in(i));
  const Vars v = w.opr(
      "LayerNorm", "LayerNorm",
      {{"affine", w.n_in() > 1}, {"eps", at.eps}, {"normalized_dim", at.n_axes}, {"normalized_size", size}}, in, 3);
  w.result(v[0]);
}
std::string refuse_layer_norm(const Graph& g, const ir::Node& n) {
  if (g.use_count(n.outputs[1]) || g.use_count(n.outputs[2])) return "with its statistics";
  if (n.inputs.size() == 1 && g.is_sized()) return "of as many elements as there are";  // no weight says how many
  return g.meta(n.inputs[0]).shape.rank <= attrs_as<LayerNormAttrs>(n.attrs.get()).n_axes ? "over all axes" : "";
}

// Ours takes what the input adds to each step, theirs the input and its weight: the identity makes the one of the
// other.
void recurrence(Oprs& w) {
  const auto& at = w.attrs<RecurrenceAttrs>();
  const bool lstm = at.mode == "lstm";
  const int64_t gates = w.meta(0).shape[2], hidden = w.meta(1).shape[1];
  std::vector<float> one(static_cast<size_t>(gates * gates));
  for (int64_t i = 0; i < gates; ++i) one[static_cast<size_t>(i * gates + i)] = 1;
  auto& data = w.literals.emplace_back(one.size() * sizeof(float));
  std::copy_n(reinterpret_cast<const uint8_t*>(one.data()), data.size(), data.data());
  Meta m;
  m.shape = Shape{gates, gates};
  const VarId identity = w.constant(m, data);
  const VarId weights = w.join({w.reshape(identity, {-1}), w.reshape(w.in(1), {-1})});
  // Backwards is forwards of the steps in reverse order.
  auto turned = [&](VarId x) {
    if (!at.reverse) return x;
    return w.opr1("Subtensor", "IndexDescMaskDump", {{"items", compat::Rows{{0, 0, 0, 1, 0}}}}, {x, w.ints({-1})});
  };
  Vars in{turned(w.in(0)), w.add_axes(w.in(2), {0})};
  if (lstm) in.push_back(w.add_axes(w.in(3), {0}));
  in.push_back(weights);
  Fields f{{"hidden_size", hidden}, {"bias", false}, {"fwd_mode", int64_t{1}}};
  if (!lstm) f.push_back({"nonlineMode", int64_t{at.mode == "relu" ? 1 : 2}});
  const Vars v = lstm ? w.opr("LSTMForward", "LSTM", f, in, 4) : w.opr("RNNForward", "RNN", f, in, 3);
  w.result(turned(v[0]), 0);
  // States inside of the cell are given out for the last step alone.
  if (lstm && w.used(1)) w.result(w.broadcast(v[2], w.shape_of(v[0])), 1);
}
std::string refuse_recurrence(const Graph& g, const ir::Node& n) {
  if (g.meta(n.inputs[0]).dtype != DType::F32) return "not of float32";
  if (n.outputs.size() > 2 && g.use_count(n.outputs[2])) return "with its gates";
  if (n.outputs.size() < 2 || g.escapes(n.outputs[1])) return g.use_count(n.outputs[1]) ? "with all its states" : "";
  const bool reverse = attrs_as<RecurrenceAttrs>(n.attrs.get()).reverse;
  const int64_t steps = g.meta(n.inputs[0]).shape[0], last = reverse ? 0 : steps - 1, from_end = reverse ? -steps : -1;
  for (ir::NodeId u : g.value(n.outputs[1]).users) {
    const ir::Node& x = g.node(u);
    if (x.op->name != "slice") return "with all its states";
    for (auto& a : x.attrs->values())
      if (a.name == "starts" && (std::get<Ints>(a.value)[0] != last && std::get<Ints>(a.value)[0] != from_end))
        return "with all its states";
  }
  return {};
}

int64_t member(const char* cls, const char* field, std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (auto& f : compat::get(cls).fields)
    if (f.name == field) return compat::parse_member(*f.members, name);
  return 0;
}
// As MegEngine writes it: a warp that scales by (size - 1) / (new size - 1). Its Resize3D knows corners, too, but keeps
// what it made for the sizes before when they change.
VarId resize_to_corners(Oprs& w, VarId x, VarId size) {
  const VarId old = w.shape_of(x), zero = w.number(0, DType::F32), one = w.number(1, DType::F32);
  const auto less_one = [&](VarId n) { return w.elemwise("SUB", {w.convert(n, DType::F32), one}); };
  const auto scale = [&](int64_t i) {
    const VarId to = w.elemwise("MAX", {less_one(w.part(size, i, i + 1)), one});  // of one pixel: the first
    return w.elemwise("TRUE_DIV", {less_one(w.part(old, i + 2, i + 3)), to});
  };
  const VarId matrix = w.join({scale(1), zero, zero, zero, scale(0), zero, zero, zero, one});
  const VarId each = w.broadcast(w.reshape(matrix, {1, 3, 3}), w.join({w.part(old, 0, 1), w.ints({3, 3})}));
  return w.opr1("WarpPerspectiveV2", "WarpPerspective", {{"format", int64_t{0}}}, {x, each, size});
}
void resize(Oprs& w) {
  const auto& at = w.attrs<ResizeAttrs>();
  const int rank = w.meta(0).shape.rank;
  VarId x = w.in(0), size = w.sizes("size").var;
  if (rank == 3) x = w.add_axes(x, {3}), size = w.join({size, w.ints({1})});  // lines are images of one column
  VarId y;
  if (rank == 5)
    y = w.opr1("Resize3D", "Resize3D", {{"format", int64_t{0}}, {"align_corners", at.align_corners}}, {x, size});
  else if (at.align_corners)
    y = resize_to_corners(w, x, size);
  else
    y = w.opr1("ResizeV2", "Resize", {{"imode", member("Resize", "imode", at.mode)}, {"format", int64_t{0}}},
               {x, size});
  w.result(rank == 3 ? w.remove_axes(y, {3}, 4) : y);
}
std::string refuse_resize(const Graph& g, const ir::Node& n) {
  const auto& at = attrs_as<ResizeAttrs>(n.attrs.get());
  const int rank = g.meta(n.inputs[0]).shape.rank;
  if (rank == 5) return at.mode == "linear" ? "" : "of volumes, not linear";
  if (rank != 4 && rank != 3) return "not of images";
  return at.align_corners && at.mode != "linear" ? "with align_corners, not linear" : "";
}
void remap(Oprs& w) {
  const auto& at = w.attrs<RemapAttrs>();
  w.result(w.opr1("RemapV1", "Remap",
                  {{"imode", int64_t{at.nearest ? 0 : 1}},
                   {"border_type", member("Remap", "border_type", at.border)},
                   {"format", int64_t{0}},
                   {"scalar", at.value}},
                  {w.in(0), w.in(1)}));
}
void roi_align(Oprs& w) {
  const auto& at = w.attrs<RoiAlignAttrs>();
  const Vars v = w.opr("ROIAlignV1", "ROIAlign",
                       {{"mode", int64_t{at.max ? 0 : 1}},
                        {"spatial_scale", at.scale},
                        {"offset", at.aligned ? 0.5 : 0.0},
                        {"pooled_height", at.size[0]},
                        {"pooled_width", at.size[1]},
                        {"sample_height", at.samples[0]},
                        {"sample_width", at.samples[1]}},
                       {w.in(0), w.in(1)}, 2);
  w.result(v[0]);
}
void roi_pool(Oprs& w) {
  const auto& at = w.attrs<RoiPoolAttrs>();
  const Vars v = w.opr("ROIPooling", "ROIPooling", {{"mode", int64_t{at.max ? 0 : 1}}, {"scale", at.scale}},
                       {w.in(0), w.in(1), w.ints({at.size[0], at.size[1]})}, 2);
  w.result(v[0]);
}
std::string only_first(const Graph& g, const ir::Node& n) {
  for (size_t i = 1; i < n.outputs.size(); ++i)
    if (g.use_count(n.outputs[i])) return "with its second output";
  return {};
}
std::string refuse_max_pool(const Graph& g, const ir::Node& n) {
  const std::string why = only_first(g, n);
  return why.empty() ? refuse_pool<PoolAttrs>(g, n) : why;
}

}  // namespace

std::span<const RuleRow> nn_rules() {
  static const std::vector<RuleRow> rows = {
      {"conv2d", conv<2, Conv2dAttrs>, refuse_conv},
      {"conv3d", conv<3, Conv3dAttrs>, refuse_conv},
      {"conv2d_dx", conv_dx<2, Conv2dDxAttrs>, refuse_conv},
      {"conv3d_dx", conv_dx<3, Conv3dDxAttrs>, refuse_conv},
      {"qconv2d", qconv2d},
      {"qconv2d_dx", qconv2d_dx},
      {"conv2d_dw", conv2d_dw, refuse_conv},
      {"max_pool2d", max_pool2d, refuse_max_pool},
      {"max_pool2d_bwd", max_pool2d_bwd},
      {"avg_pool2d_bwd", avg_pool2d_bwd},
      {"avg_pool2d", avg_pool2d, refuse_pool<AvgPoolAttrs>},
      {"batch_norm_infer", batch_norm, refuse_batch_norm},
      {"softmax", softmax},
      {"layer_norm", layer_norm, refuse_layer_norm},
      {"recurrence", recurrence, refuse_recurrence},
      {"resize", resize, refuse_resize},
      {"remap", remap},
      {"roi_align", roi_align, only_first},
      {"roi_pooling", roi_pool, only_first},
  };
  return rows;
}

}  // namespace mge::serial::mgb
