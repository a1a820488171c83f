// Packed models: a model with its settings and caches in one file. Not supported in this build yet; pack_model() says
// so.
#ifndef LITE_PACK_MODEL_H
#define LITE_PACK_MODEL_H

#include <cstdint>
#include <string>
#include <vector>

#include "lite/macro.h"

namespace lite {

class LITE_API ModelPacker {
 public:
  ModelPacker(std::string model_path, std::string packed_model_path, std::string info_data_path = "",
              std::string info_algo_policy_path = "", std::string info_binary_cache_path = "");
  ModelPacker(std::vector<uint8_t> model_data, std::string packed_model_path, std::vector<uint8_t> info_data = {},
              std::vector<uint8_t> info_algo_policy_data = {}, std::vector<uint8_t> info_binary_cache_data = {});
  void set_header(std::string model_decryption_method = "NONE", std::string info_decryption_method = "NONE",
                  bool is_fast_run_cache = true);
  void pack_model();
};

}  // namespace lite

#endif
