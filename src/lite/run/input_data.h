// What --input means (docs/lite.md): .npy, .json, .ppm/.pgm, .bin/.raw, {shape} or a nested list, each with or without
// a name.
//   for (InputData& d : parse_inputs("x:digits.npy;scale:[0.5]", infos)) …
#pragma once
#include <string>
#include <vector>

#include "lite/network.h"

namespace lite {

struct InputData {
  std::string name;
  Layout layout;
  std::vector<unsigned char> bytes;
};

/// `model` says which inputs there are and of which type; numbers in lists take the model's type. Value and Env errors.
std::vector<InputData> parse_inputs(const std::string& spec, const std::vector<IO>& model);

/// One file each; `who` in messages is the path.
InputData read_npy(const std::string& path);
InputData read_image(const std::string& path);
/// Repeats (or cuts) the data so that its first dimension is `batch`.
void set_batch(InputData* d, size_t batch);

}  // namespace lite
