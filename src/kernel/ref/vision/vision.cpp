// Sampling and resizing of images. Plain loops over rows, channels in threads; every backward pass adds in one order.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/loss/softmax.h"
#include "op/vision/vision.h"

namespace mge {
namespace {

// The pixel of 0..n-1 that position p stands for; -1: the constant outside.
int64_t bordered(const std::string& mode, int64_t p, int64_t n) {
  if (p >= 0 && p < n) return p;
  if (mode == "replicate") return std::clamp<int64_t>(p, 0, n - 1);
  if (mode == "constant") return -1;
  if (mode == "wrap") return (p % n + n) % n;
  if (n == 1) return 0;
  int64_t edge = mode == "reflect_101" ? 1 : 0, period = 2 * (n - edge);
  p = ((p % period) + period) % period;
  return p < n ? p : period - 1 + edge - p;
}

// Points whose corners the planes of an image share: found once, and written side by side.
constexpr int64_t kPoints = 64;

// The pixels around a position and their weights. d*: derivative of the weight along x and y.
template <class T>
struct Corners {
  int count = 0;
  int64_t at[4];  // offset in the plane, -1 outside
  T weight[4], dx[4], dy[4];
};

template <class T, class A>
Corners<T> corners_at(const A& at, T x, T y, int64_t height, int64_t width) {
  Corners<T> c;
  // Positions so far away that they are no int64 any more mean nothing; NaN goes to the first pixel.
  constexpr T kFar = T(1 << 30);
  x = x != x ? T(0) : std::clamp(x, -kFar, kFar);
  y = y != y ? T(0) : std::clamp(y, -kFar, kFar);
  auto place = [&](int64_t row, int64_t col) {
    int64_t r = bordered(at.border, row, height), q = bordered(at.border, col, width);
    return r < 0 || q < 0 ? -1 : r * width + q;
  };
  if (at.nearest) {
    c.count = 1;
    c.at[0] = place(static_cast<int64_t>(std::round(y)), static_cast<int64_t>(std::round(x)));
    c.weight[0] = 1, c.dx[0] = c.dy[0] = 0;
    return c;
  }
  T x0 = std::floor(x), y0 = std::floor(y), wx = x - x0, wy = y - y0;
  c.count = 4;
  for (int i = 0; i < 4; ++i) {
    int r = i / 2, q = i % 2;
    T fy = r ? wy : 1 - wy, fx = q ? wx : 1 - wx;
    c.at[i] = place(static_cast<int64_t>(y0) + r, static_cast<int64_t>(x0) + q);
    c.weight[i] = fy * fx;
    c.dx[i] = q ? fy : -fy;
    c.dy[i] = r ? fx : -fx;
  }
  return c;
}

// f(image, point in the plane of the result, corners) for every point of map, images and rows on threads.
template <class T, class A, class F>
void each_point(const A& at, const TensorArg& map, int64_t height, int64_t width, F f) {
  const T* m = map.data<T>();
  int64_t points = map.shape[1] * map.shape[2];
  parallel_for(map.shape[0] * points, step_grain(32), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) f(i / points, i % points, corners_at<T>(at, m[2 * i], m[2 * i + 1], height, width));
  });
}

struct Remap {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<RemapAttrs>();
    const Shape &x = a.in[0].shape, &y = a.out[0].shape;
    const int64_t plane = x[2] * x[3], points = y[2] * y[3], blocks = (points + kPoints - 1) / kPoints;
    const T outside = static_cast<T>(at.value);
    const T* m = a.in[1].data<T>();
    parallel_for(x[0] * blocks, step_grain((16 + x[1]) * kPoints), [&](int64_t block, int64_t end) {
      Corners<T> corners[kPoints];
      for (; block < end; ++block) {
        const int64_t n = block / blocks, from = block % blocks * kPoints, count = std::min(kPoints, points - from);
        const T* pos = m + 2 * (n * points + from);
        for (int64_t p = 0; p < count; ++p) corners[p] = corners_at<T>(at, pos[2 * p], pos[2 * p + 1], x[2], x[3]);
        const T* src = a.in[0].data<T>() + n * x[1] * plane;
        T* dst = a.out[0].data<T>() + n * x[1] * points + from;
        for (int64_t ch = 0; ch < x[1]; ++ch, src += plane, dst += points)
          for (int64_t p = 0; p < count; ++p) {
            const Corners<T>& c = corners[p];
            T sum = 0;
            for (int i = 0; i < c.count; ++i) sum += c.weight[i] * (c.at[i] < 0 ? outside : src[c.at[i]]);
            dst[p] = sum;
          }
      }
    });
  }
};

struct RemapDx {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<RemapDxAttrs>();
    const Shape &x = a.out[0].shape, &y = a.in[0].shape;
    int64_t plane = x[2] * x[3], points = y[2] * y[3];
    T* gx = a.out[0].data<T>();
    std::fill_n(gx, a.out[0].numel(), T(0));
    const T* m = a.in[1].data<T>();
    parallel_for(x[0] * x[1], 1, [&](int64_t image, int64_t end) {  // planes on threads: points may share a pixel
      Corners<T> corners[kPoints];
      while (image < end) {
        const int64_t n = image / x[1], stop = std::min(end, (n + 1) * x[1]);
        for (int64_t from = 0; from < points; from += kPoints) {
          const int64_t count = std::min(kPoints, points - from);
          const T* pos = m + 2 * (n * points + from);
          for (int64_t p = 0; p < count; ++p) corners[p] = corners_at<T>(at, pos[2 * p], pos[2 * p + 1], x[2], x[3]);
          for (int64_t i = image; i < stop; ++i) {
            T* to = gx + i * plane;
            const T* gy = a.in[0].data<T>() + i * points + from;
            for (int64_t p = 0; p < count; ++p) {
              const Corners<T>& c = corners[p];
              for (int k = 0; k < c.count; ++k)
                if (c.at[k] >= 0) to[c.at[k]] += c.weight[k] * gy[p];
            }
          }
        }
        image = stop;
      }
    });
  }
};

struct RemapDmap {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<RemapAttrs>();
    const Shape &x = a.in[0].shape, &y = a.in[2].shape;
    int64_t plane = x[2] * x[3], points = y[2] * y[3];
    T outside = static_cast<T>(at.value);
    each_point<T>(at, a.in[1], x[2], x[3], [&](int64_t n, int64_t p, const Corners<T>& c) {
      double gx = 0, gy = 0;
      for (int64_t ch = 0; ch < x[1]; ++ch) {
        const T* src = a.in[0].data<T>() + (n * x[1] + ch) * plane;
        T g = a.in[2].data<T>()[(n * x[1] + ch) * points + p];
        for (int i = 0; i < c.count; ++i) {
          T v = c.at[i] < 0 ? outside : src[c.at[i]];
          gx += static_cast<double>(g * v * c.dx[i]);
          gy += static_cast<double>(g * v * c.dy[i]);
        }
      }
      T* dst = a.out[0].data<T>() + 2 * (n * points + p);
      dst[0] = static_cast<T>(gx), dst[1] = static_cast<T>(gy);
    });
  }
};

// ---- resize: each output element of one axis is a sum of a few input elements

template <class T>
struct Taps {
  int count = 1;
  std::vector<int64_t> at;  // count for each output element
  std::vector<T> weight;    // likewise
};

template <class T>
Taps<T> axis_taps(const std::string& mode, bool corners, int64_t in, int64_t out) {
  Taps<T> t;
  t.count = mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  for (int64_t j = 0; j < out; ++j) {
    if (mode == "nearest") {
      t.at.push_back(std::min(in - 1, j * in / out));
      t.weight.push_back(1);
      continue;
    }
    double scale = static_cast<double>(in) / static_cast<double>(out);
    double pos =
        corners ? (out > 1 ? static_cast<double>(j) * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0)
                : (static_cast<double>(j) + 0.5) * scale - 0.5;
    double base = std::floor(pos), f = pos - base;
    auto first = static_cast<int64_t>(base);
    auto add = [&](int64_t i, double w) {
      t.at.push_back(std::clamp<int64_t>(i, 0, in - 1));
      t.weight.push_back(static_cast<T>(w));
    };
    if (mode == "linear") {
      add(first, 1 - f);
      add(first + 1, f);
      continue;
    }
    constexpr double a = -0.75;
    auto inner = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    auto outer = [](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    add(first - 1, outer(f + 1));
    add(first, inner(f));
    add(first + 1, inner(1 - f));
    add(first + 2, outer(2 - f));
  }
  return t;
}

// One axis of x [outer,in,inner] -> y [outer,out,inner], or backwards: y's elements added to where they came from.
// The number of taps is a constant, so that an element is read, summed up and written once.
template <int kTaps, class T>
void resize_axis(const Taps<T>& t, const AxisGeom& g, int64_t out, const T* x, T* y) {
  constexpr size_t count = kTaps;
  const std::vector<T>& weight = t.weight;
  if (g.inner == 1) {  // the last axis: one line at a time
    parallel_for(g.outer, step_grain(0.5 * out), [&](int64_t row, int64_t end) {
      for (; row < end; ++row) {
        const T* src = x + row * g.size;
        T* dst = y + row * out;
        for (size_t j = 0, tap = 0; j < static_cast<size_t>(out); ++j, tap += count) {
          T sum = 0;
          for (size_t k = 0; k < count; ++k) sum += weight[tap + k] * src[t.at[tap + k]];
          dst[j] = kTaps == 1 ? src[t.at[tap]] : sum;
        }
      }
    });
    return;
  }
  parallel_for(g.outer * out, step_grain(0.5 * g.inner), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      const T* src = x + row / out * g.size * g.inner;
      T* dst = y + row * g.inner;
      auto first = static_cast<size_t>(row % out) * count;
      if constexpr (kTaps == 1) {
        std::copy_n(src + t.at[first] * g.inner, g.inner, dst);
        continue;
      }
      T w[count];
      const T* from[count];
      for (size_t k = 0; k < count; ++k) w[k] = weight[first + k], from[k] = src + t.at[first + k] * g.inner;
      for (int64_t i = 0; i < g.inner; ++i) {
        T sum = 0;
        for (size_t k = 0; k < count; ++k) sum += w[k] * from[k][i];
        dst[i] = sum;
      }
    }
  });
}
template <class T>
void resize_axis(const Taps<T>& t, const AxisGeom& g, int64_t out, const T* x, T* y) {
  (t.count == 1 ? resize_axis<1, T> : t.count == 2 ? resize_axis<2, T> : resize_axis<4, T>)(t, g, out, x, y);
}
template <class T>
void resize_axis_back(const Taps<T>& t, const AxisGeom& g, int64_t out, const T* gy, T* gx) {
  std::fill_n(gx, g.outer * g.size * g.inner, T(0));
  parallel_for(g.outer, step_grain(0.5 * g.inner * out), [&](int64_t o, int64_t end) {
    if (g.inner == 1) {  // the last axis: one line at a time
      for (; o < end; ++o) {
        const T* src = gy + o * out;
        T* dst = gx + o * g.size;
        for (size_t j = 0, tap = 0; j < static_cast<size_t>(out); ++j)
          for (int k = 0; k < t.count; ++k, ++tap) dst[t.at[tap]] += t.weight[tap] * src[j];
      }
      return;
    }
    for (; o < end; ++o)
      for (int64_t j = 0; j < out; ++j)
        for (size_t k = 0; k < static_cast<size_t>(t.count); ++k) {
          auto tap = static_cast<size_t>(j * t.count) + k;
          const T w = t.weight[tap];
          T* dst = gx + (o * g.size + t.at[tap]) * g.inner;
          const T* src = gy + (o * out + j) * g.inner;
          for (int64_t i = 0; i < g.inner; ++i) dst[i] += w * src[i];
        }
  });
}

// From one shape to another, axis by axis: the last first; backwards, where `from` is that of gy, the first first. Many
// planes go one by one, each through all axes while it is in the cache.
template <class T>
void resize_all(const Shape& from, const Shape& to, bool back, const std::string& mode, bool corners, const T* x,
                T* y) {
  const Shape &in = back ? to : from, &out = back ? from : to;
  const int64_t count = from[0] * from[1];
  if (count == 0) return;  // and sizes that no memory would hold
  std::vector<Taps<T>> taps;
  for (int axis = 2; axis < from.rank; ++axis) taps.push_back(axis_taps<T>(mode, corners, in[axis], out[axis]));
  auto planes = [&](int64_t first, int64_t count) {
    thread_local std::vector<T> memory[2];
    Shape now = from;
    now[0] = count, now[1] = 1;
    const T* src = x + first * (from.numel() / (from[0] * from[1]));
    int left = now.rank - 2;
    for (int step = 0; step < now.rank - 2; ++step) {
      const int axis = back ? 2 + step : now.rank - 1 - step;
      Shape next = now;
      next[axis] = back ? in[axis] : out[axis];
      T* dst = y + first * (to.numel() / (to[0] * to[1]));
      if (--left > 0) {
        auto& m = memory[step % 2];
        if (static_cast<int64_t>(m.size()) < next.numel()) m.resize(static_cast<size_t>(next.numel()));
        dst = m.data();
      }
      const AxisGeom g = axis_geom(back ? next : now, axis);
      const Taps<T>& t = taps[static_cast<size_t>(axis - 2)];
      if (back)
        resize_axis_back(t, g, now[axis], src, dst);
      else
        resize_axis(t, g, next[axis], src, dst);
      src = dst;
      now = next;
    }
  };
  if (count < 2 * num_threads()) return planes(0, count);
  parallel_for(count, step_grain((from.numel() + to.numel()) / count), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) planes(b, 1);
  });
}

struct Resize {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<ResizeAttrs>();
    resize_all<T>(a.in[0].shape, a.out[0].shape, false, at.mode, at.align_corners, a.in[0].data<T>(),
                  a.out[0].data<T>());
  }
};
struct ResizeBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<ResizeBwdAttrs>();
    resize_all<T>(a.in[0].shape, a.out[0].shape, true, at.mode, at.align_corners, a.in[0].data<T>(),
                  a.out[0].data<T>());
  }
};

}  // namespace

void register_ref_vision(KernelRegistry& r) {
  ref::add_floating<Remap>(r, "remap", "ref_remap");
  ref::add_floating<RemapDx>(r, "remap_dx", "ref_remap_dx");
  ref::add_floating<RemapDmap>(r, "remap_dmap", "ref_remap_dmap");
  ref::add_floating<Resize>(r, "resize", "ref_resize");
  ref::add_floating<ResizeBwd>(r, "resize_bwd", "ref_resize_bwd");
}

}  // namespace mge
