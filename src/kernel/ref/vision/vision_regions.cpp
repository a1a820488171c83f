// Pooling of regions, and choosing boxes. Backward passes run image by image in the order of the regions.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/vision/vision.h"

namespace mge {
namespace {

// Which image a region names; an error when there is none.
template <class T>
int64_t image_of(const KernelArgs& a, const T* roi, int64_t k) {
  int64_t images = a.in[0].shape[0];
  auto n = roi[0] >= 0 && roi[0] < static_cast<T>(images) ? static_cast<int64_t>(roi[0]) : -1;
  MGE_CHECK(n >= 0, Index, "{}: region {} names image {}, but there are {}.", a.op->name, k, roi[0], images);
  return n;
}

// Up to four pixels of a plane and their weights; what lies outside counts as 0.
template <class T>
struct Sample {
  int count = 0;
  int64_t at[4];
  T weight[4];
};
template <class T>
Sample<T> sample_at(T y, T x, int64_t height, int64_t width) {
  Sample<T> s;
  if (!(y > -1 && y < static_cast<T>(height) && x > -1 && x < static_cast<T>(width))) return s;
  T y0 = std::floor(y), x0 = std::floor(x), fy = y - y0, fx = x - x0;
  for (int i = 0; i < 4; ++i) {
    int64_t row = static_cast<int64_t>(y0) + i / 2, col = static_cast<int64_t>(x0) + i % 2;
    if (row < 0 || row >= height || col < 0 || col >= width) continue;
    s.at[s.count] = row * width + col;
    s.weight[s.count++] = (i / 2 ? fy : 1 - fy) * (i % 2 ? fx : 1 - fx);
  }
  return s;
}

// The samples of one cell of one region, in row-major order.
template <class T>
std::vector<Sample<T>> cell_samples(const RoiAlignAttrs& at, const T* roi, int64_t ph, int64_t pw, int64_t height,
                                    int64_t width) {
  nn::Pair size = nn::pair_of(at.size), n = nn::pair_of(at.samples);
  T scale = static_cast<T>(at.scale), off = at.aligned ? T(0.5) : T(0);
  T x = roi[1] * scale - off, y = roi[2] * scale - off;
  T w = std::max(roi[3] * scale - off - x, T(0)), h = std::max(roi[4] * scale - off - y, T(0));
  T cw = w / static_cast<T>(size.w), ch = h / static_cast<T>(size.h);
  std::vector<Sample<T>> out;
  for (int64_t i = 0; i < n.h; ++i)
    for (int64_t j = 0; j < n.w; ++j)
      out.push_back(sample_at<T>(y + static_cast<T>(ph) * ch + (static_cast<T>(i) + T(0.5)) * ch / static_cast<T>(n.h),
                                 x + static_cast<T>(pw) * cw + (static_cast<T>(j) + T(0.5)) * cw / static_cast<T>(n.w),
                                 height, width));
  return out;
}

template <class T>
T value_of(const Sample<T>& s, const T* plane) {
  T v = 0;
  for (int i = 0; i < s.count; ++i) v += s.weight[i] * plane[s.at[i]];
  return v;
}
template <class T>
size_t largest(const std::vector<Sample<T>>& samples, const T* plane) {
  size_t best = 0;
  for (size_t i = 1; i < samples.size(); ++i)
    if (value_of(samples[i], plane) > value_of(samples[best], plane)) best = i;
  return best;
}

// f(region, image, cell in the plane of the result, row, column) over regions first..last
template <class T, class F>
void each_cell(const KernelArgs& a, int64_t k, int64_t end, nn::Pair size, F f) {
  for (; k < end; ++k) {
    int64_t n = image_of(a, a.in[1].data<T>() + k * 5, k);
    for (int64_t ph = 0; ph < size.h; ++ph)
      for (int64_t pw = 0; pw < size.w; ++pw) f(k, n, ph * size.w + pw, ph, pw);
  }
}

struct RoiAlign {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<RoiAlignAttrs>();
    const Shape& x = a.in[0].shape;
    nn::Pair size = nn::pair_of(at.size);
    int64_t plane = x[2] * x[3], cells = size.h * size.w;
    parallel_for(a.in[1].shape[0], 1, [&](int64_t first, int64_t end) {
      each_cell<T>(a, first, end, size, [&](int64_t k, int64_t n, int64_t cell, int64_t ph, int64_t pw) {
        auto samples = cell_samples(at, a.in[1].data<T>() + k * 5, ph, pw, x[2], x[3]);
        for (int64_t c = 0; c < x[1]; ++c) {
          const T* src = a.in[0].data<T>() + (n * x[1] + c) * plane;
          T v = 0;
          if (at.max)
            v = value_of(samples[largest(samples, src)], src);
          else
            for (auto& s : samples) v += value_of(s, src) / static_cast<T>(samples.size());
          a.out[0].data<T>()[(k * x[1] + c) * cells + cell] = v;
        }
      });
    });
  }
};

struct RoiAlignBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<RoiAlignAttrs>();
    const Shape& x = a.in[0].shape;
    nn::Pair size = nn::pair_of(at.size);
    int64_t plane = x[2] * x[3], cells = size.h * size.w;
    T* gx = a.out[0].data<T>();
    std::fill_n(gx, a.out[0].numel(), T(0));
    each_cell<T>(a, 0, a.in[1].shape[0], size, [&](int64_t k, int64_t n, int64_t cell, int64_t ph, int64_t pw) {
      auto samples = cell_samples(at, a.in[1].data<T>() + k * 5, ph, pw, x[2], x[3]);
      for (int64_t c = 0; c < x[1]; ++c) {
        int64_t at_plane = (n * x[1] + c) * plane;
        T g = a.in[2].data<T>()[(k * x[1] + c) * cells + cell];
        auto add = [&](const Sample<T>& s, T f) {
          for (int i = 0; i < s.count; ++i) gx[at_plane + s.at[i]] += f * s.weight[i];
        };
        if (at.max)
          add(samples[largest(samples, a.in[0].data<T>() + at_plane)], g);
        else
          for (auto& s : samples) add(s, g / static_cast<T>(samples.size()));
      }
    });
  }
};

// Rows and columns [y0,y1) x [x0,x1) of one cell.
struct Cell {
  int64_t y0, y1, x0, x1;
};
template <class T>
Cell pooled_cell(const RoiPoolAttrs& at, const T* roi, int64_t ph, int64_t pw, int64_t height, int64_t width) {
  nn::Pair size = nn::pair_of(at.size);
  auto edge = [&](int i) {
    double v = std::round(static_cast<double>(roi[i]) * at.scale);
    return static_cast<int64_t>(v != v ? 0.0 : std::clamp(v, -1e9, 1e9));  // far outside is far outside
  };
  auto part = [](int64_t lo, int64_t hi, int64_t i, int64_t n, int64_t limit, int64_t* a, int64_t* b) {
    double cell = static_cast<double>(std::max<int64_t>(hi - lo + 1, 1)) / static_cast<double>(n);
    auto clip = [&](double v) { return std::clamp<int64_t>(static_cast<int64_t>(v) + lo, 0, limit); };
    *a = clip(std::floor(static_cast<double>(i) * cell));
    *b = clip(std::ceil(static_cast<double>(i + 1) * cell));
  };
  Cell c;
  part(edge(1), edge(3), pw, size.w, width, &c.x0, &c.x1);
  part(edge(2), edge(4), ph, size.h, height, &c.y0, &c.y1);
  return c;
}
template <class T>
int64_t largest(const Cell& c, const T* plane, int64_t width) {
  int64_t best = -1;
  for (int64_t y = c.y0; y < c.y1; ++y)
    for (int64_t x = c.x0; x < c.x1; ++x)
      if (best < 0 || plane[y * width + x] > plane[best]) best = y * width + x;
  return best;
}

struct RoiPool {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<RoiPoolAttrs>();
    const Shape& x = a.in[0].shape;
    nn::Pair size = nn::pair_of(at.size);
    int64_t plane = x[2] * x[3], cells = size.h * size.w;
    parallel_for(a.in[1].shape[0], 1, [&](int64_t first, int64_t end) {
      each_cell<T>(a, first, end, size, [&](int64_t k, int64_t n, int64_t cell, int64_t ph, int64_t pw) {
        Cell c = pooled_cell(at, a.in[1].data<T>() + k * 5, ph, pw, x[2], x[3]);
        int64_t count = (c.y1 - c.y0) * (c.x1 - c.x0);
        for (int64_t ch = 0; ch < x[1]; ++ch) {
          const T* src = a.in[0].data<T>() + (n * x[1] + ch) * plane;
          double v = 0;
          if (count > 0 && at.max) v = static_cast<double>(src[largest(c, src, x[3])]);
          if (count > 0 && !at.max) {
            for (int64_t y = c.y0; y < c.y1; ++y) v = std::accumulate(src + y * x[3] + c.x0, src + y * x[3] + c.x1, v);
            v /= static_cast<double>(count);
          }
          a.out[0].data<T>()[(k * x[1] + ch) * cells + cell] = static_cast<T>(v);
        }
      });
    });
  }
};

struct RoiPoolBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<RoiPoolAttrs>();
    const Shape& x = a.in[0].shape;
    nn::Pair size = nn::pair_of(at.size);
    int64_t plane = x[2] * x[3], cells = size.h * size.w;
    T* gx = a.out[0].data<T>();
    std::fill_n(gx, a.out[0].numel(), T(0));
    each_cell<T>(a, 0, a.in[1].shape[0], size, [&](int64_t k, int64_t n, int64_t cell, int64_t ph, int64_t pw) {
      Cell c = pooled_cell(at, a.in[1].data<T>() + k * 5, ph, pw, x[2], x[3]);
      int64_t count = (c.y1 - c.y0) * (c.x1 - c.x0);
      if (count <= 0) return;
      for (int64_t ch = 0; ch < x[1]; ++ch) {
        T* dst = gx + (n * x[1] + ch) * plane;
        T g = a.in[2].data<T>()[(k * x[1] + ch) * cells + cell];
        if (at.max) {
          dst[largest(c, a.in[0].data<T>() + (n * x[1] + ch) * plane, x[3])] += g;
          continue;
        }
        for (int64_t y = c.y0; y < c.y1; ++y)
          for (int64_t i = c.x0; i < c.x1; ++i) dst[y * x[3] + i] += g / static_cast<T>(count);
      }
    });
  }
};

void run_nms(const KernelArgs& a) {
  const auto& at = a.as<NmsAttrs>();
  const float *boxes = a.in[0].data<float>(), *scores = a.in[1].data<float>();
  auto n = static_cast<size_t>(a.in[1].numel());
  std::vector<int32_t> order(n), kept;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) { return scores[i] > scores[j]; });
  auto area = [](const float* b) { return std::max(b[2] - b[0], 0.0f) * std::max(b[3] - b[1], 0.0f); };
  auto overlap = [&](const float* p, const float* q) {
    float w = std::min(p[2], q[2]) - std::max(p[0], q[0]), h = std::min(p[3], q[3]) - std::max(p[1], q[1]);
    float both = std::max(w, 0.0f) * std::max(h, 0.0f), all = area(p) + area(q) - both;
    return all > 0 ? static_cast<double>(both) / static_cast<double>(all) : 0.0;
  };
  for (int32_t i : order) {
    if (static_cast<int64_t>(kept.size()) >= at.max_output) break;
    bool free = std::none_of(kept.begin(), kept.end(), [&](int32_t k) {
      return overlap(boxes + 4 * int64_t{i}, boxes + 4 * int64_t{k}) > at.iou_thresh;
    });
    if (free) kept.push_back(i);
  }
  auto* out = a.out[0].data<int32_t>();
  std::fill(std::copy(kept.begin(), kept.end(), out), out + at.max_output, -1);
  *a.out[1].data<int32_t>() = static_cast<int32_t>(kept.size());
}

}  // namespace

void register_ref_regions(KernelRegistry& r) {
  ref::add_floating<RoiAlign>(r, "roi_align", "ref_roi_align");
  ref::add_floating<RoiAlignBwd>(r, "roi_align_bwd", "ref_roi_align_bwd");
  ref::add_floating<RoiPool>(r, "roi_pooling", "ref_roi_pooling");
  ref::add_floating<RoiPoolBwd>(r, "roi_pooling_bwd", "ref_roi_pooling_bwd");
  r.add("nms", KernelTier::Ref, Kernel{.name = "ref_nms", .run = run_nms});
}

}  // namespace mge
