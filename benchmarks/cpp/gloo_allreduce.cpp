// Gloo's own all-reduce, for the column "gloo alone" of benchmarks/allreduce.py. Ranks meet in a folder.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <vector>

namespace {
// For ever: its threads do not end well after main.
auto& context = *new std::shared_ptr<gloo::rendezvous::Context>;
}  // namespace

extern "C" __attribute__((visibility("default"))) void mge_bench_gloo_open(int rank, int size, const char* folder) {
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  gloo::rendezvous::FileStore store(folder);
  context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
}

extern "C" __attribute__((visibility("default"))) void mge_bench_gloo_run(size_t floats, int repeat) {
  static uint32_t tag = 0;
  std::vector<float> x(floats, 1.f);
  for (int i = 0; i < repeat; ++i) {
    gloo::AllreduceOptions o(context);
    o.setOutput(x.data(), floats);
    o.setReduceFunction([](void* c, const void* a, const void* b, size_t n) { gloo::sum<float>(c, a, b, n); });
    o.setTag(tag++);
    gloo::allreduce(o);
  }
}
