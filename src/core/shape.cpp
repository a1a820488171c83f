#include "core/shape.h"

#include <algorithm>

#include "base/error.h"

namespace mge {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(dims.begin(), dims.size()) {}

Shape::Shape(const int64_t* dims, size_t n) {
  MGE_CHECK(n <= kMaxRank, Value, "shape: at most {} dimensions are supported; got {}.", kMaxRank, n);
  rank = static_cast<uint8_t>(n);
  std::copy(dims, dims + n, d);
}

Shape Shape::filled(int n, int64_t value) {
  Shape s;
  for (int i = 0; i < n; ++i) s.push_back(value);
  return s;
}

void Shape::push_back(int64_t v) {
  MGE_CHECK(rank < kMaxRank, Value, "shape: at most {} dimensions are supported; got {} and one more.", kMaxRank,
            str());
  d[rank++] = v;
}

void Shape::insert(int at, int64_t v) {
  push_back(v);
  std::rotate(d + at, d + rank - 1, d + rank);
}

void Shape::erase(int at) {
  std::copy(d + at + 1, d + rank, d + at);
  --rank;
}

std::string Shape::str() const {
  std::string s = "[";
  for (int i = 0; i < rank; ++i) s += (i ? "," : "") + std::to_string(d[i]);
  return s + "]";
}

void check_shape(const char* who, const Shape& s) {
  int64_t n = 1;
  for (int i = 0; i < s.rank; ++i) {
    MGE_CHECK(s.d[i] >= 0, Value, "{}: a dimension cannot be negative; got shape {}.", who, s.str());
    bool overflow = s.d[i] != 0 && __builtin_mul_overflow(n, s.d[i], &n);
    MGE_CHECK(!overflow && n <= PTRDIFF_MAX / 16, Value, "{}: the size of shape {} overflows.", who, s.str());
  }
}

Shape broadcast_shapes(const char* who, const Shape& a, const Shape& b) {
  if (a == b) return a;
  Shape out;
  out.rank = std::max(a.rank, b.rank);
  for (int i = 0; i < out.rank; ++i) {
    int ia = i - (out.rank - a.rank), ib = i - (out.rank - b.rank);
    int64_t da = ia < 0 ? 1 : a.d[ia], db = ib < 0 ? 1 : b.d[ib];
    MGE_CHECK(da == db || da == 1 || db == 1, Value,
              "{}: shapes {} and {} do not broadcast (axis {}: {} against {}). "
              "Sizes must be equal or 1; reshape or expand_dims one operand.",
              who, a.str(), b.str(), i - out.rank, da, db);
    out.d[i] = da == 1 ? db : da;
  }
  return out;
}

int normalize_axis(const char* who, int64_t axis, int rank) {
  MGE_CHECK(rank > 0, Value, "{}: axis {} is out of range for a tensor with 0 dimensions, which has no axis.", who,
            axis);
  MGE_CHECK(axis >= -rank && axis < rank, Value,
            "{}: axis {} is out of range for a tensor with {} dimensions; valid are {}..{}.", who, axis, rank, -rank,
            rank - 1);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Layout Layout::contiguous(const Shape& s) {
  Layout l;
  int64_t step = 1;
  for (int i = s.rank - 1; i >= 0; --i) {
    l.stride[i] = step;
    step *= s.d[i];
  }
  return l;
}

bool Layout::is_contiguous(const Shape& s) const {
  int64_t step = 1;
  bool dense = true;
  for (int i = s.rank - 1; i >= 0; --i) {
    if (s.d[i] == 0) return true;  // no elements, nothing to lay out
    if (s.d[i] != 1 && stride[i] != step) dense = false;
    step *= s.d[i];
  }
  return dense;
}

Layout Layout::channels_last(const Shape& s) {
  Layout l;
  int64_t step = s.d[1];
  l.stride[1] = 1;
  for (int i = s.rank - 1; i >= 0; --i) {
    if (i == 1) continue;
    l.stride[i] = step;
    step *= s.d[i];
  }
  return l;
}

bool Layout::is_channels_last(const Shape& s) const {
  if (s.rank < 3 || s.rank > 5) return false;
  if (s.d[1] != 1 && stride[1] != 1) return false;
  int64_t step = s.d[1];
  for (int i = s.rank - 1; i >= 0; --i) {
    if (i == 1) continue;
    if (s.d[i] != 1 && stride[i] != step) return false;
    step *= s.d[i];
  }
  return true;
}

bool Layout::same_strides(const Shape& s, const Layout& o) const {
  bool same = true;
  for (int i = 0; i < s.rank; ++i) {
    if (s.d[i] == 0) return true;  // no elements, nothing to lay out
    if (s.d[i] != 1 && stride[i] != o.stride[i]) same = false;
  }
  return same;
}

bool Layout::overlaps(const Shape& s) const {
  for (int i = 0; i < s.rank; ++i)
    if (s.d[i] > 1 && stride[i] == 0) return true;
  return false;
}

}  // namespace mge
