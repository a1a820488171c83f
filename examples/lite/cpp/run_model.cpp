// Runs a model: feeds its first input from a raw file of float32, prints the first values of every output.
//   run_model lenet.mge pixels.bin
// The file may hold any number of samples: its size decides the first dimension of the input.
#include "common.h"

static void run(const std::string& model, const std::string& input) {
  auto net = std::make_shared<lite::Network>();
  net->load_model(model);

  std::vector<char> bytes = read_file(input);  // used in place, so it stays until the run is over
  std::shared_ptr<lite::Tensor> x = net->get_input_tensor(0);
  x->reset(bytes.data(), layout_for(*x, bytes.size()));

  net->forward();
  net->wait();

  for (const std::string& name : net->get_all_output_name()) {
    std::shared_ptr<lite::Tensor> y = net->get_io_tensor(name, LITE_OUTPUT);
    std::printf("%s\n", describe(name, y->get_layout(), y->get_memory_ptr()).c_str());
  }
}

int main(int argc, char** argv) { return run_example(argc, argv, "run_model MODEL INPUT.bin", run); }
