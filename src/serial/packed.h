// A packed model: a model file, encrypted or not, with settings and caches for whoever loads it.
//   if (is_packed(bytes)) { PackedModel p = unpack(bytes, path); … p.model … }
#pragma once
#include <string>
#include <vector>

#include "serial/container.h"

namespace mge::serial {

struct PackedModel {
  std::string name;
  std::string info_decryption = "NONE", info_parser = "LITE_default";
  std::string model_decryption = "NONE", cache_parser = "LITE_parse_cache";
  bool fast_run_cache = false;  // that is what `algo_policy` holds
  std::vector<uint8_t> info, algo_policy, binary_cache, model;
};

bool is_packed(Bytes file);
/// Env error that starts with `who` when the bytes are damaged.
PackedModel unpack(Bytes file, const std::string& who);
std::vector<uint8_t> pack(const PackedModel& p);

}  // namespace mge::serial
