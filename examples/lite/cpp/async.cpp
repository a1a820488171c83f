// forward() returns at once; a callback says when the outputs are there. Others see the inputs before the run and the
// outputs after it.
//   async lenet.mge pixels.bin
#include <atomic>
#include <future>

#include "common.h"

static void run(const std::string& model, const std::string& input) {
  auto net = std::make_shared<lite::Network>();
  net->load_model(model);
  std::vector<char> bytes = read_file(input);
  std::shared_ptr<lite::Tensor> x = net->get_input_tensor(0);
  x->reset(bytes.data(), layout_for(*x, bytes.size()));

  std::atomic<size_t> seen_inputs{0}, seen_outputs{0};
  std::promise<void> done;
  net->set_start_callback([&](const auto& inputs) { seen_inputs = inputs.size(); });
  net->set_finish_callback([&](const auto& outputs) { seen_outputs = outputs.size(); });
  net->set_async_callback([&] { done.set_value(); });  // on a thread of the network

  net->forward();
  // ... the program goes on with something else here ...
  done.get_future().wait();
  net->wait();  // an error of the run comes out here

  std::shared_ptr<lite::Tensor> y = net->get_output_tensor(0);
  std::printf("%s\n", describe(net->get_output_name(0), y->get_layout(), y->get_memory_ptr()).c_str());
  std::printf("callbacks saw %zu inputs and %zu outputs\n", seen_inputs.load(), seen_outputs.load());
}

int main(int argc, char** argv) { return run_example(argc, argv, "async MODEL INPUT.bin", run); }
