// Our graph in MegEngine's own formats, for its runtime. An op that they cannot express is an error that names all
// such ops of the graph with their lines.
//   std::vector<uint8_t> bytes = mgb::write(graph, info, {.version = 2});
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "serial/model.h"

namespace mge::serial::mgb {

struct WriteOptions {
  int version = 2;        // 2: FBS_V2; 1: FBS (MGBC)
  bool older = false;     // with 1: for readers of version 8.14 (MGBS); newer ops become what they are made of
  int keep_var_name = 1;  // 0: none, 1: outputs, 2: all; the second format always names all of them
  bool keep_op_name = false;
  bool keep_param_name = false;
  bool keep_opr_priority = false;
  bool metadata = true;
  std::string user_info = std::string("\x80\x04\x8c\x00\x94.", 6);  // a pickle: of an empty string
  uint64_t optimize_options = 0;
};

struct WriteReport {
  size_t n_ops = 0, tensor_value_bytes = 0;
  std::vector<std::string> opr_types, dtypes;  // each once
  std::vector<std::string> params;             // names of constants
  uint64_t hash = 0;
};

/// `info.tests` go into the test-case wrapper. Their outputs are compared inside of the graph (AssertEqual) unless
/// there are none or max_error is negative.
std::vector<uint8_t> write(const Graph& g, const ModelInfo& info, const WriteOptions& opt,
                           WriteReport* report = nullptr);

}  // namespace mge::serial::mgb
