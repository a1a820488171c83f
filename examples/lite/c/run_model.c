/* Runs a model from C: feeds one input by name from a raw file, prints one output and writes its exact bytes.
 *   run_model lenet.mge data pixels.bin logits logits.bin
 * The file may hold any number of samples: its size decides the first dimension of the input.
 * Build: cc run_model.c -I<include> -L<folder of liblite.so> -llite -Wl,-rpath,<folder of liblite.so> -o run_model */
#include "common.h"

int main(int argc, char** argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: run_model MODEL INPUT_NAME INPUT.bin OUTPUT_NAME OUTPUT.bin\n");
    return 1;
  }
  size_t size;
  void* input = read_file(argv[3], &size);

  LiteNetwork net;
  LiteTensor x, y;
  CHECK(LITE_make_default_network(&net));
  CHECK(LITE_load_model_from_path(net, argv[1]));
  CHECK(LITE_get_io_tensor(net, argv[2], LITE_INPUT, &x));
  CHECK(LITE_reset_tensor(x, layout_for(x, size, argv[3]), input)); /* used in place, not copied */

  CHECK(LITE_forward(net));
  CHECK(LITE_wait(net));

  size_t bytes;
  void* output;
  CHECK(LITE_get_io_tensor(net, argv[4], LITE_OUTPUT, &y));
  CHECK(LITE_get_tensor_total_size_in_byte(y, &bytes));
  CHECK(LITE_get_tensor_memory(y, &output));
  print_tensor(argv[4], y);

  FILE* f = fopen(argv[5], "wb");
  if (!f || fwrite(output, 1, bytes, f) != bytes || fclose(f) != 0) die("cannot write", argv[5]);
  CHECK(LITE_destroy_network(net));
  free(input);
  return 0;
}
