/* forward returns at once; a callback with a pointer of ours says when the outputs are there.
 *   async lenet.mge pixels.bin */
#include <pthread.h>

#include "common.h"

struct Done {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int is;
};

static int when_done(void* user) {
  struct Done* done = user;
  pthread_mutex_lock(&done->mutex);
  done->is = 1;
  pthread_cond_signal(&done->changed);
  pthread_mutex_unlock(&done->mutex);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: async MODEL INPUT.bin\n");
    return 1;
  }
  size_t size;
  void* input = read_file(argv[2], &size);
  struct Done done = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

  LiteNetwork net;
  LiteTensor x, y;
  const char *input_name, *output_name;
  CHECK(LITE_make_default_network(&net));
  CHECK(LITE_load_model_from_path(net, argv[1]));
  CHECK(LITE_get_input_name(net, 0, &input_name));
  CHECK(LITE_get_output_name(net, 0, &output_name));
  CHECK(LITE_get_io_tensor(net, input_name, LITE_INPUT, &x));
  CHECK(LITE_reset_tensor(x, layout_for(x, size, argv[2]), input));
  CHECK(LITE_set_async_callback_with_userdata(net, when_done, &done));

  CHECK(LITE_forward(net));
  /* ... the program goes on with something else here ... */
  pthread_mutex_lock(&done.mutex);
  while (!done.is) pthread_cond_wait(&done.changed, &done.mutex);
  pthread_mutex_unlock(&done.mutex);
  CHECK(LITE_wait(net)); /* an error of the run comes out here */

  CHECK(LITE_get_io_tensor(net, output_name, LITE_OUTPUT, &y));
  print_tensor(output_name, y);
  CHECK(LITE_destroy_network(net));
  free(input);
  return 0;
}
