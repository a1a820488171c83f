/* Two networks with the same weights in two threads, one sample each.
 *   threads lenet.mge pixels.bin */
#include <pthread.h>

#include "common.h"

static void* run(void* net) { /* errors belong to the thread they happen in */
  CHECK(LITE_forward(net));
  CHECK(LITE_wait(net));
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: threads MODEL INPUT.bin\n");
    return 1;
  }
  size_t size;
  char* input = read_file(argv[2], &size);
  enum { kThreads = 2 };
  LiteNetwork nets[kThreads];
  pthread_t threads[kThreads];
  const char *input_name, *output_name;
  for (int i = 0; i < kThreads; ++i) {
    CHECK(LITE_make_default_network(&nets[i]));
    if (i == 0)
      CHECK(LITE_load_model_from_path(nets[i], argv[1]));
    else
      CHECK(LITE_shared_weight_with_network(nets[i], nets[0]));
    CHECK(LITE_get_input_name(nets[i], 0, &input_name));
    CHECK(LITE_get_output_name(nets[i], 0, &output_name));
    LiteTensor x;
    CHECK(LITE_get_io_tensor(nets[i], input_name, LITE_INPUT, &x));
    LiteLayout layout = layout_for(x, size, argv[2]);
    size_t samples = layout.shapes[0];
    if (samples < kThreads) die("fewer samples than threads in", argv[2]);
    layout.shapes[0] = 1;
    CHECK(LITE_reset_tensor(x, layout, input + (size_t)i * (size / samples)));
  }
  for (int i = 0; i < kThreads; ++i)
    if (pthread_create(&threads[i], NULL, run, nets[i]) != 0) die("no thread for", argv[1]);
  for (int i = 0; i < kThreads; ++i) {
    LiteTensor y;
    pthread_join(threads[i], NULL);
    CHECK(LITE_get_io_tensor(nets[i], output_name, LITE_OUTPUT, &y));
    print_tensor(output_name, y);
    CHECK(LITE_destroy_network(nets[i]));
  }
  free(input);
  return 0;
}
