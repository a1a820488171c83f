// Shapes: rank 0..8, any dim may be 0. Shape{2,3}; Shape{} is a scalar.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/hash.h"

namespace mge {

constexpr int kMaxRank = 8;

struct Shape {
  int64_t d[kMaxRank];
  uint8_t rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  Shape(const int64_t* dims, size_t n);
  /// A rank-`n` shape filled with `value`.
  static Shape filled(int n, int64_t value);

  int64_t& operator[](int i) { return d[i]; }
  int64_t operator[](int i) const { return d[i]; }
  const int64_t* begin() const { return d; }
  const int64_t* end() const { return d + rank; }
  int64_t back() const { return d[rank - 1]; }
  /// Throws a Value error when the rank would exceed kMaxRank.
  void push_back(int64_t v);
  void insert(int at, int64_t v);
  void erase(int at);
  /// Product of dims; the caller has validated it (see check_shape).
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= d[i];
    return n;
  }
  bool operator==(const Shape& o) const {
    if (rank != o.rank) return false;
    for (int i = 0; i < rank; ++i)
      if (d[i] != o.d[i]) return false;
    return true;
  }
  uint64_t hash(uint64_t h) const {
    h = hash_mix(h, rank);
    for (int i = 0; i < rank; ++i) h = hash_mix(h, static_cast<uint64_t>(d[i]));
    return h;
  }
  std::string str() const;  // "[2,3]"
};

/// Dims are >= 0 and the element count times 8 bytes fits 63 bits; otherwise a Value error naming `who`.
void check_shape(const char* who, const Shape& s);
/// NumPy broadcasting; Value error naming `who` when the shapes do not fit.
Shape broadcast_shapes(const char* who, const Shape& a, const Shape& b);
/// -rank <= axis < rank becomes 0..rank-1, otherwise an error naming `who`.
int normalize_axis(const char* who, int64_t axis, int rank);

/// Strides in elements plus a start offset in elements; 0-stride = broadcast, negative = reversed.
struct Layout {
  int64_t stride[kMaxRank];
  int64_t offset = 0;

  static Layout contiguous(const Shape& s);
  bool is_contiguous(const Shape& s) const;
  /// Dense with axis 1 innermost and the others in order: N,H,W,C for a logical [N,C,H,W]. Rank 3 to 5.
  static Layout channels_last(const Shape& s);
  bool is_channels_last(const Shape& s) const;
  /// Equal strides wherever a dim has more than one element.
  bool same_strides(const Shape& s, const Layout& o) const;
  /// Some element is read through two indices (a 0 stride over a dim > 1).
  bool overlaps(const Shape& s) const;
};

}  // namespace mge
