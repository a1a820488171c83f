// Batch and layer normalisation. Means and variances in double, two passes.
#include <cmath>

#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/norm/batch_norm.h"
#include "op/norm/layer_norm.h"

namespace mge {
namespace {

// f(index) over the elements of channel c.
template <class F>
void each_in_channel(const BatchNormGeom& g, int64_t c, F f) {
  for (int64_t n = 0; n < g.outer; ++n)
    for (int64_t i = 0; i < g.inner; ++i) f((n * g.channels + c) * g.inner + i);
}

struct BatchNormTrain {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    BatchNormGeom g = batch_norm_geom(a.in[0].shape);
    double eps = a.as<BatchNormAttrs>().eps, count = static_cast<double>(g.count());
    const T *x = a.in[0].data<T>(), *w = a.in[1].data<T>(), *b = a.in[2].data<T>();
    T* y = a.out[0].data<T>();
    for (int64_t c = 0; c < g.channels; ++c) {
      double mean = 0, var = 0;
      each_in_channel(g, c, [&](int64_t i) { mean += static_cast<double>(x[i]); });
      mean /= count;
      each_in_channel(g, c, [&](int64_t i) {
        double d = static_cast<double>(x[i]) - mean;
        var += d * d;
      });
      var /= count;
      double rstd = 1 / std::sqrt(var + eps);
      each_in_channel(g, c, [&](int64_t i) {
        y[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * rstd * static_cast<double>(w[c]) +
                              static_cast<double>(b[c]));
      });
      a.out[1].data<T>()[c] = static_cast<T>(mean);
      a.out[2].data<T>()[c] = static_cast<T>(var);
      a.out[3].data<T>()[c] = static_cast<T>(rstd);
    }
  }
};

struct BatchNormBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    BatchNormGeom g = batch_norm_geom(a.in[0].shape);
    double count = static_cast<double>(g.count());
    const T *x = a.in[0].data<T>(), *gy = a.in[1].data<T>(), *w = a.in[2].data<T>();
    T* gx = a.out[0].data<T>();
    for (int64_t c = 0; c < g.channels; ++c) {
      double mean = static_cast<double>(a.in[3].data<T>()[c]), rstd = static_cast<double>(a.in[4].data<T>()[c]);
      double gw = 0, gb = 0;
      each_in_channel(g, c, [&](int64_t i) {
        gb += static_cast<double>(gy[i]);
        gw += static_cast<double>(gy[i]) * (static_cast<double>(x[i]) - mean) * rstd;
      });
      double k = static_cast<double>(w[c]) * rstd;
      each_in_channel(g, c, [&](int64_t i) {
        double xhat = (static_cast<double>(x[i]) - mean) * rstd;
        gx[i] = static_cast<T>(k * (static_cast<double>(gy[i]) - gb / count - xhat * gw / count));
      });
      a.out[1].data<T>()[c] = static_cast<T>(gw);
      a.out[2].data<T>()[c] = static_cast<T>(gb);
    }
  }
};

// Each step rounded to `store`: the bits of the decomposition.
struct BatchNormInfer {
  template <class T>
  static void run(const KernelArgs& a, DType store) {
    BatchNormGeom g = batch_norm_geom(a.in[0].shape);
    auto r = [store](T v) { return ref::rounded(v, store); };
    T eps = r(static_cast<T>(a.as<BatchNormAttrs>().eps));
    const T* x = a.in[0].data<T>();
    T* y = a.out[0].data<T>();
    for (int64_t c = 0; c < g.channels; ++c) {
      auto at = [&](size_t i) { return a.in[i].data<T>()[c]; };
      T scale = r(at(1) / r(std::sqrt(r(at(4) + eps))));
      T shift = r(at(2) - r(at(3) * scale));
      each_in_channel(g, c, [&](int64_t i) { y[i] = r(x[i] * scale) + shift; });
    }
  }
};

struct LayerNorm {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<LayerNormAttrs>();
    LayerNormGeom g = layer_norm_geom(a.in[0].shape, at.n_axes);
    bool affine = a.in.size() == 3;
    for (int64_t row = 0; row < g.rows; ++row) {
      const T* x = a.in[0].data<T>() + row * g.size;
      T* y = a.out[0].data<T>() + row * g.size;
      double mean = 0, var = 0;
      for (int64_t i = 0; i < g.size; ++i) mean += static_cast<double>(x[i]);
      mean /= static_cast<double>(g.size);
      for (int64_t i = 0; i < g.size; ++i)
        var += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
      double rstd = 1 / std::sqrt(var / static_cast<double>(g.size) + at.eps);
      for (int64_t i = 0; i < g.size; ++i) {
        double v = (static_cast<double>(x[i]) - mean) * rstd;
        if (affine) v = v * static_cast<double>(a.in[1].data<T>()[i]) + static_cast<double>(a.in[2].data<T>()[i]);
        y[i] = static_cast<T>(v);
      }
      a.out[1].data<T>()[row] = static_cast<T>(mean);
      a.out[2].data<T>()[row] = static_cast<T>(rstd);
    }
  }
};

struct LayerNormBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    LayerNormGeom g = layer_norm_geom(a.in[0].shape, a.as<LayerNormBwdAttrs>().n_axes);
    const T* w = a.in.size() == 5 ? a.in[4].data<T>() : nullptr;
    double size = static_cast<double>(g.size);
    auto xhat = [&](int64_t row, int64_t i) {
      return (static_cast<double>(a.in[0].data<T>()[row * g.size + i]) - static_cast<double>(a.in[2].data<T>()[row])) *
             static_cast<double>(a.in[3].data<T>()[row]);
    };
    auto gy = [&](int64_t row, int64_t i) { return static_cast<double>(a.in[1].data<T>()[row * g.size + i]); };
    auto scaled = [&](int64_t row, int64_t i) { return gy(row, i) * (w ? static_cast<double>(w[i]) : 1.0); };
    for (int64_t row = 0; row < g.rows; ++row) {
      double sum = 0, dot = 0;
      for (int64_t i = 0; i < g.size; ++i) {
        sum += scaled(row, i);
        dot += scaled(row, i) * xhat(row, i);
      }
      for (int64_t i = 0; i < g.size; ++i)
        a.out[0].data<T>()[row * g.size + i] = static_cast<T>(
            static_cast<double>(a.in[3].data<T>()[row]) * (scaled(row, i) - sum / size - xhat(row, i) * dot / size));
    }
    if (!w) return;
    for (int64_t i = 0; i < g.size; ++i) {
      double gw = 0, gb = 0;
      for (int64_t row = 0; row < g.rows; ++row) {
        gw += gy(row, i) * xhat(row, i);
        gb += gy(row, i);
      }
      a.out[1].data<T>()[i] = static_cast<T>(gw);
      a.out[2].data<T>()[i] = static_cast<T>(gb);
    }
  }
};

// 16-bit images and float32 parameters go together.
const char* refuse_not_norm(const KernelArgs& a) {
  const DType t = a.in[0].dtype, p = a.in.back().dtype;
  const bool mixed = (t == DType::F16 || t == DType::BF16) && p == DType::F32;
  for (auto* list : {&a.in, &a.out})
    for (const TensorArg& x : *list)
      if (!is_float(x.dtype) || (x.dtype != t && !(mixed && x.dtype == p))) return "operands of several dtypes";
  return nullptr;
}
template <class K>
MGE_INLINED inline void add_norm(KernelRegistry& r, OpName op, const char* name) {
  r.add(op, KernelTier::Ref, Kernel{.name = name, .refuse = refuse_not_norm, .run = ref::run_floating<K>});
}

}  // namespace

void register_ref_norm(KernelRegistry& r) {
  add_norm<BatchNormTrain>(r, "batch_norm_train", "ref_batch_norm_train");
  add_norm<BatchNormBwd>(r, "batch_norm_bwd", "ref_batch_norm_bwd");
  ref::add_floating<BatchNormInfer>(r, "batch_norm_infer", "ref_batch_norm_infer");
  ref::add_floating<LayerNorm>(r, "layer_norm", "ref_layer_norm");
  ref::add_floating<LayerNormBwd>(r, "layer_norm_bwd", "ref_layer_norm_bwd");
}

}  // namespace mge
