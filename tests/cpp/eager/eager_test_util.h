// Tensors, ops that fail or wait on purpose, and a fixture that leaves the runtime as it found it.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "core/half.h"
#include "core/pool.h"
#include "eager/tape.h"
#include "kernel/copy.h"
#include "op/in_build.h"
#include "op/matmul/matmul.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"

namespace mge {

inline const OpDef& op_of(const char* name) { return OpRegistry::global().get(name); }

inline TensorPtr apply(const char* op, std::vector<TensorPtr> in, Attrs attrs = nullptr) {
  const OpDef& d = op_of(op);
  if (!attrs && d.has_attrs) attrs = d.schema.build(op, {});
  std::vector<Tensor*> ins;
  for (auto& t : in) ins.push_back(t.get());
  std::vector<TensorPtr> out(d.outputs.size());
  dispatch(d, attrs, ins, out);
  return out[0];
}

inline Meta meta_of(const Shape& s, DType t = DType::F32) {
  Meta m;
  m.shape = s;
  m.dtype = t;
  return m;
}
/// float32 or float64 from plain numbers.
inline TensorPtr tensor(const Shape& s, const std::vector<double>& v, DType t = DType::F32) {
  Meta m = meta_of(s, t);
  Buffer b = allocate_buffer(m);
  for (size_t i = 0; i < v.size(); ++i) {
    if (t == DType::F32)
      static_cast<float*>(b.storage->ptr)[i] = static_cast<float>(v[i]);
    else if (t == DType::F64)
      static_cast<double*>(b.storage->ptr)[i] = v[i];
    else
      static_cast<int32_t*>(b.storage->ptr)[i] = static_cast<int32_t>(v[i]);
  }
  return tensor_from_buffer(m, b);
}
inline TensorPtr filled(const Shape& s, double v, DType t = DType::F32) {
  return tensor(s, std::vector<double>(static_cast<size_t>(s.numel()), v), t);
}
inline TensorPtr scalar(double v, DType t = DType::F32) { return tensor({}, {v}, t); }

/// Waits and reads. Bytes in row-major order.
inline std::string bytes_of(Tensor& t) {
  Buffer b = make_contiguous(t.meta(), read_buffer(t));
  return std::string(static_cast<const char*>(b.data(t.meta().dtype)), t.meta().bytes());
}
inline std::vector<double> values(Tensor& t) {
  std::string raw = bytes_of(t);
  std::vector<double> out;
  auto take = [&]<class T>(T*) {
    for (size_t i = 0; i < raw.size(); i += sizeof(T)) {
      T x;
      std::memcpy(&x, raw.data() + i, sizeof x);
      out.push_back(static_cast<double>(x));
    }
  };
  switch (t.meta().dtype) {
    case DType::F32:
      take(static_cast<float*>(nullptr));
      break;
    case DType::F64:
      take(static_cast<double*>(nullptr));
      break;
    case DType::I32:
      take(static_cast<int32_t*>(nullptr));
      break;
    case DType::Bool:
      take(static_cast<uint8_t*>(nullptr));
      break;
    default:
      ADD_FAILURE() << "values of " << dtype_name(t.meta().dtype);
  }
  return out;
}
inline std::vector<double> values(const TensorPtr& t) { return values(*t); }
inline double item(const TensorPtr& t) { return values(*t).at(0); }

inline Error caught(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::Internal, ""};
}
inline void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& f) {
  Error e = caught(f);
  EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.text();
  EXPECT_THAT(e.text(), testing::HasSubstr(part));
}

// ---- ops of the tests: y = x, and something happens on the way

struct NoteAttrs {
  int64_t ms = 0;
  static constexpr auto fields() { return field_list("ms", &NoteAttrs::ms); }
};
inline std::atomic<int> g_count{0};     // runs of test_count
inline std::atomic<bool> g_gate{true};  // test_gate waits until open
inline std::atomic<bool> g_fail{true};  // test_fail fails while set

inline void copy_through(const KernelArgs& a) { copy_strided(a.in[0], a.out[0]); }

inline void register_test_ops() {
  static const bool done = [] {
    OpRegistry& r = OpRegistry::global();
    auto same = [](InferCtx& c) { c.out[0] = c.x(0); };
    auto same2 = [](InferCtx& c) { c.out[0] = c.out[1] = c.x(0); };
    r.op("test_count").in("x").out("y").infer(same).doc("y = x, counted.").traits(kNoGrad);
    r.op("test_gate").in("x").out("y").infer(same).doc("y = x, once the gate is open.").traits(kNoGrad);
    r.op("test_sleep").attrs<NoteAttrs>().in("x").out("y").infer(same).doc("y = x, after a while.").traits(kNoGrad);
    r.op("test_fail")
        .attrs<NoteAttrs>()
        .in("x")
        .opt("z")
        .out("y", "y2")
        .infer(same2)
        .doc("Fails with a Value error.")
        .traits(kNoGrad);
    r.op("test_throw").in("x").out("y").infer(same).doc("Throws std::runtime_error.").traits(kNoGrad);
    r.op("test_no_memory").in("x").out("y").infer(same).doc("Throws std::bad_alloc.").traits(kNoGrad);
    r.op("test_no_grad_rule").in("x").out("y").infer(same).doc("y = x, with no vjp though it is differentiable.");
    KernelRegistry& k = KernelRegistry::global();
    auto add = [&](const std::string& op, void (*run)(const KernelArgs&)) {
      k.add(op, KernelTier::Ref, {.name = "ref_test", .run = run, .flags = kStridedInputs});
    };
    add("test_count", [](const KernelArgs& a) {
      ++g_count;
      copy_through(a);
    });
    add("test_gate", [](const KernelArgs& a) {
      for (int i = 0; i < 20000 && !g_gate; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      copy_through(a);
    });
    add("test_sleep", [](const KernelArgs& a) {
      std::this_thread::sleep_for(std::chrono::milliseconds(a.as<NoteAttrs>().ms));
      copy_through(a);
    });
    add("test_fail", [](const KernelArgs& a) {
      if (g_fail) fail(ErrorKind::Value, "test_fail: refuses to work.");
      copy_strided(a.in[0], a.out[0]);
      copy_strided(a.in[0], a.out[1]);
    });
    add("test_throw", [](const KernelArgs&) { throw std::runtime_error("out of patience"); });
    add("test_no_memory", [](const KernelArgs&) { throw std::bad_alloc(); });
    add("test_no_grad_rule", copy_through);
    return true;
  }();
  (void)done;
}

// ---- a pretend Python stack

inline LocId g_line = 0;
inline void fake_locations() {
  set_location_hooks({[] { return g_line; }, [](LocId l) { return Place{"train.py", "step", static_cast<int>(l)}; }});
}

class EagerTest : public testing::Test {
 protected:
  void SetUp() override {
    register_test_ops();
    threads_ = num_threads();
    g_gate = true;
    g_fail = true;
    g_count = 0;
    g_line = 0;
  }
  void TearDown() override {
    g_gate = true;
    EXPECT_EQ(active_tracer(), nullptr);
    set_active_tracer(nullptr);
    try {
      sync();
    } catch (const Error& e) {
      ADD_FAILURE() << "an error was left behind: " << e.text();
    }
    set_exec_policy(ExecPolicy::Inline);
    set_async_level(2);
    set_donation(true);
    set_location_hooks({});
    set_num_threads(threads_);
    Pool::of({}).set_limit(0);
    EXPECT_FALSE(any_grad_session());
  }
  static void go_async(int level = 2) {
    set_exec_policy(ExecPolicy::Async);
    set_async_level(level);
  }
  static size_t in_use() { return Pool::of({}).stats().allocated; }

 private:
  int threads_ = 1;
};

// The thread sanitizer takes threads that a forked child starts for those of its parent ("dup thread with used id").
#ifdef __SANITIZE_THREAD__
#define SKIP_UNDER_TSAN GTEST_SKIP() << "the child starts threads"
#else
#define SKIP_UNDER_TSAN (void)0
#endif

/// Runs `body` in a forked child; its exit code, 1000 + signal when it crashed, -1 when it did not end in time.
template <class F>
int in_child(F body, int seconds = 20) {
  fflush(nullptr);
  pid_t pid = fork();
  if (pid == 0) _exit(body());
  for (int i = 0; i < seconds * 100; ++i) {
    int status;
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    usleep(10000);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

}  // namespace mge
