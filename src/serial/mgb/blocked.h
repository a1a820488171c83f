// Images in blocks of channels, which optimised files of MegEngine hold ([N,C/4,H,W,4] and others). The rules know
// NCHW: an operator in another format gets its operands in NCHW and what comes out is remembered as both, so that a
// chain of such operators is a chain of plain ones and the rearrangements between them are dead code.
#pragma once
#include <string>
#include <unordered_map>

#include "ir/builder.h"
#include "serial/mgb/file.h"

namespace mge::serial::mgb {

class Blocked {
 public:
  explicit Blocked(ir::GraphBuilder& b) : b_(b) {}

  /// The operator works on images in blocks.
  bool is_blocked(const Opr& o) const;
  /// Why such an operator cannot be translated; empty when it can, or is a plain one.
  std::string refuse(const Opr& o) const;
  /// Replaces operands in blocks by plain ones; true when the results are to go through leave.
  bool enter(const Opr& o, std::vector<Val>& in);
  /// The plain result of operator `o` in the format that the file has it in.
  Val leave(const Opr& o, const Val& plain);
  Val relayout(const Opr& o, const Val& x);
  /// A weight that the file holds as an image of 4-channel pixels.
  Val image(const Tensor& t, std::string name);
  /// As a user of the file gets it.
  Val plain(const Val& x) { return x; }

 private:
  ir::GraphBuilder& b_;
  std::unordered_map<ir::ValueId, Val> plain_;  // NCHW of values in blocks
};

}  // namespace mge::serial::mgb
