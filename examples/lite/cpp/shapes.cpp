// One network, inputs of many sizes: each size is compiled when it comes first and kept.
//   shapes lenet.mge pixels.bin
#include "common.h"

static void run(const std::string& model, const std::string& input) {
  auto net = std::make_shared<lite::Network>();
  net->load_model(model);
  std::vector<char> bytes = read_file(input);
  std::shared_ptr<lite::Tensor> x = net->get_input_tensor(0);
  lite::Layout layout = layout_for(*x, bytes.size());
  for (size_t batch = 1, samples = layout.shapes[0]; batch <= samples; ++batch) {
    layout.shapes[0] = batch;
    x->reset(bytes.data(), layout);
    net->forward();
    net->wait();
    std::shared_ptr<lite::Tensor> y = net->get_output_tensor(0);  // its layout is that of this run
    std::printf("%s\n", describe(net->get_output_name(0), y->get_layout(), y->get_memory_ptr()).c_str());
  }
  layout.ndim = 1;  // a size that does not fit is an error, and the network can still be used
  x->set_layout(layout);
  try {
    net->forward();
  } catch (const lite::Error& e) {
    std::printf("as expected: %s\n", std::string(e.what()).substr(0, 40).c_str());
  }
}

int main(int argc, char** argv) { return run_example(argc, argv, "shapes MODEL INPUT.bin", run); }
