// An encrypted model: made by `mge-lite encrypt lenet.mge lenet.aes --cryption AES_default --key 1f1e1d...00`,
// decrypted in memory with a key of the program. Methods of your own are registered by
// lite::register_decryption_and_key.
//   encrypted lenet.aes pixels.bin
#include "common.h"

static void run(const std::string& model, const std::string& input) {
  std::vector<uint8_t> key(32);
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(31 - i);
  lite::update_decryption_or_key("AES_default", nullptr, key);  // the method stays, the key is ours

  lite::Config config;
  config.bare_model_cryption_name = "AES_default";
  auto net = std::make_shared<lite::Network>(config);
  net->load_model(model);

  std::vector<char> bytes = read_file(input);
  std::shared_ptr<lite::Tensor> x = net->get_input_tensor(0);
  x->reset(bytes.data(), layout_for(*x, bytes.size()));
  net->forward();
  net->wait();
  std::shared_ptr<lite::Tensor> y = net->get_output_tensor(0);
  std::printf("%s\n", describe(net->get_output_name(0), y->get_layout(), y->get_memory_ptr()).c_str());
}

int main(int argc, char** argv) { return run_example(argc, argv, "encrypted MODEL INPUT.bin", run); }
