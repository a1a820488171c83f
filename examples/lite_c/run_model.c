/* Runs a model from C: feeds one input by name from a raw file, prints one output and writes its exact bytes.
 *   run_model lenet.mge data pixels.bin logits logits.bin
 * The file may hold any number of samples: its size decides the first dimension of the input.
 * Build: cc run_model.c -I<include> -L<folder of liblite.so> -llite -Wl,-rpath,<folder of liblite.so> -o run_model */
#include <stdio.h>
#include <stdlib.h>

#include "lite-c/global_c.h"
#include "lite-c/network_c.h"

#define CHECK(call)                                              \
  do {                                                           \
    if ((call) != 0) {                                           \
      fprintf(stderr, "run_model: %s\n", LITE_get_last_error()); \
      exit(1);                                                   \
    }                                                            \
  } while (0)

static void die(const char* what, const char* path) {
  fprintf(stderr, "run_model: %s %s\n", what, path);
  exit(1);
}

static void* read_file(const char* path, size_t* size) {
  FILE* f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END) != 0) die("cannot read", path);
  long end = ftell(f);
  rewind(f);
  void* data = malloc(end > 0 ? (size_t)end : 1);
  if (end < 0 || !data || fread(data, 1, (size_t)end, f) != (size_t)end) die("cannot read", path);
  fclose(f);
  *size = (size_t)end;
  return data;
}

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

  /* As many samples as the file holds. */
  LiteLayout layout;
  size_t bytes;
  CHECK(LITE_get_io_tensor(net, argv[2], LITE_INPUT, &x));
  CHECK(LITE_get_tensor_layout(x, &layout));
  CHECK(LITE_get_tensor_total_size_in_byte(x, &bytes));
  size_t sample = bytes / layout.shapes[0];
  if (size == 0 || size % sample != 0) die("not a whole number of samples in", argv[3]);
  layout.shapes[0] = size / sample;
  CHECK(LITE_reset_tensor(x, layout, input));

  CHECK(LITE_forward(net));
  CHECK(LITE_wait(net));

  void* output;
  CHECK(LITE_get_io_tensor(net, argv[4], LITE_OUTPUT, &y));
  CHECK(LITE_get_tensor_layout(y, &layout));
  CHECK(LITE_get_tensor_total_size_in_byte(y, &bytes));
  CHECK(LITE_get_tensor_memory(y, &output));
  printf("%s [", argv[4]);
  for (size_t i = 0; i < layout.ndim; ++i) printf(i ? ",%zu" : "%zu", layout.shapes[i]);
  printf("]:");
  if (layout.data_type == LITE_FLOAT)
    for (size_t i = 0; i < bytes / 4 && i < 10; ++i) printf(" %.6g", ((float*)output)[i]);
  printf("\n");

  FILE* f = fopen(argv[5], "wb");
  if (!f || fwrite(output, 1, bytes, f) != bytes || fclose(f) != 0) die("cannot write", argv[5]);
  CHECK(LITE_destroy_network(net));
  free(input);
  return 0;
}
