// A model file of MegEngine as it stands, whichever of the formats it is in: operators in order with their parameters,
// values and names. decode.h makes it from bytes, encode.h bytes from it; read.h and write.h go on to and come from our
// graph.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/meta.h"
#include "serial/container.h"
#include "serial/mgb/params.h"

namespace mge::serial::mgb {

/// Of a tensor: plain, an image of 4-channel pixels, or rows of few bits.
enum class Layout : uint8_t { Default = 1, Image = 2, LowBits = 3 };

struct Tensor {
  std::string name, comp_node;
  Meta meta;
  bool has_data = false;
  Bytes data;  // inside the file that was read, or of whoever writes
  Layout layout = Layout::Default;
  uint8_t layout_args[2] = {0, 0};  // align_axis; or bits and alignment
};

struct Opr {
  std::string type;  // as registered: "ConvolutionV2" of version 1, "Convolution" of version 2
  int version = 1;
  std::string name;
  std::vector<Param> params;      // the first is the operator's own
  std::vector<uint32_t> inputs;   // numbers of vars
  std::vector<uint32_t> outputs;  // and of those it makes
  std::string comp_node;
  compat::TypeParam output_dtype;
  std::vector<Tensor> tensors;
  std::vector<Bytes> blobs;
  int32_t priority = 0;
};

struct VarInfo {
  std::string name;
  bool has_shape = false;
  Shape shape;
};

struct OutputVar {
  uint32_t var = 0, original = 0;
  std::string name;  // an alias; empty: that of the var
};

struct File {
  int format = 2;             // 1 or 2
  bool versioned_ids = true;  // v1: MGBC; false: MGBS
  uint32_t version = 0;       // of the writer: 101300
  std::vector<Opr> oprs;
  std::vector<VarInfo> vars;
  std::vector<OutputVar> outputs;
  bool has_metadata = false, graph_modified = false;
  std::string user_info;
  uint64_t optimize_options = 0;
  uint64_t hash = 0;
};

}  // namespace mge::serial::mgb
