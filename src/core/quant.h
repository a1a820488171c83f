// Quantisation of an element type: real = scale * (q - zero_point), one pair for the tensor or one per channel.
//   Quant t{0.05, 128};                                  // per tensor
//   Quant c = Quant::per_channel({0.1f, 0.2f}, {}, 0);   // weight [O,..]: one scale per slice of axis 0
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace mge {

/// One scale and zero point per channel; a channel is an index of `axis`, or of the `span` axes from it taken together.
struct QuantChannels {
  int axis = 0, span = 1;
  std::vector<float> scale;
  std::vector<int32_t> zero_point;
  bool operator==(const QuantChannels&) const = default;
};

/// Sixteen bytes without ownership, so a Meta copies as plain memory. The lists of channels are interned for the life
/// of the process: equal lists have one number, and a model has few.
struct Quant {
  double scale = 0;  // 0 = not quantised; of the first channel where there are several
  int32_t zero_point = 0;
  uint32_t list = 0;  // number of the interned channels; 0: per tensor

  bool operator==(const Quant&) const = default;
  bool per_tensor() const { return list == 0; }
  const QuantChannels& channels() const;  // only where !per_tensor()
  uint64_t hash(uint64_t h) const;

  /// `zero_point` empty: all 0. A Value error when the lists differ in length, are empty or hold no scales.
  static Quant per_channel(std::vector<float> scale, std::vector<int32_t> zero_point, int axis, int span = 1);
};

/// A dtype with its quantisation where it has one: what ops that give quantised tensors take as their attribute.
struct QType {
  DType dtype = DType::F32;
  Quant quant;
  bool operator==(const QType&) const = default;
};

std::string print_quant(const Quant& q);  // "(0.1,0)", "([0.1,0.2],[0,0],0,1)": scales, zero points, axis, span
std::string print_qtype(const QType& t);  // "qint8(0.1,0)", "float32"
QType parse_qtype(std::string_view who, std::string_view text);
/// Reads what print_quant writes, from the start of `text`, and moves it behind; false when it is something else.
bool parse_quant(std::string_view& text, Quant* out);

/// Quantisation after a reshape: channels stay where the axes they count are still there. A Value error otherwise.
Quant reshaped(const Quant& q, const Shape& from, const Shape& to);
/// The axes of each channel in order, after `perm` (out axis i = in axis perm[i]); a Value error when they part.
Quant transposed(const Quant& q, const int64_t* perm, int rank);

/// Least and largest stored integer of a quantised dtype.
struct QuantRange {
  int64_t lo, hi;
};
QuantRange quant_range(DType t);

/// 4-bit values lie two to a byte, the first in the low half; such tensors are dense. As int8 or uint8 and back.
inline bool is_packed(DType t) { return t == DType::QU4 || t == DType::QI4; }
inline DType unpacked(DType t) { return t == DType::QU4 ? DType::QU8 : t == DType::QI4 ? DType::QI8 : t; }
void unpack4(DType t, const void* packed, void* wide, int64_t n);
void pack4(const void* wide, void* packed, int64_t n);

}  // namespace mge
