// A model and how it is to be run, in one file: whoever loads it need not know.
//   packed lenet.mge pixels.bin        writes lenet.mge.lite and runs that
#include "common.h"
#include "lite/pack_model.h"

static void run(const std::string& model, const std::string& input) {
  const std::string info = R"({
    "name": "classifier", "valid": true, "version": "1.14.0", "backend": "MGE",
    "device": {"type": "CPU", "number_threads": 2},
    "options": {"weight_preprocess": true},
    "extra_info": {"labels": ["cat", "dog", "bird", "fish", "none"]}
  })";
  const std::vector<char> file = read_file(model);
  const std::vector<uint8_t> bytes_of_model(file.begin(), file.end()), bytes_of_info(info.begin(), info.end());
  lite::ModelPacker packer(bytes_of_model, model + ".lite", bytes_of_info);
  packer.pack_model();

  auto net = std::make_shared<lite::Network>();
  net->load_model(model + ".lite");
  std::printf("%zu threads, %s\n", lite::Runtime::get_cpu_threads_number(net), net->get_model_extra_info().c_str());

  std::vector<char> bytes = read_file(input);
  std::shared_ptr<lite::Tensor> x = net->get_input_tensor(0);
  x->reset(bytes.data(), layout_for(*x, bytes.size()));
  net->forward();
  net->wait();
  std::shared_ptr<lite::Tensor> y = net->get_output_tensor(0);
  std::printf("%s\n", describe(net->get_output_name(0), y->get_layout(), y->get_memory_ptr()).c_str());
}

int main(int argc, char** argv) { return run_example(argc, argv, "packed MODEL INPUT.bin", run); }
