// Pooling with the CPU's bits: the first maximum counts and NaN beats every number; sums over a window in double; where
// windows overlap, a pixel adds what it gets from them in their order. Images are [outer, h, w, inner]: inner is the
// channels where they lie together, of which a thread takes V, and 1 where planes do. Index counts elements; a maximum
// is told by its place in its window, by type Where.
#pragma once
struct Args {
  i64 total;  // packs of the result
  T* out;
  const T *x, *g, *v;  // g: what comes back to the windows; v: what they take
  Where* where;
  i64 inner, h, w, oh, ow, kh, kw, sh, sw, ph, pw, include_pad;
};
typedef Compute<T> C;
typedef Pack<T, V> Values;

// A pixel of the result: where pack i lies. `at` is its first element's place in an image, without the pixel's.
struct Pixel {
  Index outer, y, x, c;
  __device__ Pixel(const Args& a, Index i, Index h, Index w) {
    const Index packs = Index(a.inner) / V;
    Index q = i / packs;
    c = (i - q * packs) * V;
    i = q, q = i / w, x = i - q * w;
    i = q, q = i / h, y = i - q * h, outer = q;
  }
  __device__ Index in(const Args& a, Index h, Index w, Index row, Index column) const {
    return ((outer * h + row) * w + column) * Index(a.inner) + c;
  }
};
struct Window {
  int y0, y1, x0, x1, top, left;
  __device__ Window(const Args& a, int oy, int ox) : top(oy * int(a.sh) - int(a.ph)), left(ox * int(a.sw) - int(a.pw)) {
    const int bottom = top + int(a.kh), right = left + int(a.kw);
    y0 = top < 0 ? 0 : top, y1 = bottom > a.h ? int(a.h) : bottom;
    x0 = left < 0 ? 0 : left, x1 = right > a.w ? int(a.w) : right;
  }
  __device__ int count() const { return (y1 - y0) * (x1 - x0); }
};
__device__ inline Values values_at(const T* p, Index at) { return *reinterpret_cast<const Values*>(p + at); }

// The first maxima of a window and their places in it.
__device__ inline void best_of(const Args& a, const Pixel& o, const Window& win, C (&best)[V], int (&where)[V]) {
  bool first = true;
  for (int y = win.y0; y < win.y1; ++y)
    for (int x = win.x0; x < win.x1; ++x) {
      const Values v = values_at(a.x, o.in(a, a.h, a.w, y, x));
      const int here = (y - win.top) * int(a.kw) + (x - win.left);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const C c = load(v.v[k]);
        if (first || c > best[k] || (c != c && best[k] == best[k])) best[k] = c, where[k] = here;
      }
      first = false;
    }
}
// f(oy, ox) for the windows that a pixel lies in, in their order.
template <class F>
__device__ inline void each_window(const Args& a, const Pixel& p, F f) {
  const int y = int(p.y) + int(a.ph), x = int(p.x) + int(a.pw), low_y = y - int(a.kh) + 1, low_x = x - int(a.kw) + 1;
  int y1 = y / int(a.sh), x1 = x / int(a.sw);
  const int y0 = low_y <= 0 ? 0 : (low_y + int(a.sh) - 1) / int(a.sh);
  const int x0 = low_x <= 0 ? 0 : (low_x + int(a.sw) - 1) / int(a.sw);
  y1 = y1 >= a.oh ? int(a.oh) - 1 : y1, x1 = x1 >= a.ow ? int(a.ow) - 1 : x1;
  for (int oy = y0; oy <= y1; ++oy)
    for (int ox = x0; ox <= x1; ++ox) f(oy, ox);
}
#define MGE_EACH_PACK for (Index i = Index(thread_number()); i < Index(a.total); i += Index(thread_count()))

extern "C" __global__ void mge_max_pool(const __grid_constant__ Args a) {
  MGE_EACH_PACK {
    const Pixel o(a, i, a.oh, a.ow);
    C best[V];
    int where[V];
    best_of(a, o, Window(a, o.y, o.x), best, where);
    Values y;
    for (int k = 0; k < V; ++k) y.v[k] = Store<T>::from(best[k]);
    *reinterpret_cast<Values*>(a.out + i * V) = y;
  }
}
extern "C" __global__ void mge_max_pool_take(const __grid_constant__ Args a) {
  MGE_EACH_PACK {
    const Pixel o(a, i, a.oh, a.ow);
    const Window win(a, o.y, o.x);
    C best[V];
    int where[V];
    best_of(a, o, win, best, where);
    Values y;
    for (int k = 0; k < V; ++k)
      y.v[k] = a.v[o.in(a, a.h, a.w, win.top + where[k] / int(a.kw), win.left + where[k] % int(a.kw)) + k];
    *reinterpret_cast<Values*>(a.out + i * V) = y;
  }
}
// Where the maxima are, then what each pixel gets from its windows.
extern "C" __global__ void mge_max_pool_where(const __grid_constant__ Args a) {
  MGE_EACH_PACK {
    const Pixel o(a, i, a.oh, a.ow);
    C best[V];
    int where[V];
    best_of(a, o, Window(a, o.y, o.x), best, where);
    Pack<Where, V> w;
    for (int k = 0; k < V; ++k) w.v[k] = static_cast<Where>(where[k]);
    *reinterpret_cast<Pack<Where, V>*>(a.where + i * V) = w;
  }
}
extern "C" __global__ void mge_max_pool_bwd(const __grid_constant__ Args a) {
  MGE_EACH_PACK {
    const Pixel p(a, i, a.h, a.w);
    C sum[V] = {};
    each_window(a, p, [&](int oy, int ox) {
      const Index from = p.in(a, a.oh, a.ow, oy, ox);
      const Pack<Where, V> w = *reinterpret_cast<const Pack<Where, V>*>(a.where + from);
      const Values g = values_at(a.g, from);
      const Window win(a, oy, ox);
      const Where here = static_cast<Where>((int(p.y) - win.top) * int(a.kw) + (int(p.x) - win.left));
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (w.v[k] == here) sum[k] = sum[k] + load(g.v[k]);
    });
    Values y;
    for (int k = 0; k < V; ++k) y.v[k] = cast<T>(sum[k]);
    *reinterpret_cast<Values*>(a.out + i * V) = y;
  }
}
extern "C" __global__ void mge_avg_pool(const __grid_constant__ Args a) {
  MGE_EACH_PACK {
    const Pixel o(a, i, a.oh, a.ow);
    const Window win(a, o.y, o.x);
    double sum[V] = {};
    for (int y = win.y0; y < win.y1; ++y)
      for (int x = win.x0; x < win.x1; ++x) {
        const Values v = values_at(a.x, o.in(a, a.h, a.w, y, x));
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += static_cast<double>(load(v.v[k]));
      }
    const double count = static_cast<double>(a.include_pad ? a.kh * a.kw : win.count());
    Values y;
    for (int k = 0; k < V; ++k) y.v[k] = cast<T>(static_cast<C>(sum[k] / count));
    *reinterpret_cast<Values*>(a.out + i * V) = y;
  }
}
extern "C" __global__ void mge_avg_pool_bwd(const __grid_constant__ Args a) {
  MGE_EACH_PACK {
    const Pixel p(a, i, a.h, a.w);
    C sum[V] = {};
    each_window(a, p, [&](int oy, int ox) {
      const Values g = values_at(a.g, p.in(a, a.oh, a.ow, oy, ox));
      const C count = static_cast<C>(a.include_pad ? a.kh * a.kw : Window(a, oy, ox).count());
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] = sum[k] + load(g.v[k]) / count;
    });
    Values y;
    for (int k = 0; k < V; ++k) y.v[k] = cast<T>(sum[k]);
    *reinterpret_cast<Values*>(a.out + i * V) = y;
  }
}
