// Images in blocks of channels, which optimised files of MegEngine hold ([N,C/4,H,W,4] and others). The rules know
// NCHW: an operator in another format gets its operands in NCHW, and what comes out is remembered as both, so that a
// chain of such operators is a chain of plain ones and the rearrangements between them are dead code.
#pragma once
#include <string>
#include <unordered_map>

#include "ir/builder.h"
#include "serial/mgb/file.h"

namespace mge::serial::mgb {

/// How an image lies in memory.
struct ImageFormat {
  enum Kind : uint8_t { Plain, Last, Blocks, BatchInside, RowBlocks } kind = Plain;  // NCHW, NHWC, NCHWb, CHWN4, NHWCD4
  int64_t block = 1;
  bool operator==(const ImageFormat&) const = default;
};

class Blocked {
 public:
  explicit Blocked(ir::GraphBuilder& b) : b_(b) {}

  /// The operator works on images that are not in NCHW and has a rule for NCHW alone.
  static bool is_blocked(const Opr& o);
  /// Why such an operator cannot be translated; empty when it can, or is a plain one.
  static std::string refuse(const Opr& o);
  /// Replaces operands in blocks by plain ones; true when the results are to go through leave.
  bool enter(const Opr& o, std::vector<Val>& in);
  /// The plain result of operator `o` in the format that the file has it in.
  Val leave(const Val& plain);
  Val relayout(const Opr& o, const Val& x);

 private:
  struct Image {
    Val plain;
    ImageFormat format;
  };
  Val to_plain(const Val& x, ImageFormat f);
  Val from_plain(const Val& x, ImageFormat f);

  ir::GraphBuilder& b_;
  std::unordered_map<ir::ValueId, Image> known_;  // values in blocks and what they are
  ImageFormat out_;                               // of the operator that was entered
};

}  // namespace mge::serial::mgb
