// Random cases of the shape ops with a naive meaning: which element of x becomes element `index` of the result.
// Used on layouts alone (tests/cpp/op) and on memory (tests/cpp/kernel).
#pragma once
#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "op/opdef.h"
#include "op/shape/shape_ops.h"

namespace mge {

using Index = std::vector<int64_t>;

/// Calls f for every index of `s` in row-major order (once, with an empty index, for a scalar).
inline void for_each_index(const Shape& s, const std::function<void(const Index&)>& f) {
  if (s.numel() == 0) return;
  Index at(s.rank, 0);
  for (;;) {
    f(at);
    int axis = s.rank - 1;
    while (axis >= 0 && ++at[static_cast<size_t>(axis)] == s[axis]) at[static_cast<size_t>(axis--)] = 0;
    if (axis < 0) return;
  }
}
inline int64_t linear(const Shape& s, const Index& at) {
  int64_t n = 0;
  for (int i = 0; i < s.rank; ++i) n = n * s[i] + at[static_cast<size_t>(i)];
  return n;
}
inline int64_t address(const Layout& l, const Index& at) {
  int64_t n = l.offset;
  for (size_t i = 0; i < at.size(); ++i) n += at[i] * l.stride[i];
  return n;
}

struct ShapeCase {
  std::string op;
  Attrs attrs;
  Shape in, out;
  std::function<int64_t(const Index&)> source;  // row-major position in x of the result's element
  std::string str() const { return op + " " + in.str() + (attrs ? " " + attrs->print() : "") + " -> " + out.str(); }
};

class ShapeCases {
 public:
  explicit ShapeCases(uint32_t seed) : rng_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }

  Shape shape(int max_rank = 5) {
    static const int64_t kSizes[] = {1, 1, 2, 2, 3, 4, 5, 6};
    Shape s;
    for (int64_t rank = below(max_rank + 1); rank > 0; --rank) s.push_back(below(30) == 0 ? 0 : kSizes[below(8)]);
    return s;
  }

  /// Permuted, gapped, reversed or broadcast strides; strides of size-1 dims are junk on purpose. All addresses lie in
  /// [0, *extent). `dense` leaves out broadcasting, so that no two elements share an address.
  Layout layout(const Shape& s, int64_t* extent, bool dense = false) {
    Layout l = Layout::contiguous(s);
    int64_t lo = 0, hi = 0;
    if (below(4) != 0) {
      std::vector<int> order(s.rank);
      for (int i = 0; i < s.rank; ++i) order[static_cast<size_t>(i)] = i;
      if (below(2)) std::shuffle(order.begin(), order.end(), rng_);
      bool gaps = below(2), signs = below(3) == 0, broadcasts = !dense && below(3) == 0;
      int64_t step = 1;
      for (size_t k = order.size(); k-- > 0;) {
        int i = order[k];
        l.stride[i] = step;
        step *= std::max<int64_t>(s[i], 1);
        if (gaps) step += below(3) * std::max<int64_t>(step, 1) * below(2) + below(2);
        if (signs && below(2)) l.stride[i] = -l.stride[i];
        if (broadcasts && below(2)) l.stride[i] = 0;
      }
    }
    for (int i = 0; i < s.rank; ++i) {
      if (s[i] == 1)
        l.stride[i] = std::vector<int64_t>{1, 0, 7, -3, l.stride[i ? i - 1 : 0]}[static_cast<size_t>(below(5))];
      if (s[i] > 1) (l.stride[i] < 0 ? lo : hi) += l.stride[i] * (s[i] - 1);
    }
    l.offset = -lo + below(3);
    *extent = l.offset + hi + 1;
    return l;
  }

  ShapeCase next() {
    switch (below(7)) {
      case 0:
        return reshape();
      case 1:
        return transpose();
      case 2:
        return broadcast_to();
      case 3:
        return expand_dims();
      case 4:
        return squeeze();
      case 5:
        return slice();
      default: {
        Shape s = shape();
        return {"copy", nullptr, s, s, [s](const Index& at) { return linear(s, at); }};
      }
    }
  }

  ShapeCase reshape() {
    Shape in = shape(), out = refactor(in);
    Ints want = to_ints(out);
    if (out.rank > 0 && out.numel() > 0 && below(3) == 0) want[static_cast<size_t>(below(out.rank))] = -1;
    return {"reshape", make_attrs(ShapeAttrs{want}), in, out, [out](const Index& at) { return linear(out, at); }};
  }
  ShapeCase transpose() {
    Shape in = shape();
    Ints perm;
    for (int i = 0; i < in.rank; ++i) perm.push_back(i);
    std::shuffle(perm.begin(), perm.end(), rng_);
    Shape out;
    for (int64_t p : perm) out.push_back(in[static_cast<int>(p)]);
    return {"transpose", make_attrs(PermAttrs{perm}), in, out, [in, perm](const Index& at) {
              Index x(at.size());
              for (size_t i = 0; i < at.size(); ++i) x[static_cast<size_t>(perm[i])] = at[i];
              return linear(in, x);
            }};
  }
  ShapeCase broadcast_to() {
    Shape in = shape(4), out = in;
    for (int i = 0; i < out.rank; ++i)
      if (out[i] == 1) out[i] = below(4);
    for (int64_t n = below(3); n > 0; --n) out.insert(0, 1 + below(3));
    return {"broadcast_to", make_attrs(ShapeAttrs{to_ints(out)}), in, out, [in, out](const Index& at) {
              Index x(in.rank);
              for (int i = 0; i < in.rank; ++i)
                x[static_cast<size_t>(i)] = in[i] == 1 ? 0 : at[static_cast<size_t>(i + out.rank - in.rank)];
              return linear(in, x);
            }};
  }
  ShapeCase expand_dims() {
    Shape in = shape(), out = in;
    Ints axes;
    for (int64_t n = below(3); n > 0; --n) {  // positions in the result: insert in ascending order
      axes.clear();
      out = in;
      int rank = in.rank + static_cast<int>(n);
      std::vector<int64_t> all(static_cast<size_t>(rank));
      for (int i = 0; i < rank; ++i) all[static_cast<size_t>(i)] = i;
      std::shuffle(all.begin(), all.end(), rng_);
      all.resize(static_cast<size_t>(n));
      auto sorted = all;
      std::sort(sorted.begin(), sorted.end());
      for (int64_t a : sorted) out.insert(static_cast<int>(a), 1);
      for (int64_t a : all) axes.push_back(below(2) ? a : a - rank);
      break;
    }
    return {"expand_dims", make_attrs(AxesAttrs{axes}), in, out, [out](const Index& at) { return linear(out, at); }};
  }
  ShapeCase squeeze() {
    Shape in = shape(), out;
    Ints axes;
    bool all = below(3) == 0;
    for (int i = 0; i < in.rank; ++i) {
      bool drop = in[i] == 1 && (all || below(2));
      if (drop && !all) axes.push_back(below(2) ? i : i - in.rank);
      if (!drop) out.push_back(in[i]);
    }
    if (!all && axes.empty()) {  // no axes means all of them
      out = Shape();
      for (int64_t d : in)
        if (d != 1) out.push_back(d);
    }
    return {"squeeze", make_attrs(AxesAttrs{axes}), in, out, [out](const Index& at) { return linear(out, at); }};
  }
  SliceAttrs slice_attrs(const Shape& in, Shape* out) {
    SliceAttrs a;
    *out = in;
    for (int i = 0; i < in.rank; ++i) {
      if (below(2)) continue;
      int64_t size = in[i], step = 1 + below(3), start = below(size + 1), stop = below(size + 1);
      if (size > 0 && below(3) == 0) {  // downwards; stop = -1 reaches element 0
        step = -step;
        start = below(size);
        stop = below(size + 1) - 1;
      }
      int64_t len = 0;
      for (int64_t k = start; step > 0 ? k < stop : k > stop; k += step) ++len;
      a.axes.push_back(i);
      a.starts.push_back(start);
      a.stops.push_back(stop);
      a.steps.push_back(step);
      (*out)[i] = len;
    }
    return a;
  }
  ShapeCase slice() {
    Shape in = shape(), out;
    SliceAttrs a = slice_attrs(in, &out);
    return {"slice", make_attrs(a), in, out, [in, a](const Index& at) {
              Index x = at;
              for (size_t k = 0; k < a.axes.size(); ++k) {
                auto ax = static_cast<size_t>(a.axes[k]);
                x[ax] = a.starts[k] + at[ax] * a.steps[k];
              }
              return linear(in, x);
            }};
  }

 private:
  /// Another shape with as many elements.
  Shape refactor(const Shape& in) {
    std::vector<int64_t> primes;
    for (int64_t d : in) {
      if (d == 0) return Shape{0, 1 + below(3)};
      for (int64_t p : {2, 3, 5})
        for (; d % p == 0; d /= p) primes.push_back(p);
    }
    if (below(2)) std::shuffle(primes.begin(), primes.end(), rng_);
    Shape out;
    size_t k = 0;
    while (k < primes.size()) {
      int64_t d = 1;
      for (int64_t take = out.rank == 5 ? static_cast<int64_t>(primes.size()) : below(3);
           take >= 0 && k < primes.size(); --take)
        d *= primes[k++];
      out.push_back(d);
    }
    for (int64_t ones = below(3); ones > 0 && out.rank < 8; --ones)
      out.insert(static_cast<int>(below(out.rank + 1)), 1);
    return out;
  }
  std::mt19937 rng_;
};

}  // namespace mge
