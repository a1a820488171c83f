// One model, several threads: each has a network of its own, all share the weights. Here each takes one sample.
//   threads lenet.mge pixels.bin
#include <thread>

#include "common.h"

static void run(const std::string& model, const std::string& input) {
  auto first = std::make_shared<lite::Network>();
  first->load_model(model);
  std::vector<char> bytes = read_file(input);
  lite::Layout layout = layout_for(*first->get_input_tensor(0), bytes.size());
  const size_t samples = layout.shapes[0];
  layout.shapes[0] = 1;

  std::vector<std::shared_ptr<lite::Network>> nets = {first};
  while (nets.size() < samples) {
    nets.push_back(std::make_shared<lite::Network>());
    lite::Runtime::shared_weight_with_network(nets.back(), first);
  }
  std::vector<std::string> errors(samples);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < samples; ++i)
    threads.emplace_back([&, i] {
      try {
        nets[i]->get_input_tensor(0)->reset(bytes.data() + i * (bytes.size() / samples), layout);
        nets[i]->forward();
        nets[i]->wait();
      } catch (const std::exception& e) {  // an exception must not leave the thread
        errors[i] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < samples; ++i) {
    if (!errors[i].empty()) throw std::runtime_error(errors[i]);
    std::shared_ptr<lite::Tensor> y = nets[i]->get_output_tensor(0);
    std::printf("%s\n", describe(nets[i]->get_output_name(0), y->get_layout(), y->get_memory_ptr()).c_str());
  }
}

int main(int argc, char** argv) { return run_example(argc, argv, "threads MODEL INPUT.bin", run); }
