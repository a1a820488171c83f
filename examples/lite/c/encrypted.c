/* An encrypted model: made by `mge-lite encrypt lenet.mge lenet.aes --cryption AES_default --key 1f1e1d...00`,
 * decrypted in memory with a key of the program. encrypted lenet.aes pixels.bin */
#include "common.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: encrypted MODEL INPUT.bin\n");
    return 1;
  }
  size_t size;
  void* input = read_file(argv[2], &size);
  uint8_t key[32];
  for (int i = 0; i < 32; ++i) key[i] = (uint8_t)(31 - i);
  CHECK(LITE_update_decryption_or_key("AES_default", NULL, key, sizeof key)); /* the method stays, the key is ours */

  LiteNetwork net;
  LiteTensor x, y;
  LiteConfig config = *default_config();
  const char *input_name, *output_name;
  config.bare_model_cryption_name = "AES_default";
  CHECK(LITE_make_network_config(&net, config));
  CHECK(LITE_load_model_from_path(net, argv[1]));
  CHECK(LITE_get_input_name(net, 0, &input_name));
  CHECK(LITE_get_output_name(net, 0, &output_name));
  CHECK(LITE_get_io_tensor(net, input_name, LITE_INPUT, &x));
  CHECK(LITE_reset_tensor(x, layout_for(x, size, argv[2]), input));
  CHECK(LITE_forward(net));
  CHECK(LITE_wait(net));
  CHECK(LITE_get_io_tensor(net, output_name, LITE_OUTPUT, &y));
  print_tensor(output_name, y);
  CHECK(LITE_destroy_network(net));
  free(input);
  return 0;
}
