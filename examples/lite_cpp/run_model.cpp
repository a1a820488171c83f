// Runs a model from C++: feeds its first input from a raw file of float32, prints the first values of every output.
//   run_model lenet.mge pixels.bin
// The file may hold any number of samples: its size decides the first dimension of the input.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lite/global.h"
#include "lite/network.h"

namespace {

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void run(const std::string& model, const std::string& input) {
  auto net = std::make_shared<lite::Network>();
  net->load_model(model);

  std::vector<char> bytes = read_file(input);  // used in place, so it stays until the run is over
  std::shared_ptr<lite::Tensor> x = net->get_input_tensor(0);
  lite::Layout layout = x->get_layout();
  if (layout.data_type != LITE_FLOAT || layout.ndim == 0) throw std::runtime_error("the input is no batch of float32");
  const size_t sample = x->get_tensor_total_size_in_byte() / layout.shapes[0];
  if (bytes.empty() || bytes.size() % sample != 0)
    throw std::runtime_error("not a whole number of samples in " + input);
  layout.shapes[0] = bytes.size() / sample;
  x->reset(bytes.data(), layout);

  net->forward();
  net->wait();

  for (const std::string& name : net->get_all_output_name()) {
    std::shared_ptr<lite::Tensor> y = net->get_io_tensor(name, LITE_OUTPUT);
    const lite::Layout shape = y->get_layout();
    std::printf("%s [", name.c_str());
    for (size_t i = 0; i < shape.ndim; ++i) std::printf(i ? ",%zu" : "%zu", shape.shapes[i]);
    std::printf("]:");
    if (shape.data_type == LITE_FLOAT) {
      const auto* values = static_cast<const float*>(y->get_memory_ptr());
      const size_t count = y->get_tensor_total_size_in_byte() / sizeof(float);
      for (size_t i = 0; i < std::min<size_t>(count, 10); ++i) std::printf(" %.9g", values[i]);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    int major, minor, patch;
    lite::get_version(major, minor, patch);
    std::fprintf(stderr, "usage: run_model MODEL INPUT.bin (Lite %d.%d.%d)\n", major, minor, patch);
    return 1;
  }
  try {
    run(argv[1], argv[2]);
  } catch (const std::exception& e) {  // lite::Error is one too
    std::fprintf(stderr, "run_model: %s\n", e.what());
    return 1;
  }
  return 0;
}
