// What processes do together. Every rank of a group calls the same op; blocks lie along axis 0, in the order of ranks.
// The attributes name the group and this process's place in it, so that shapes are known without asking anybody.
#pragma once
#include <string>

#include "op/attrs.h"

namespace mge {

/// The default is the group of this process alone, which always exists.
struct CollectiveAttrs {
  std::string group;
  int64_t rank = 0, size = 1;
  int64_t root = 0;          // of reduce, broadcast, gather and scatter
  std::string mode = "sum";  // of reductions: sum, prod, max, min
  static constexpr auto fields() {
    return field_list("group", &CollectiveAttrs::group, "rank", &CollectiveAttrs::rank, "size", &CollectiveAttrs::size,
                      "root", &CollectiveAttrs::root, "mode", &CollectiveAttrs::mode);
  }
};

struct PeerAttrs {
  std::string group;
  int64_t rank = 0, size = 1;
  int64_t peer = 0;
  Ints shape;  // of what is received
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return field_list("group", &PeerAttrs::group, "rank", &PeerAttrs::rank, "size", &PeerAttrs::size, "peer",
                      &PeerAttrs::peer, "shape", &PeerAttrs::shape, "dtype", &PeerAttrs::dtype);
  }
};

}  // namespace mge
