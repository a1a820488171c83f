// Inputs and outputs in memory of the program: nothing is copied in, results are written where the program wants them.
//   zero_copy lenet.mge pixels.bin
#include "common.h"

static void run(const std::string& model, const std::string& input) {
  lite::Config config;
  config.options.force_output_use_user_specified_memory = true;
  auto net = std::make_shared<lite::Network>(config);
  net->load_model(model);

  std::vector<char> pixels = read_file(input);
  std::shared_ptr<lite::Tensor> x = net->get_input_tensor(0);
  x->reset(pixels.data(), layout_for(*x, pixels.size()));

  // Shapes of outputs follow from those of the inputs; a run that only compiles makes them known.
  std::vector<std::vector<float>> results(net->get_all_output_name().size());
  for (size_t i = 0; i < results.size(); ++i) {
    std::shared_ptr<lite::Tensor> y = net->get_output_tensor(i);
    lite::Layout layout = y->get_layout();
    layout.shapes[0] = x->get_layout().shapes[0];
    results[i].resize(layout.shapes[0] * y->get_tensor_total_size_in_byte() / sizeof(float) /
                      y->get_layout().shapes[0]);
    y->reset(results[i].data(), layout);
  }
  // The memory is used by every run: new pixels go into the same place.
  for (int run = 0; run < 2; ++run) {
    net->forward();
    net->wait();
  }
  for (size_t i = 0; i < results.size(); ++i)
    std::printf("%s\n",
                describe(net->get_output_name(i), net->get_output_tensor(i)->get_layout(), results[i].data()).c_str());
}

int main(int argc, char** argv) { return run_example(argc, argv, "zero_copy MODEL INPUT.bin", run); }
