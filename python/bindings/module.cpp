// The extension module: assembles the hot types and the cold surface (nanobind).
#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "common.h"
#include "core/fake_device.h"
#ifdef MGE_WITH_CUDA
#include "kernel/cuda/emulate.h"
#endif
#include "core/pool.h"
#include "eager/tape.h"
#include "eager/trace.h"
#include "jit/interp/interp.h"
#include "kernel/decompose.h"
#include "kernel/tune.h"
#include "op/promote.h"
#include "trace_entry.h"
#include "trace_key.h"

namespace nb = nanobind;

namespace mge::py {

void set_quant_hook(PyObject* quant);
void bind_grad(nb::module_& m);
void bind_modes(nb::module_& m);
void bind_trace(nb::module_& m);
void bind_model(nb::module_& m);
void bind_original(nb::module_& m);
void bind_files(nb::module_& m);
void bind_dist(nb::module_& m);
void end_dist();
void bind_profile(nb::module_& m);
void bind_cuda(nb::module_& m);
void bind_custom(nb::module_& m);
void bind_describe(nb::module_& m);
void bind_graph(nb::module_& m);

namespace {

struct CompNodeObject {
  const CompNode* cn;
};

void translate(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const Error&) {
    set_python_error();
  } catch (const PythonError&) {
    set_python_error();
  }
}

int64_t option(const std::string& name) {
  if (name == "async_level") return async_level();
  if (name == "executor") return static_cast<int>(exec_policy());
  if (name == "donation") return donation();
  if (name == "kernel_tier") return kernel_tier();
  if (name == "primitives_only") return primitives_only();
  if (name == "kernel_strategy") return kernel_strategy();
  if (name == "workspace_limit") return static_cast<int64_t>(std::min<size_t>(workspace_limit(), INT64_MAX));
  if (name == "piece_ns") return static_cast<int64_t>(costs().piece);
  if (name == "locations") return captures_locations();
  if (name == "enable_host_compute") return host_compute();
  fail(ErrorKind::Value, "option: there is no option '{}'.", name);
}
void set_option(const std::string& name, int64_t v) {
  if (name == "async_level") return set_async_level(static_cast<int>(v));
  if (name == "executor") {
    MGE_CHECK(v == 0 || v == 1, Value, "executor: expected 0 (inline) or 1 (async); got {}.", v);
    return set_exec_policy(static_cast<ExecPolicy>(v));
  }
  if (name == "donation") return set_donation(v != 0);
  if (name == "kernel_tier") return set_kernel_tier(static_cast<int>(v));
  if (name == "primitives_only") return set_primitives_only(v != 0);
  if (name == "kernel_strategy") return set_kernel_strategy(static_cast<uint32_t>(v));
  if (name == "workspace_limit") {
    MGE_CHECK(v >= 0, Value, "workspace_limit: expected a number of bytes; got {}.", v);
    return set_workspace_limit(v == INT64_MAX ? SIZE_MAX : static_cast<size_t>(v));
  }
  if (name == "piece_ns") {
    MGE_CHECK(v >= 0, Value, "piece_ns: expected nanoseconds; got {}.", v);
    Costs c = costs();
    c.piece = static_cast<double>(v);
    return set_costs(c);
  }
  if (name == "locations") return capture_locations(v != 0);
  if (name == "enable_host_compute") return set_host_compute(v != 0);
  fail(ErrorKind::Value, "option: there is no option '{}'.", name);
}

Pool& pool_of(nb::handle device) { return Pool::of(to_comp_node(device.ptr())->device); }

nb::dict memory_stats(nb::handle device) {
  Pool& pool = pool_of(device);
  PoolStats s = pool.stats();
  nb::dict d;
  d["allocated"] = s.allocated;
  d["reserved"] = s.reserved;
  d["max_allocated"] = s.max_allocated;
  d["max_reserved"] = s.max_reserved;
  d["limit"] = s.limit;
  d["allocations"] = s.allocations;
  d["blocks"] = s.blocks;
  d["largest_free"] = pool.largest_free();
  const Device where = to_comp_node(device.ptr())->device;
  auto [total, free] = Backend::of(where.kind).memory(where);
  d["total"] = total;
  d["free"] = free;
  return d;
}

void test_device(int64_t delay_us, int64_t fail_at, const std::string& fault, uint64_t seed) {
  static const std::pair<const char*, FakeFault> kFaults[] = {
      {"kernel", FakeFault::Kernel}, {"memory", FakeFault::Memory}, {"lost", FakeFault::Lost}};
  for (auto& [name, f] : kFaults) {
    if (fault != name) continue;
    enable_fake_devices();
    fake_reset();
    fake_set_delay(delay_us);
    fake_fail_at(fail_at, f);
    fake_set_seed(seed);
    return;
  }
  fail(ErrorKind::Value, "test_device: fault must be kernel, memory or lost; got '{}'.", fault);
}

// While somebody waits for the worker other Python threads run, and Ctrl-C is heard.
// A thread of the executor is none of the interpreter's, which says so only as long as it runs.
void* let_others_run() { return PyGILState_GetThisThreadState() && PyGILState_Check() ? PyEval_SaveThread() : nullptr; }
void take_turn_again(void* state) {
  if (state) take_turn(static_cast<PyThreadState*>(state));
}
unsigned long g_main_thread = 0;  // the only one that hears of signals
void check_signals() {
  if (PyThread_get_thread_ident() != g_main_thread) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  int raised = PyErr_CheckSignals();
  PyGILState_Release(gil);
  if (raised) throw PythonError{};
}

}  // namespace

void take_turn(PyThreadState* state) {
#if defined(__GLIBC__) && defined(__GLIBCXX__)
  try {
    PyEval_RestoreThread(state);
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  PyEval_RestoreThread(state);
#endif
}

const CompNode* to_comp_node(PyObject* o) {
  if (o == Py_None) return CompNode::default_node();
  if (PyUnicode_Check(o)) return CompNode::get(text_of(o));
  CompNodeObject* c;
  if (nb::try_cast(nb::handle(o), c)) return c->cn;
  fail(ErrorKind::Type, "device: expected a name such as 'cpu0' or a device object; got {}.", Py_TYPE(o)->tp_name);
}
PyObject* comp_node_object(const CompNode* cn) { return nb::cast(CompNodeObject{cn}).release().ptr(); }

}  // namespace mge::py

NB_MODULE(_core, m) {
  using namespace mge;
  using namespace mge::py;
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(
        PyExc_ImportError,
        "megengine runs in the main interpreter of a process only, not in a sub-interpreter. Import it there "
        "first, or use a process (multiprocessing) instead");
    throw nb::python_error();
  }
  // Types and hooks are globals of the library: a second module over them would pull them from under the first.
  static bool loaded = false;
  if (std::exchange(loaded, true)) {
    PyErr_SetString(PyExc_ImportError,
                    "the extension was loaded before in this process and cannot be loaded twice. Keep it in "
                    "sys.modules (as _megengine_core). Start a new process to begin anew");
    throw nb::python_error();
  }
  nb::set_leak_warnings(false);  // objects held by module globals at exit are no news to the user
  nb::register_exception_translator(translate);
  try {
    init_convert();
    if (!add_errors(m.ptr()) || !add_tensor_type(m.ptr()) || !add_ops(m.ptr()) || !add_trace_key(m.ptr()) ||
        !add_trace_entry(m.ptr()) || !add_trace_call(m.ptr()) || !add_op_classes(m.ptr()))
      throw nb::python_error();
  } catch (const PythonError&) {
    throw nb::python_error();
  }
  nb::class_<CompNodeObject>(m, "CompNode")
      .def(nb::new_([](const std::string& name) { return CompNodeObject{CompNode::get(name)}; }))
      .def_prop_ro("logical_name", [](const CompNodeObject& c) { return c.cn->logical; })
      .def_prop_ro("physical_name", [](const CompNodeObject& c) { return c.cn->physical; })
      .def_prop_ro("physical_locator",
                   [](const CompNodeObject& c) {
                     nb::list l;
                     bool threaded = c.cn->threads != 0;  // then the stream's place holds the number of threads
                     l.append(c.cn->type);
                     l.append(threaded ? c.cn->stream : c.cn->index);
                     l.append(threaded ? c.cn->index : c.cn->stream);
                     return l;
                   })
      .def_prop_ro("memory_node", [](const CompNodeObject& c) { return c.cn->device.name(); })
      .def("__str__", [](const CompNodeObject& c) { return c.cn->logical; })
      .def(
          "__repr__",
          [](const CompNodeObject& c) { return "CompNode(\"" + c.cn->physical + "\" from \"" + c.cn->logical + "\")"; })
      .def("__hash__", [](const CompNodeObject& c) { return std::hash<std::string>()(c.cn->logical); })
      .def("__reduce__",
           [](nb::handle self) { return nb::make_tuple(self.type(), nb::make_tuple(self.attr("logical_name"))); })
      .def(
          "__eq__",
          [](const CompNodeObject& c, nb::handle o) {
            if (o.is_none()) return false;
            CompNodeObject* other;
            if (nb::try_cast(o, other)) return c.cn->logical == other->cn->logical;
            if (!PyUnicode_Check(o.ptr())) return false;
            try {
              return c.cn->logical == CompNode::get(nb::cast<std::string>(o))->logical;
            } catch (const Error&) {
              return false;
            }
          },
          nb::arg("other").none());

  m.def("set_tensor_type", [](nb::handle t) {
    MGE_CHECK(PyType_Check(t.ptr()) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(t.ptr()), g_base_type), Type,
              "set_tensor_type: expected a subclass of TensorBase.");
    g_tensor_type = reinterpret_cast<PyTypeObject*>(t.inc_ref().ptr());
  });
  m.def("set_index_hooks", [](nb::handle get, nb::handle set) { set_index_hooks(get.ptr(), set.ptr()); });
  m.def("set_quant_hook", [](nb::handle quant) { set_quant_hook(quant.ptr()); });
  m.def(
      "numpy_dtype",
      [](const std::string& name) {
        Meta m;
        m.dtype = parse_dtype(name);
        return nb::steal(dtype_object(m));
      },
      "How a dtype of the engine looks to NumPy.");
  m.def(
      "tensor_type", [] { return nb::borrow(reinterpret_cast<PyObject*>(g_tensor_type)); },
      "The class of results: megengine.Tensor, for code below it.");
  m.def(
      "constant_dtype",
      [](nb::sequence strong, nb::sequence weak) {
        auto dtypes = [](nb::sequence list) {
          SmallVec<DType, 4> out;
          for (nb::handle h : list) out.push_back(to_dtype(h.ptr()));
          return out;
        };
        auto tensors = dtypes(strong), numbers = dtypes(weak);
        Meta m;
        m.dtype = constant_dtype({tensors.data(), tensors.size()}, {numbers.data(), numbers.size()});
        for (size_t i = 0; i < tensors.size(); ++i)  // with its scale
          if (is_quant(m.dtype) && tensors[i] == m.dtype) return nb::object(strong[i]);
        return nb::steal(dtype_object(m));
      },
      "The dtype of constants beside tensors and arrays of the dtypes `strong` and Python numbers of `weak`.");
  m.def("set_package_dir", [](const std::string& dir) { init_locations(dir.c_str()); });
  m.def(
      "exact_tensor",
      [](nb::handle data) {
        TensorOptions opt;
        opt.exact = true;
        return nb::steal(wrap(tensor_from_object(data.ptr(), opt)));
      },
      "A tensor that keeps float64 and int64 data as they are (for gradient checks).");
  m.def(
      "failed_tensor",
      [](const std::string& text) {
        ValuePtr v = make_ref<Value>();
        v->meta.cn = CompNode::default_node();
        v->error = std::make_shared<ExecError>(ErrorKind::Async, text);
        v->state.store(State::Failed, std::memory_order_release);
        return nb::steal(wrap(make_ref<Tensor>(std::move(v))));
      },
      "A tensor whose reading raises AsyncError, as that of an op that failed after its call.");
  auto steal = [](PyObject* r) {
    if (!r) throw nb::python_error();
    return nb::steal(r);
  };
  m.def(
      "to_dlpack", [steal](nb::handle tensor, uintptr_t stream) { return steal(to_dlpack(tensor.ptr(), stream)); },
      nb::arg("tensor"), nb::arg("stream") = 1);
  m.def("from_dlpack", [steal](nb::handle capsule) { return steal(from_dlpack(nullptr, capsule.ptr())); });
  m.def("get_default_device", [] { return CompNode::default_name(); });
  m.def("set_default_device", [](const std::string& n) { CompNode::set_default(n); });
  m.def("is_valid_device_name", [](const std::string& n) { return CompNode::is_valid_name(n); });
  m.def("device_count", [](const std::string& t) { return device_count(t); });
  m.def("memory_stats", memory_stats, nb::arg("device") = nb::none());
  m.def(
      "reset_peak_memory", [](nb::handle device) { pool_of(device).reset_peak(); }, nb::arg("device") = nb::none());
  m.def(
      "set_memory_limit", [](size_t bytes, nb::handle device) { pool_of(device).set_limit(bytes); }, nb::arg("bytes"),
      nb::arg("device") = nb::none());
  m.def("trim_memory", [] { return Pool::trim_all(); });
  m.def(
      "test_device", test_device, nb::arg("delay_us") = 0, nb::arg("fail_at") = 0, nb::arg("fault") = "kernel",
      nb::arg("seed") = 1,
      "From now on devices fake0, fake1 … exist: memory the host cannot read, streams in an order drawn from the seed, "
      "delays and faults as asked.");
#ifdef MGE_WITH_CUDA
  m.def("test_cuda_kernels", cuda::emulate_cuda, nb::arg("compiler"),
        "From now on the fake devices compute with the kernels of the GPU, built for the host by this compiler; empty: "
        "with those of the CPU.");
#endif
  m.def(
      "test_device_ops", [] { return fake_ops_run(); }, "Ops run on fake devices since the last test_device call.");
  m.def("get_option", option);
  m.def("set_option", set_option, nb::call_guard<OthersTurn>());
  m.def(
      "sync", [] { mge::sync(); }, nb::call_guard<OthersTurn>());
  m.def(
      "full_sync", [] { mge::sync(); }, nb::call_guard<OthersTurn>());
  m.def(
      "shutdown",
      [] {
        end_dist();
        shutdown_executor();
      },
      nb::call_guard<OthersTurn>());
  m.def("set_num_threads", [](int n) {
    set_num_threads(n);
    forget_kernel_choices();  // the fastest kernel for one thread need not be so for two
  });
  m.def("set_tuning_file", [](const std::string& path) { set_tuning_file(path); });
  m.def("tuning_file", [] { return tuning_file(); });
  m.def("default_tuning_file", [] { return default_tuning_file(); });
  m.def("tuning_stats", [] {
    nb::dict d;
    d["measured"] = tuning_stats().measured;
    d["found"] = tuning_stats().found;
    return d;
  });
  m.def("get_num_threads", [] { return num_threads(); });
  m.def("machine_report", [] { return describe(machine()); });
  m.def("thread_report", [] {
    const ThreadReport r = thread_report();
    nb::dict d;
    d["threads"] = r.count;
    d["from"] = r.from;
    d["warning"] = r.warning;
    d["cpus"] = r.cpus;
    d["cpus_from"] = r.cpus_from;
    d["workers"] = r.workers;
    const char* unused = onednn_unused();
    d["onednn_unused"] = unused ? unused : "";
    return d;
  });
  g_main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  set_wait_hooks({let_others_run, take_turn_again, check_signals});
  install_interp();
  set_fusion(interp_can_fuse);
  bind_grad(m);
  bind_modes(m);
  bind_trace(m);
  bind_model(m);
  bind_original(m);
  bind_files(m);
  bind_profile(m);
  bind_describe(m);
  bind_graph(m);
  bind_cuda(m);
  bind_custom(m);
  bind_dist(m);
}
