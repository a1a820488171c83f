/* Where time and memory go: profile.json with the time of every op, and what the plan of memory is, in a folder.
 * profile lenet.mge folder */
#include <sys/stat.h>
#include <time.h>

#include "common.h"

enum { kRuns = 10 };

static double milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: profile MODEL FOLDER\n");
    return 1;
  }
  char path[4096];
  if (snprintf(path, sizeof path, "%s/profile.json", argv[2]) >= (int)sizeof path) die("too long:", argv[2]);
  mkdir(argv[2], 0755);

  LiteNetwork net;
  LiteTensor x;
  const char* name;
  CHECK(LITE_make_default_network(&net));
  CHECK(LITE_set_device_id(net, 0)); /* before the load; a CPU has one of each */
  CHECK(LITE_set_stream_id(net, 0));
  CHECK(LITE_load_model_from_path(net, argv[1]));
  CHECK(LITE_enable_profile_performance(net, path));
  CHECK(LITE_get_input_name(net, 0, &name));
  CHECK(LITE_get_io_tensor(net, name, LITE_INPUT, &x));
  CHECK(LITE_tensor_fill_zero(x));
  const double begun = milliseconds();
  for (int i = 0; i < kRuns; ++i) {
    CHECK(LITE_forward(net));
    CHECK(LITE_wait(net));
  }
  printf("%d runs, %.3f ms each\n", kRuns, (milliseconds() - begun) / kRuns);
  CHECK(LITE_get_static_memory_alloc_info(net, argv[2]));
  CHECK(LITE_destroy_network(net));
  CHECK(LITE_try_coalesce_all_free_memory()); /* what the runs used goes back to the system */
  return 0;
}
