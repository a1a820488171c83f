// What tests/python/test_gdb.py looks at with tools/gdb/mge.py. Compiled with -g, unlike the rest of a dev build.
#include "ir/graph.h"
#include "kernel/kernel.h"

using namespace mge;

__attribute__((noinline)) void stop_here(const void*) { asm volatile(""); }

int main() {
  const Shape shape{2, 3};
  float data[] = {0, 0.5f, 1, 1.5f, 2, -3};
  TensorArg arg{data, DType::F32, shape, Layout::contiguous(shape), {}};
  TensorArg flipped = arg;  // transposed, as a view
  flipped.shape = Shape{3, 2};
  std::swap(flipped.layout.stride[0], flipped.layout.stride[1]);
  const Meta meta{shape, DType::F32}, bytes{Shape{4}, DType::QU8, nullptr, Quant{0.05, 128}};
  const SmallVec<int, 2> numbers{1, 2, 3};
  RefPtr<Storage> storage = allocate_storage(Device{}, 64), none;

  ir::Graph graph("subject");
  const ir::ValueId x = graph.add_input("x", meta), w = graph.add_var("w", meta);
  ir::ValueId y = graph.add1("add", {}, {x, w}, graph.loc("train.py", 31));
  for (int i = 0; i < 40; ++i) y = graph.add1("relu", {}, {y});  // more than one chunk of a deque
  graph.add_output("y", y);
  const ir::Node& last = graph.node(graph.last());
  const ir::Value& input = graph.value(x);
  const void* all[] = {&arg, &flipped, &meta, &bytes, &numbers, &storage, &none, &graph, &last, &input};
  stop_here(all);
}
