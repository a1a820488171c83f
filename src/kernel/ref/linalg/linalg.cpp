// Small dense linear algebra, one matrix per thread, computed in double whatever the dtype.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/linalg/linalg.h"

namespace mge {
namespace {

using Doubles = std::vector<double>;

// Gauss-Jordan on [a | y], y starting as the identity; false when a pivot is 0.
bool invert(double* a, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = i == j;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
    if (a[pivot * n + k] == 0) return false;
    if (pivot != k) {
      std::swap_ranges(a + k * n, a + k * n + n, a + pivot * n);
      std::swap_ranges(y + k * n, y + k * n + n, y + pivot * n);
    }
    double scale = 1 / a[k * n + k];
    for (int64_t j = 0; j < n; ++j) a[k * n + j] *= scale, y[k * n + j] *= scale;
    parallel_for(n, step_grain(0.05 * n), [&](int64_t i, int64_t end) {  // rows are independent
      for (; i < end; ++i) {
        double f = a[i * n + k];
        if (i == k || f == 0) continue;
        for (int64_t j = k; j < n; ++j) a[i * n + j] -= f * a[k * n + j];
        for (int64_t j = 0; j < n; ++j) y[i * n + j] -= f * y[k * n + j];
      }
    });
  }
  return true;
}

struct Matinv {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const Shape& s = a.in[0].shape;
    int64_t n = s.back(), size = n * n, count = size ? s.numel() / size : 0;
    parallel_for(count, step_grain(0.2 * size * n), [&](int64_t b, int64_t end) {
      Doubles m(static_cast<size_t>(size)), y(static_cast<size_t>(size));
      for (; b < end; ++b) {
        std::copy_n(a.in[0].data<T>() + b * size, size, m.begin());
        MGE_CHECK(invert(m.data(), y.data(), n), Value, "matinv: matrix {} of {} is singular; x {}.", b, count,
                  s.str());
        std::transform(y.begin(), y.end(), a.out[0].data<T>() + b * size, [](double v) { return static_cast<T>(v); });
      }
    });
  }
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
void rotate(double* p, double* q, int64_t n, double c, double s) {
  for (int64_t i = 0; i < n; ++i) {
    double x = p[i], y = q[i];
    p[i] = c * x - s * y;
    q[i] = s * x + c * y;
  }
}

// Turns `count` rows of length `len` until they are orthogonal, the same turns applied to the rows of v.
void jacobi(double* w, double* v, int64_t count, int64_t len) {
  constexpr double kEps = 1e-15;
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool turned = false;
    for (int64_t p = 0; p + 1 < count; ++p)
      for (int64_t q = p + 1; q < count; ++q) {
        double *x = w + p * len, *y = w + q * len;
        double a = dot(x, x, len), b = dot(y, y, len), g = dot(x, y, len);
        if (!(std::abs(g) > kEps * std::sqrt(a * b))) continue;
        turned = true;
        double zeta = (b - a) / (2 * g);
        double t = std::copysign(1 / (std::abs(zeta) + std::sqrt(1 + zeta * zeta)), zeta);
        double c = 1 / std::sqrt(1 + t * t), s = c * t;
        rotate(x, y, len, c, s);
        rotate(v + p * count, v + q * count, count, c, s);
      }
    if (!turned) return;
  }
}

// Fills rows have..want-1 of u (length n) so that all are orthonormal: unit vectors, minus what the others cover. Rows
// marked bad are filled anew.
void complete(Doubles& u, std::vector<bool>& good, int64_t n) {
  auto rows = static_cast<int64_t>(good.size());
  int64_t next = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double* x = u.data() + r * n;
    while (!good[static_cast<size_t>(r)]) {
      MGE_ASSERT(next < n, "svd: no vector is left to complete a basis of {}", n);
      std::fill_n(x, n, 0.0);
      x[next++] = 1;
      for (int pass = 0; pass < 2; ++pass)  // twice is enough (Kahan)
        for (int64_t o = 0; o < rows; ++o)
          if (good[static_cast<size_t>(o)]) {
            double along = dot(x, u.data() + o * n, n);
            for (int64_t i = 0; i < n; ++i) x[i] -= along * u[static_cast<size_t>(o * n + i)];
          }
      double length = std::sqrt(dot(x, x, n));
      if (length < 1e-6) continue;
      for (int64_t i = 0; i < n; ++i) x[i] /= length;
      good[static_cast<size_t>(r)] = true;
    }
  }
}

// Rows of `w` [k,len], k <= len: w = (left^T) * diag(s) * right with left [k,k] and right [rows,len] by rows.
struct Svd1 {
  Doubles left, s, right;
};
Svd1 decompose(Doubles w, int64_t k, int64_t len, bool full) {
  Doubles turns(static_cast<size_t>(k * k));
  for (int64_t i = 0; i < k; ++i) turns[static_cast<size_t>(i * k + i)] = 1;
  jacobi(w.data(), turns.data(), k, len);
  Doubles length(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i)
    length[static_cast<size_t>(i)] = std::sqrt(dot(w.data() + i * len, w.data() + i * len, len));
  std::vector<int64_t> order(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return length[static_cast<size_t>(i)] > length[static_cast<size_t>(j)];
  });
  Svd1 r;
  r.s.resize(static_cast<size_t>(k));
  r.left.resize(static_cast<size_t>(k * k));
  int64_t rows = full ? len : k;
  r.right.resize(static_cast<size_t>(rows * len));
  std::vector<bool> good(static_cast<size_t>(rows));
  double largest = k ? length[static_cast<size_t>(order[0])] : 0;
  for (int64_t i = 0; i < k; ++i) {
    auto from = static_cast<size_t>(order[static_cast<size_t>(i)]);
    double s = length[from];
    bool usable = s > largest * 1e-15 && s > 0;
    r.s[static_cast<size_t>(i)] = s;
    std::copy_n(turns.begin() + static_cast<int64_t>(from) * k, k, r.left.begin() + i * k);
    good[static_cast<size_t>(i)] = usable;
    for (int64_t j = 0; usable && j < len; ++j)
      r.right[static_cast<size_t>(i * len + j)] = w[from * static_cast<size_t>(len) + static_cast<size_t>(j)] / s;
  }
  complete(r.right, good, len);
  return r;
}

struct Svd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const Shape& shape = a.in[0].shape;
    int64_t m = shape[shape.rank - 2], n = shape[shape.rank - 1], k = std::min(m, n);
    bool full = a.as<SvdAttrs>().full_matrices;
    int64_t ucols = full ? m : k, vrows = full ? n : k, count = 1;
    for (int i = 0; i + 2 < shape.rank; ++i) count *= shape[i];
    bool wide = m <= n;  // the shorter side is turned
    parallel_for(count, 1, [&](int64_t b, int64_t end) {
      for (; b < end; ++b) {
        const T* x = a.in[0].data<T>() + b * m * n;
        Doubles w(static_cast<size_t>(m * n));
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j)
            w[static_cast<size_t>(wide ? i * n + j : j * m + i)] = static_cast<double>(x[i * n + j]);
        Svd1 r = decompose(std::move(w), k, std::max(m, n), full);
        const Doubles &u = wide ? r.left : r.right, &v = wide ? r.right : r.left;  // by rows: u[c*m+i], v[c*n+j]
        T *ps = a.out[0].data<T>() + b * k, *pu = a.out[1].data<T>() + b * m * ucols,
          *pv = a.out[2].data<T>() + b * vrows * n;
        Doubles sign(static_cast<size_t>(std::max(ucols, vrows)), 1.0);
        for (int64_t c = 0; c < k; ++c) {  // the largest entry of each column of u is positive
          const double* col = u.data() + c * m;
          const double* top =
              std::max_element(col, col + m, [](double p, double q) { return std::abs(p) < std::abs(q); });
          if (m && *top < 0) sign[static_cast<size_t>(c)] = -1;
        }
        for (int64_t c = 0; c < ucols; ++c)
          for (int64_t i = 0; i < m; ++i)
            pu[i * ucols + c] = static_cast<T>(u[static_cast<size_t>(c * m + i)] * sign[static_cast<size_t>(c)]);
        for (int64_t c = 0; c < vrows; ++c)
          for (int64_t j = 0; j < n; ++j)
            pv[c * n + j] = static_cast<T>(v[static_cast<size_t>(c * n + j)] * sign[static_cast<size_t>(c)]);
        for (int64_t c = 0; c < k; ++c) ps[c] = static_cast<T>(r.s[static_cast<size_t>(c)]);
      }
    });
  }
};

// One bit pattern on the diagonal, zero bytes elsewhere.
void run_eye(const KernelArgs& a) {
  const auto& at = a.as<EyeAttrs>();
  size_t bytes = dtype_size(a.out[0].dtype);
  uint64_t one = 1;
  switch (a.out[0].dtype) {
    case DType::F64:
      one = 0x3FF0000000000000u;
      break;
    case DType::F32:
      one = 0x3F800000u;
      break;
    case DType::F16:
      one = 0x3C00u;
      break;
    case DType::BF16:
      one = 0x3F80u;
      break;
    default:
      break;
  }
  char* y = a.out[0].data<char>();
  std::fill_n(y, static_cast<size_t>(at.rows * at.cols) * bytes, 0);
  if (at.k <= -at.rows || at.k >= at.cols) return;  // k may be any number: no sum of it unless the diagonal is inside
  for (int64_t i = 0; i < at.rows; ++i)
    if (int64_t j = i + at.k; j >= 0 && j < at.cols)
      std::memcpy(y + static_cast<size_t>(i * at.cols + j) * bytes, &one, bytes);  // little endian
}

}  // namespace

void register_ref_linalg(KernelRegistry& r) {
  ref::add_floating<Matinv>(r, "matinv", "ref_matinv");
  ref::add_floating<Svd>(r, "svd", "ref_svd");
  r.add("eye", KernelTier::Ref, Kernel{.name = "ref_eye", .run = run_eye});
}

}  // namespace mge
