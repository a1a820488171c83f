#pragma once
#include <string>

#include "op/attrs.h"

namespace mge {

struct CopyToAttrs {
  std::string device;   // comp node as the user named it: "cpu1", "xpux:0"
  bool borrow = false;  // share the memory: both comp nodes must be streams of one device
  static constexpr auto fields() { return field_list("device", &CopyToAttrs::device, "borrow", &CopyToAttrs::borrow); }
};

}  // namespace mge
