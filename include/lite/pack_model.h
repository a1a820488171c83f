// Packed models: a model with its settings and caches in one file.
//   lite::ModelPacker packer("net.mge", "net.lite", "info.json");
//   packer.set_header("AES_default");      what the bytes of net.mge are encrypted with already
//   packer.pack_model();
// A packed model packed again keeps what it holds, and fast-run caches come together.
#ifndef LITE_PACK_MODEL_H
#define LITE_PACK_MODEL_H

#include <cstdint>
#include <memory>
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
  ~ModelPacker();
  /// Names how model and info were encrypted; packing itself encrypts nothing.
  void set_header(std::string model_decryption_method = "NONE", std::string info_decryption_method = "NONE",
                  bool is_fast_run_cache = true);
  void pack_model();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lite

#endif
