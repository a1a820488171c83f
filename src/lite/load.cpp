#include "lite/load.h"

#include <cstring>
#include <new>

#include "base/features.h"
#include "lite/algo_cache.h"
#include "lite/crypt/crypt.h"
#include "lite/engine.h"
#include "lite/error.h"
#include "serial/file.h"
#include "serial/packed.h"

namespace lite {
namespace {

using Bytes = std::span<const uint8_t>;
namespace serial = mge::serial;

// A cipher that works on words leaves zeros behind a model; ours are refused with anything behind them.
size_t without_padding(Bytes b) {
  size_t end = b.size();
  while (end > 0 && b.size() - end < 16 && b[end - 1] == 0) --end;
  size_t at = 0;
  serial::Header h;
  while (b.size() - at >= sizeof h && std::memcmp(b.data() + at, serial::kMagic, sizeof serial::kMagic) == 0) {
    std::memcpy(&h, b.data() + at, sizeof h);
    if (h.file_size == 0 || h.file_size > b.size() - at) return b.size();
    at += h.file_size;
  }
  return at > 0 && end <= at && b.size() - at < 16 ? at : b.size();
}

// Where constants may be used in place.
ModelBytes aligned_copy(Bytes b, const std::string& who) {
  const auto align = std::align_val_t(serial::kAlign);
  std::shared_ptr<void> owner(::operator new(b.size() + 1, align), [align](void* p) { ::operator delete(p, align); });
  if (!b.empty()) std::memcpy(owner.get(), b.data(), b.size());
  return {{static_cast<const uint8_t*>(owner.get()), b.size()}, owner, false, who};
}

serial::LoadedModel read(const ModelBytes& m, const Config& config) {
  serial::ReadOptions opt = read_options();
  opt.compressed = config.has_compression;
  if (!m.owner) return serial::read_model(m.bytes, m.who, opt);
  serial::LoadedModel out = serial::read_model(m.bytes, m.owner, m.who, opt);
  out.mapped = m.mapped;
  return out;
}

serial::LoadedModel decrypt_and_read(const ModelBytes& m, const std::string& method, const Config& config) {
  if (method.empty() || method == "NONE") return read(m, config);
  mge::require("ciphers", "lite: an encrypted model");
  mge::note("ciphers");
  const std::vector<uint8_t> plain = decrypt(method, m.bytes, m.who);
  const Bytes body(plain.data(), without_padding(plain));
  return read(aligned_copy(body, m.who), config);
}

}  // namespace

ModelBytes bytes_of_file(const std::string& path) {
  serial::File f = serial::open_file(path);
  return {f.bytes, std::move(f.owner), f.mapped, path};
}

ModelBytes bytes_in_memory(const void* mem, size_t size) {
  MGE_CHECK(mem || size == 0, Value, "lite: the model in memory is a null pointer.");
  return {{static_cast<const uint8_t*>(mem), size}, nullptr, false, "model in memory"};
}

Loaded load_bytes(const ModelBytes& source, const Config& config, const NetworkIO& io, bool configure) {
  Loaded out;
  out.info.config = config;
  out.info.io = io;
  if (!serial::is_packed(source.bytes)) {
    out.model = decrypt_and_read(source, config.bare_model_cryption_name, config);
    return out;
  }
  mge::require("packs", "lite: a packed model");
  mge::note("packs");
  const serial::PackedModel pack = serial::unpack(source.bytes, source.who);
  out.packed = true;
  ModelInfo parsed = out.info;
  if (!pack.info.empty())
    parse_info(pack.info_parser, decrypt(pack.info_decryption, pack.info, source.who + " (info)"), pack.name,
               source.who, &parsed);
  out.info.extra_info = parsed.extra_info;
  if (configure) {
    out.info = std::move(parsed);
    if (!pack.algo_policy.empty()) {
      mge::require("fast_run", "lite: the cache in a packed model");
      mge::note("fast_run");
      MGE_CHECK(pack.cache_parser == "LITE_parse_cache", Value,
                "{}: its cache is for the parser '{}'; there is LITE_parse_cache only.", source.who, pack.cache_parser);
      MGE_CHECK(pack.fast_run_cache, NotImplemented,
                "{}: its cache is one of compiled OpenCL kernels, which this library has no device for. Load it with "
                "disable_configure_by_model_info.",
                source.who);
      install_cache(parse_cache(pack.algo_policy, source.who), source.who);
    }
  }
  out.model = decrypt_and_read(aligned_copy(pack.model, source.who), pack.model_decryption, out.info.config);
  return out;
}

}  // namespace lite
