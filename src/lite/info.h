// The settings inside a packed model: text that a parser, found by its name, turns into the configuration of a network.
// LITE_default reads JSON (docs/lite.md#packed-models); programs may register others.
#pragma once
#include <string>
#include <vector>

#include "lite/global.h"

namespace lite {

/// What a network takes over from a packed model.
struct ModelInfo {
  Config config;
  NetworkIO io;
  std::unordered_map<std::string, LiteAny> isolated;  // device_id, number_threads, enable_inplace_model, use_tensorrt
  std::string extra_info;
};

/// Value error for an unknown parser, or what the parser says.
void parse_info(const std::string& parser, const std::vector<uint8_t>& info, const std::string& model_name,
                const std::string& who, ModelInfo* out);
void add_info_parser(const std::string& name, const ParseInfoFunc& func);
/// The model's name in the JSON of LITE_default; empty when it has none.
std::string info_name(const std::vector<uint8_t>& info, const std::string& who);

}  // namespace lite
