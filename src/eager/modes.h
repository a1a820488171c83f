// What a thread is doing, in one word that dispatch reads once per op (DESIGN: "modes == 0 is the fast path"). A new
// thread starts with 0: autocast, gradient sessions and traces are of the thread that opened them.
#pragma once
#include "core/dtype.h"

namespace mge::mode {

constexpr uint32_t kGrad = 1;       // a gradient session may be open; set by GradSession
constexpr uint32_t kTrace = 2;      // a tracer listens
constexpr uint32_t kBackward = 4;   // backward walks: ops are told with the line of their forward op
constexpr uint32_t kRule = 8;       // inside a vjp or a decomposition: not the user's ops, so neither cast nor labelled
constexpr uint32_t kAutocast = 16;  // mixed precision (amp): inputs are cast as OpDef::amp says
// config._compute_mode "float32": sums are always made in float32, so nothing asks for it.
constexpr uint32_t kFloat32Sums = 32;
// Of a tensor, not of a thread: its memory-format label. Dispatch ORs the words of the inputs into its own.
constexpr uint32_t kNchw = 64;
constexpr uint32_t kNhwc = 128;
// Of a tensor, too: it is a variable of a graph that a program edits, and ops on it go there (NodeDispatch).
constexpr uint32_t kNode = 1u << 24;
/// The dtypes of autocast, each XORed with its default so that 0 means float16 and float32.
constexpr int kLowShift = 8, kHighShift = 16;
/// What a program sets (amp, config) and on which results depend: to be saved, restored, and put into keys of traces.
constexpr uint32_t kSettings = kAutocast | kFloat32Sums | 0xffu << kLowShift | 0xffu << kHighShift;

extern constinit thread_local uint32_t t_word;

inline DType low_dtype(uint32_t word) {
  return static_cast<DType>((word >> kLowShift & 0xff) ^ static_cast<uint32_t>(DType::F16));
}
inline DType high_dtype(uint32_t word) {
  return static_cast<DType>((word >> kHighShift & 0xff) ^ static_cast<uint32_t>(DType::F32));
}
inline uint32_t with_low_dtype(uint32_t word, DType t) {
  return (word & ~(0xffu << kLowShift)) | (static_cast<uint32_t>(t) ^ static_cast<uint32_t>(DType::F16)) << kLowShift;
}
inline uint32_t with_high_dtype(uint32_t word, DType t) {
  return (word & ~(0xffu << kHighShift)) | (static_cast<uint32_t>(t) ^ static_cast<uint32_t>(DType::F32)) << kHighShift;
}
/// The settings of this thread as one number; equal numbers: ops cast alike.
inline uint32_t settings() { return t_word & kSettings; }
inline void set_settings(uint32_t word) { t_word = (t_word & ~kSettings) | (word & kSettings); }

/// Takes bits away and sets others until it ends; other bits may change meanwhile.
class Scope {
 public:
  Scope(uint32_t clear, uint32_t set) : mask_(clear | set), before_(t_word & mask_) {
    t_word = (t_word & ~clear) | set;
  }
  ~Scope() { t_word = (t_word & ~mask_) | before_; }
  Scope(const Scope&) = delete;

 private:
  uint32_t mask_, before_;
};
/// Around a vjp or decompose rule: what it emits has the dtypes that the rule wrote.
class RuleScope : Scope {
 public:
  RuleScope() : Scope(kAutocast, kRule) {}
};

}  // namespace mge::mode
