/* What the examples share: a file's bytes, a tensor's first values as text, errors as an exit status. */
#ifndef EXAMPLES_LITE_COMMON_H
#define EXAMPLES_LITE_COMMON_H

#include <stdio.h>
#include <stdlib.h>

#include "lite-c/global_c.h"
#include "lite-c/network_c.h"

/* Every function of Lite returns 0, or -1 with a text for this thread. */
#define CHECK(call)                                   \
  do {                                                \
    if ((call) != 0) {                                \
      fprintf(stderr, "%s\n", LITE_get_last_error()); \
      exit(1);                                        \
    }                                                 \
  } while (0)

static inline void die(const char* what, const char* path) {
  fprintf(stderr, "%s %s\n", what, path);
  exit(1);
}

static inline void* read_file(const char* path, size_t* size) {
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

/* The layout of input `x` with as many samples as `bytes` holds. */
static inline LiteLayout layout_for(LiteTensor x, size_t bytes, const char* path) {
  LiteLayout layout;
  size_t whole;
  CHECK(LITE_get_tensor_layout(x, &layout));
  CHECK(LITE_get_tensor_total_size_in_byte(x, &whole));
  size_t sample = whole / layout.shapes[0];
  if (bytes == 0 || bytes % sample != 0) die("not a whole number of samples in", path);
  layout.shapes[0] = bytes / sample;
  return layout;
}

/* "logits [2,5]: 0.1 0.2 ...", the first ten values of a float tensor. */
static inline void print_tensor(const char* name, LiteTensor y) {
  LiteLayout layout;
  size_t bytes;
  void* data;
  CHECK(LITE_get_tensor_layout(y, &layout));
  CHECK(LITE_get_tensor_total_size_in_byte(y, &bytes));
  CHECK(LITE_get_tensor_memory(y, &data));
  printf("%s [", name);
  for (size_t i = 0; i < layout.ndim; ++i) printf(i ? ",%zu" : "%zu", layout.shapes[i]);
  printf("]:");
  if (layout.data_type == LITE_FLOAT)
    for (size_t i = 0; i < bytes / 4 && i < 10; ++i) printf(" %.9g", ((float*)data)[i]);
  printf("\n");
}

#endif
