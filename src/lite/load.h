// From the bytes of a file to a model: unpacked, decrypted, its settings read.
//   Loaded l = load_bytes(bytes_of_file(path), {.config = config, .io = io});
#pragma once
#include <memory>
#include <span>
#include <string>

#include "lite/info.h"
#include "serial/model.h"

namespace lite {

struct ModelBytes {
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;  // null: copy what is needed
  bool mapped = false;
  std::string who;  // begins every message
};
ModelBytes bytes_of_file(const std::string& path);
ModelBytes bytes_in_memory(const void* mem, size_t size);

struct Loaded {
  mge::serial::LoadedModel model;
  ModelInfo info;       // the configuration that was given, with what a packed model says on top
  bool packed = false;  // there is an info.extra_info
};
/// `config` and `io` are those of the network. A packed model configures it, unless `configure` is off; its fast-run
/// cache is installed then, too.
Loaded load_bytes(const ModelBytes& source, const Config& config, const NetworkIO& io, bool configure = true);

}  // namespace lite
