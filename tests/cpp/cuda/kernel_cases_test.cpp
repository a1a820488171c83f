#include "cuda/kernel_cases.h"

namespace mge::cuda_test {

Cases elementwise_cases(std::span<const DType> dtypes) {
  Cases out;
  const OpRegistry& ops = OpRegistry::global();
  for (size_t id = 0; id < ops.size(); ++id) {
    const OpDef& op = ops.at(static_cast<OpId>(id));
    for (DType t : dtypes) {
      if (!op.scalar || !op.scalar->row[static_cast<int>(compute_of(t))]) continue;
      Case c{op.name.c_str(), nullptr, {}};
      auto add = [&](DType d) { c.in.emplace_back(d, Shape{5, 37}, [d](int64_t i) { return special(d, i); }); };
      if (op.scalar->selects) add(DType::Bool);
      for (int k = op.scalar->selects; k < op.scalar->arity; ++k) add(t);
      out.push_back(std::move(c));
    }
  }
  // Broadcasts, single values and strides.
  auto value = [](int64_t i) { return special(DType::F32, i); };
  for (auto& [a, b] :
       std::vector<std::pair<Shape, Shape>>{{{5, 37}, {37}}, {{5, 1}, {37}}, {{5, 37}, {}}, {{3, 1, 5}, {4, 1}}})
    out.push_back({"add", nullptr, {}}), out.back().in.emplace_back(DType::F32, a, value),
        out.back().in.emplace_back(DType::F32, b, value);
  // Rows of whole packs that do not lie together, one value for each row, and an output in another order.
  auto rows = [&](Shape a, Shape b, std::vector<int64_t> strides) {
    Case c{"add", nullptr, {}};
    c.in.emplace_back(DType::F32, a, value), c.in.emplace_back(DType::F32, b, value);
    for (size_t i = 0; i < strides.size(); ++i) c.in[0].arg.layout.stride[i] = strides[i];
    out.push_back(std::move(c));
  };
  rows({4, 3, 16}, {16}, {16, 64, 1});
  rows({4, 3, 16}, {4, 3, 1}, {16, 64, 1});
  rows({4, 3, 16}, {4, 1, 16}, {});
  rows({4, 3, 18}, {18}, {18, 72, 1});  // not of whole packs
  Case turned{"sub", nullptr, {}};
  for (int k = 0; k < 2; ++k) turned.in.emplace_back(DType::F32, Shape{5, 37}, value);
  turned.in[1].arg.layout.stride[0] = 1, turned.in[1].arg.layout.stride[1] = 5;
  out.push_back(std::move(turned));
  return out;
}

Cases cast_cases(std::span<const DType> dtypes) {
  Cases out;
  for (DType from : dtypes)
    for (DType to : dtypes) {
      if (from == to) continue;
      out.push_back({"typecvt", make_attrs(TypeCvtAttrs{to}), {}});
      out.back().in.emplace_back(from, Shape{301}, [from](int64_t i) { return special(from, i) * (i % 5 ? 1 : 1e6); });
    }
  return out;
}

Cases reduce_cases(std::span<const DType> dtypes) {
  Cases out;
  for (const char* mode : {"sum", "mean", "max", "min", "prod"})
    for (DType t : dtypes)
      for (const Ints& axes : {Ints{1}, Ints{2}, Ints{0, 2}, Ints{}})
        for (const Shape& s : {Shape{3, 70, 5}, Shape{2, 3, 2100}, Shape{200, 3, 1}}) {
          out.push_back({"reduce", make_attrs(ReduceAttrs{mode, axes, false}), {}});
          out.back().in.emplace_back(t, s, [t](int64_t i) { return special(t, i); });
        }
  return out;
}

Cases region_cases() {
  Cases out;
  for (const char* text :
       {"(float32,float32) t0=mul(i0,i1) t1=sigmoid(t0) t2=add(t1,i0) -> t0,t2",
        "(float16,float16) t0=add(i0,i1) t1=exp(t0) t2=typecvt(t1){dtype=float32} -> t1,t2",
        "(float32,float32) t0=mul(i0,i1) t1=add(t0,i0) t2=reduce(t1){mode=\"sum\",axes=[0],keepdims=false} -> t0,t2",
        "(bfloat16,bfloat16) t0=sub(i0,i1) t1=square(t0) t2=reduce(t1){mode=\"mean\",axes=[1],keepdims=true}"}) {
    const FusedRegion r = FusedRegion::parse(text);
    Case c{"fused", Attrs(new AttrsOf<FusedRegion>(r)), {}};
    for (DType t : r.inputs) c.in.emplace_back(t, Shape{70, 33}, [t](int64_t i) { return special(t, i); });
    out.push_back(std::move(c));
  }
  return out;
}

Cases row_cases(DType t) {
  Cases out;
  auto add = [&](const char* op, Attrs attrs, std::vector<Shape> in) {
    out.push_back({op, std::move(attrs), {}});
    for (auto& s : in) out.back().in.emplace_back(t, s, [](int64_t i) { return 0.25 * whole(i); });
  };
  for (const char* op : {"softmax", "logsoftmax"}) add(op, make_attrs(SoftmaxAttrs{-1}), {{70, 45}});
  for (const char* op : {"softmax_bwd", "logsoftmax_bwd"}) add(op, make_attrs(SoftmaxAttrs{-1}), {{70, 45}, {70, 45}});
  add("layer_norm", make_attrs(LayerNormAttrs{1, 1e-5}), {{70, 45}, {45}, {45}});
  add("layer_norm", make_attrs(LayerNormAttrs{2, 1e-5}), {{3, 7, 5}});
  add("layer_norm", make_attrs(LayerNormAttrs{1, 1e-5}), {{7, 264}, {264}, {264}});  // of whole packs
  add("layer_norm_bwd", make_attrs(LayerNormBwdAttrs{1}), {{70, 45}, {70, 45}, {70, 1}, {70, 1}, {45}});
  add("layer_norm_bwd", make_attrs(LayerNormBwdAttrs{1}), {{70, 136}, {70, 136}, {70, 1}, {70, 1}, {136}});
  for (int64_t classes : {45, 1032})  // of whole packs and not, fewer than threads and more
    for (bool backward : {false, true}) {
      out.push_back({backward ? "softmax_xent_bwd" : "softmax_xent", make_attrs(XentAttrs{1}), {}});
      auto& in = out.back().in;
      in.emplace_back(t, Shape{3, classes}, [](int64_t i) { return i % 11 == 5 ? -INFINITY : 0.25 * whole(i); });
      in.emplace_back(DType::I32, Shape{3}, [](int64_t i) { return static_cast<double>(i * 7); });
      if (backward) {
        in[0] = Array(t, Shape{3, classes}, [](int64_t i) { return 0.125 * whole(i); });
        in.emplace_back(t, Shape{3}, whole);
      }
    }
  const Shape c{1, 12, 1, 1};
  add("batch_norm_train", make_attrs(BatchNormAttrs{}), {{3, 12, 40, 32}, c, c});
  add("batch_norm_train", make_attrs(BatchNormAttrs{}), {{5, 3, 7, 3}, {1, 3, 1, 1}, {1, 3, 1, 1}});
  add("batch_norm_bwd", nullptr, {{2, 12, 9, 8}, {2, 12, 9, 8}, c, c, c});
  add("batch_norm_bwd", nullptr,
      {{40, 264, 5, 3}, {40, 264, 5, 3}, {264}, {264}, {264}});               // several groups of channels
  for (size_t last = out.size() - 4, end = out.size(); last < end; ++last) {  // the same in channels-last memory
    out.push_back(out[last]);
    for (Array& x : out.back().in)
      if (x.arg.shape[0] > 1 && x.arg.shape.rank == 4) x.arg.layout = Layout::channels_last(x.arg.shape);
  }
  // 16-bit images beside float32 parameters.
  if (t == DType::F16 || t == DType::BF16)
    for (size_t i = 0, end = out.size(); i < end; ++i) {
      if (!std::string_view(out[i].op).starts_with("batch_norm")) continue;
      out.push_back(out[i]);
      for (Array& x : out.back().in)
        if (x.arg.shape.rank == 1 || x.arg.shape[0] == 1)
          x = Array(DType::F32, x.arg.shape, [](int64_t k) { return 0.25 * whole(k); });
    }
  return out;
}

Cases other_cases(DType t) {
  Cases out;
  auto add = [&](const char* op, Attrs attrs, std::vector<std::pair<DType, Shape>> in,
                 std::function<double(int64_t)> value = whole) {
    out.push_back({op, std::move(attrs), {}});
    for (auto& [dtype, shape] : in) out.back().in.emplace_back(dtype, shape, value);
  };
  auto mixed = [t](int64_t i) { return special(t, i); };
  auto positive = [](int64_t i) { return 0.01 * static_cast<double>(i % 50 + 1); };

  Conv2dAttrs conv;
  conv.pad = {1, 1}, conv.stride = {2, 1};
  add("conv2d", make_attrs(conv), {{t, {2, 4, 7, 8}}, {t, {6, 4, 3, 3}}, {t, {1, 6, 1, 1}}});
  conv.groups = 2;
  add("conv2d", make_attrs(conv), {{t, {2, 4, 7, 8}}, {t, {2, 3, 2, 3, 3}}});
  Conv2dDxAttrs dx;
  static_cast<Conv2dAttrs&>(dx) = conv;
  dx.x_shape = {2, 4, 7, 8};
  add("conv2d_dx", make_attrs(dx), {{t, {2, 6, 4, 8}}, {t, {2, 3, 2, 3, 3}}});
  Conv2dDwAttrs dw;
  static_cast<Conv2dAttrs&>(dw) = conv;
  dw.w_shape = {2, 3, 2, 3, 3};
  add("conv2d_dw", make_attrs(dw), {{t, {2, 4, 7, 8}}, {t, {2, 6, 4, 8}}});

  const Shape x{2, 3, 9, 7}, y{2, 3, 5, 6};
  const PoolAttrs pool{{3, 2}, {2, 1}, {1, 0}};
  add("max_pool2d", make_attrs(pool), {{t, x}}, mixed);
  add("max_pool2d_bwd", make_attrs(pool), {{t, x}, {t, y}, {t, y}}, mixed);
  add("max_pool2d_take", make_attrs(pool), {{t, x}, {t, y}, {t, x}}, mixed);
  // Channels that lie together, in packs and not.
  for (int64_t channels : {8, 3}) {
    const Shape wide{2, channels, 9, 7}, narrow{2, channels, 5, 6};
    add("max_pool2d", make_attrs(pool), {{t, wide}}, mixed);
    add("max_pool2d_bwd", make_attrs(pool), {{t, wide}, {t, narrow}, {t, narrow}}, mixed);
    add("max_pool2d_take", make_attrs(pool), {{t, wide}, {t, narrow}, {t, wide}}, mixed);
    add("avg_pool2d", make_attrs(AvgPoolAttrs{pool.kernel, pool.stride, pool.pad, true}), {{t, wide}}, mixed);
    add("avg_pool2d_bwd", make_attrs(AvgPoolBwdAttrs{pool.kernel, pool.stride, pool.pad, false, {2, channels, 9, 7}}),
        {{t, narrow}}, mixed);
    for (size_t i = out.size() - 5; i < out.size(); ++i)
      for (Array& image : out[i].in) image.arg.layout = Layout::channels_last(image.arg.shape);
  }
  for (bool all : {true, false}) {
    add("avg_pool2d", make_attrs(AvgPoolAttrs{pool.kernel, pool.stride, pool.pad, all}), {{t, x}}, mixed);
    add("avg_pool2d_bwd", make_attrs(AvgPoolBwdAttrs{pool.kernel, pool.stride, pool.pad, all, {2, 3, 9, 7}}), {{t, y}},
        mixed);
  }

  add("matmul", make_attrs(MatmulAttrs{}), {{t, {3, 5, 7}}, {t, {7, 4}}, {t, {4}}});
  add("matmul", make_attrs(MatmulAttrs{true, true}), {{t, {2, 1, 7, 5}}, {t, {3, 4, 7}}});

  const std::pair<DType, Shape> w{t, {301}}, one{DType::F32, {}};
  add("sgd_update", make_attrs(SgdAttrs{0.1}), {w, w, one}, positive);
  add("sgd_momentum_update", make_attrs(SgdMomentumAttrs{0.9, 0.1, true}), {w, w, one, w}, positive);
  add("adam_update", make_attrs(AdamAttrs{}), {w, w, w, w, one, one}, positive);
  add("adagrad_update", make_attrs(AdagradAttrs{}), {w, w, w, one, one}, positive);
  add("adadelta_update", make_attrs(AdadeltaAttrs{}), {w, w, w, w, one}, positive);
  add("lamb_direction", make_attrs(LambAttrs{}), {w, w, w, w, one}, positive);
  add("sgd_update", make_attrs(SgdAttrs{0.1}), {w, w, one, {DType::F64, {1}}, {DType::Bool, {}}}, positive);  // skipped

  const std::pair<DType, Shape> state{DType::I32, {4}};
  add("dropout", make_attrs(DropoutAttrs{0.3}), {{t, {1001}}, state}, [](int64_t i) { return whole(i + 3); });
  if (t == DType::F32) {
    add("rng_bits", make_attrs(ShapeAttrs{{1001}}), {state});
    add("rng_uniform", make_attrs(RngUniformAttrs{{1001}, -1, 2}), {state});
    add("rng_permutation", make_attrs(PermutationAttrs{77}), {state});
  }

  const MultiIndexAttrs index{{0, 2}, 0};
  const std::pair<DType, Shape> rows{DType::I32, {3, 4}}, columns{DType::I32, {4}};
  auto small = [](int64_t i) { return static_cast<double>(i % 5) - 2; };
  add("index_get", make_attrs(index), {{t, {5, 3, 6}}, rows, columns}, small);
  add("index_get_last", make_attrs(index), {{t, {5, 3, 6}}, rows, columns}, small);
  add("index_set", make_attrs(index), {{t, {5, 3, 6}}, {t, {3, 4, 3}}, rows, columns}, small);
  add("index_incr", make_attrs(index), {{t, {5, 3, 6}}, {t, {3, 4, 3}}, rows, columns}, small);
  add("wrap_index", make_attrs(WrapIndexAttrs{9, true, "take", "index"}), {{t, {9}}}, small);
  add("check_range", make_attrs(CheckRangeAttrs{-3, 3}), {{t, {9}}}, small);

  for (bool down : {false, true}) add("sort", make_attrs(SortAttrs{1, down}), {{t, {3, 17, 2}}}, mixed);
  add("concat", make_attrs(AxisAttrs{1}), {{t, {2, 3, 6}}, {t, {2, 5, 6}}}, mixed);
  add("transpose", make_attrs(PermAttrs{{2, 0, 1}}), {{t, {2, 3, 6}}}, mixed);
  add("set_slice", make_attrs(SliceAttrs{{1}, {2}, {-1}, {-2}}), {{t, {2, 3, 6}}, {t, {2, 2, 6}}}, mixed);
  add("full", make_attrs(FullAttrs{{3, 5}, 1.5, t}), {});
  return out;
}

}  // namespace mge::cuda_test
