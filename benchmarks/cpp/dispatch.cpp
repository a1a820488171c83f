// The cost of one small op from C++: mge_dispatch CASE N runs it N times. Without arguments it lists the cases and
// their nanoseconds. tools/instructions.py runs it under callgrind.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/parallel.h"
#include "eager/dispatch.h"
#include "eager/tape.h"
#include "eager/trace.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

TensorPtr ones(std::initializer_list<int64_t> shape) {
  Meta m;
  m.shape = Shape(shape);
  m.cn = CompNode::default_node();
  Buffer b = allocate_buffer(m);
  for (int64_t i = 0; i < m.shape.numel(); ++i) static_cast<float*>(b.storage->ptr)[i] = 1;
  return tensor_from_buffer(m, std::move(b));
}
TensorPtr apply(const OpDef& op, std::initializer_list<Tensor*> in) {
  TensorPtr out;
  dispatch(op, nullptr, {in.begin(), in.size()}, {&out, 1});
  return out;
}

struct Case {
  const char* name;
  std::function<void(int64_t n)> run;
};

const OpDef& op(const char* name) { return OpRegistry::global().get(name); }

void repeat(int64_t n, const OpDef& o, const Attrs& attrs, std::initializer_list<Tensor*> in) {
  for (int64_t i = 0; i < n; ++i) {
    TensorPtr out;
    dispatch(o, attrs, {in.begin(), in.size()}, {&out, 1});
  }
}

// y = x; y = y * x + x, over and over.
TensorPtr chain(const TensorPtr& x, int n_ops) {
  static const OpDef &mul = op("mul"), &add = op("add");
  TensorPtr y = x;
  for (int k = 0; k < n_ops; ++k) y = apply(k % 2 ? add : mul, {y.get(), x.get()});
  return y;
}

RefPtr<Recording> recorded(const TensorPtr& x, int n_ops, bool replay) {
  auto r = make_ref<Recording>(TraceOptions{2, false, replay, true});
  Tensor* args[] = {x.get()};
  r->record_begin(args);
  TensorPtr y = chain(x, n_ops);
  Tensor* results[] = {y.get()};
  r->record_end({results, replay ? 1u : 0u});
  return r;
}

const Case kCases[] = {
    {"add",
     [](int64_t n) {
       TensorPtr a = ones({4}), b = ones({4});
       repeat(n, op("add"), nullptr, {a.get(), b.get()});
     }},
    {"add_broadcast",
     [](int64_t n) {
       TensorPtr a = ones({4, 4}), b = ones({4});
       repeat(n, op("add"), nullptr, {a.get(), b.get()});
     }},
    {"add_recorded",
     [](int64_t n) {
       TensorPtr a = ones({4}), b = ones({4});
       GradSession s;
       s.start();
       s.attach(*a, [](TensorPtr) {});
       repeat(n, op("add"), nullptr, {a.get(), b.get()});
       s.stop();
     }},
    {"slice",
     [](int64_t n) {
       TensorPtr a = ones({8});
       repeat(n, op("slice"), make_attrs(SliceAttrs{{0}, {1}, {3}, {1}}), {a.get()});
     }},
    {"reshape",
     [](int64_t n) {
       TensorPtr a = ones({8});
       repeat(n, op("reshape"), make_attrs(ShapeAttrs{{2, 4}}), {a.get()});
     }},
    {"matmul_4x4",
     [](int64_t n) {
       TensorPtr a = ones({4, 4}), b = ones({4, 4});
       repeat(n, op("matmul"), op("matmul").schema.build("matmul", {}), {a.get(), b.get()});
     }},
    {"sum",
     [](int64_t n) {
       TensorPtr a = ones({16});
       repeat(n, op("reduce"), op("reduce").schema.build("reduce", {}), {a.get()});
     }},
    // The body of a traced call runs again: what its ops cost on top of the program that does their work.
    {"match_of_200_ops",
     [](int64_t n) {
       TensorPtr x = ones({4});
       auto r = recorded(x, 200, false);
       Tensor* args[] = {x.get()};
       for (int64_t i = 0; i < n; ++i) {
         r->match_begin(args);
         TensorPtr y = chain(x, 200);
         r->match_end();
       }
     }},
    {"replay_of_3_ops",
     [](int64_t n) {
       TensorPtr x = ones({4});
       auto r = recorded(x, 3, true);
       Tensor* args[] = {x.get()};
       for (int64_t i = 0; i < n; ++i) {
         r->accepts(args);
         r->replay(args);
       }
     }},
    {"backward_of_20_muls",
     [](int64_t n) {
       TensorPtr x = ones({4}), dy = ones({4});
       const OpDef& mul = op("mul");  // found once: a look-up costs more with every op that is registered
       for (int64_t i = 0; i < n; ++i) {
         GradSession s;
         s.start();
         s.attach(*x, [](TensorPtr) {});
         TensorPtr y = x;
         for (int k = 0; k < 20; ++k) y = apply(mul, {y.get(), x.get()});
         Tensor *ys[] = {y.get()}, *dys[] = {dy.get()};
         s.backward(ys, dys);
         s.stop();
       }
     }},
};

double nanoseconds(const Case& c) {
  constexpr int64_t kRuns = 2000;
  double best = 1e30;
  for (int round = 0; round < 20; ++round) {
    auto t0 = std::chrono::steady_clock::now();
    c.run(kRuns);
    double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
    best = s < best ? s : best;
  }
  return best / kRuns * 1e9;
}

int run(int argc, char** argv) {
  set_num_threads(1);
  if (argc == 1) {
    for (auto& c : kCases) std::printf("%-20s %8.0f ns\n", c.name, nanoseconds(c));
    return 0;
  }
  for (auto& c : kCases)
    if (argc == 3 && !std::strcmp(argv[1], c.name)) {
      c.run(std::atoll(argv[2]));
      return 0;
    }
  std::fprintf(stderr, "usage: %s [CASE N]; cases:", argv[0]);
  for (auto& c : kCases) std::fprintf(stderr, " %s", c.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace
}  // namespace mge

int main(int argc, char** argv) {
  try {
    return mge::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
