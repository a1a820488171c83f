#include "lite/pack_model.h"

#include "base/features.h"
#include "base/write_file.h"
#include "lite/algo_cache.h"
#include "lite/crypt/crypt.h"
#include "lite/error.h"
#include "lite/info.h"
#include "serial/file.h"
#include "serial/packed.h"

namespace lite {
namespace {

std::vector<uint8_t> read_file(const std::string& path) {
  if (path.empty()) return {};
  const mge::serial::File f = mge::serial::open_file(path);
  return {f.bytes.begin(), f.bytes.end()};
}

constexpr std::string_view kNoInfo = R"({"valid":false})";

}  // namespace

struct LITE_HIDDEN ModelPacker::Impl {
  std::vector<uint8_t> model, info, algo_policy, binary_cache;
  std::string path;
  std::string model_decryption = "NONE", info_decryption = "NONE";
  bool fast_run_cache = true;

  mge::serial::PackedModel packed() const {
    mge::serial::PackedModel p;
    if (mge::serial::is_packed(model)) {  // again: what it holds stays, caches come together
      p = mge::serial::unpack(model, "ModelPacker");
      if (!info.empty()) p.info = info;
      if (!binary_cache.empty()) p.binary_cache = binary_cache;
      const AlgoCache old = parse_cache(p.algo_policy, "ModelPacker"), more = parse_cache(algo_policy, "ModelPacker");
      if (!algo_policy.empty()) {
        const std::string all = write_cache(merge_caches(old, more));
        p.algo_policy.assign(all.begin(), all.end());
        p.fast_run_cache = true;
      }
      return p;
    }
    p.model = model;
    p.info = info;
    p.info_decryption = info_decryption;
    if (info.empty()) {
      p.info.assign(kNoInfo.begin(), kNoInfo.end());
      p.info_decryption = "NONE";
    }
    p.name = info_name(decrypt(p.info_decryption, p.info, "ModelPacker: info"), "ModelPacker: info");
    p.model_decryption = model_decryption;
    if (!algo_policy.empty() && fast_run_cache) parse_cache(algo_policy, "ModelPacker: algo policy");
    p.algo_policy = algo_policy;
    p.binary_cache = binary_cache;
    p.fast_run_cache = fast_run_cache;
    return p;
  }
};

ModelPacker::ModelPacker(std::string model_path, std::string packed_model_path, std::string info_data_path,
                         std::string info_algo_policy_path, std::string info_binary_cache_path)
    : impl_(guarded([&] {
        return std::make_shared<Impl>(Impl{read_file(model_path), read_file(info_data_path),
                                           read_file(info_algo_policy_path), read_file(info_binary_cache_path),
                                           packed_model_path});
      })) {}
ModelPacker::ModelPacker(std::vector<uint8_t> model_data, std::string packed_model_path, std::vector<uint8_t> info_data,
                         std::vector<uint8_t> info_algo_policy_data, std::vector<uint8_t> info_binary_cache_data)
    : impl_(std::make_shared<Impl>(Impl{std::move(model_data), std::move(info_data), std::move(info_algo_policy_data),
                                        std::move(info_binary_cache_data), std::move(packed_model_path)})) {}
ModelPacker::~ModelPacker() = default;

void ModelPacker::set_header(std::string model_decryption_method, std::string info_decryption_method,
                             bool is_fast_run_cache) {
  impl_->model_decryption = std::move(model_decryption_method);
  impl_->info_decryption = std::move(info_decryption_method);
  impl_->fast_run_cache = is_fast_run_cache;
}

void ModelPacker::pack_model() {
  guarded([&] {
    mge::require("writing", "lite: ModelPacker");
    MGE_CHECK(!impl_->model.empty(), Value, "ModelPacker: the model is empty.");
    MGE_CHECK(!impl_->path.empty(), Value, "ModelPacker: there is no name of a file to write.");
    const std::vector<uint8_t> bytes = mge::serial::pack(impl_->packed());
    mge::replace_file(impl_->path, {}, bytes.data(), bytes.size());
  });
}

}  // namespace lite
