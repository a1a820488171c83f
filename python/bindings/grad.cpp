// GradSession for Python; megengine.autodiff builds GradManager and Function on it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "common.h"
#include "eager/tape.h"

namespace nb = nanobind;

namespace mge::py {
namespace {

using Tensors = SmallVec<Tensor*, 4>;

Tensors tensors(nb::sequence seq, const char* who) {
  Tensors out;
  for (nb::handle h : seq) {
    MGE_CHECK(is_tensor(h.ptr()), Type, "{}: expected Tensors; got {}.", who, Py_TYPE(h.ptr())->tp_name);
    out.push_back(tensor_of(h.ptr()));
  }
  return out;
}

class PySession {
 public:
  PySession() : s_(make_ref<GradSession>()) {}
  GradSession& operator*() const { return *s_; }
  GradSession* operator->() const { return s_.get(); }

 private:
  RefPtr<GradSession> s_;
};

/// One gradient may go to several receivers, and each may assign through its tensor: everybody gets a cell of their
/// own. Its memory format is that of the tensor it belongs to, which the receiver knows.
PyObject* wrap_grad(const TensorPtr& g) {
  TensorPtr own = Tensor::alias(*g);
  own->links = g->links;
  own->modes = 0;
  return wrap(std::move(own));
}

/// A Python callable that a C++ object may outlive the interpreter with.
struct Callable {
  PyObject* f;
  explicit Callable(nb::handle h) : f(h.inc_ref().ptr()) {}
  Callable(const Callable& o) : f(Py_NewRef(o.f)) {}
  ~Callable() {
    if (Py_IsInitialized()) Py_DECREF(f);
  }
};

}  // namespace

void bind_grad(nb::module_& m) {
  nb::class_<PySession>(m, "GradSession", nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("start", [](PySession& s) { s->start(); })
      .def("stop", [](PySession& s) { s->stop(); })
      .def_prop_ro("active", [](PySession& s) { return s->active(); })
      .def("suppress", [](PySession& s) { s->suppress(); })
      .def("resume", [](PySession& s) { s->resume(); })
      .def("attach",
           [](PySession& s, nb::handle t, nb::handle cb) {
             MGE_CHECK(is_tensor(t.ptr()), Type, "attach: expected a Tensor; got {}.", Py_TYPE(t.ptr())->tp_name);
             s->attach(*tensor_of(t.ptr()), [f = Callable(cb)](TensorPtr g) {
               Obj arg(wrap_grad(g));
               Obj r(PyObject_CallOneArg(f.f, arg.get()));
               if (!r) throw PythonError{};
             });
           })
      .def("is_attached",
           [](PySession& s, nb::handle t) {
             return is_tensor(t.ptr()) && s->active() && s->is_attached(*tensor_of(t.ptr()));
           })
      .def("backward", [](PySession& s, nb::sequence ys, nb::sequence dys) {
        Tensors y = tensors(ys, "backward"), dy = tensors(dys, "backward");
        s->backward({y.data(), y.size()}, {dy.data(), dy.size()});
      });
  nb::class_<Unrecorded>(m, "Unrecorded")
      .def(nb::init<>())
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](Unrecorded& u, nb::args) { u.end(); })
      .def("record", [](Unrecorded& u, nb::callable again, nb::sequence ins, nb::sequence outs) {
        Tensors in = tensors(ins, "checkpoint"), out = tensors(outs, "checkpoint");
        u.record(
            [f = Callable(again)](const std::vector<TensorPtr>&) {
              Obj r = check(PyObject_CallNoArgs(f.f));
              std::vector<TensorPtr> ys;
              for (Tensor* t : tensors(nb::borrow<nb::sequence>(r.get()), "checkpoint")) ys.emplace_back(t);
              return ys;
            },
            {in.data(), in.size()}, {out.data(), out.size()});
      });
  m.def("is_recording", [] { return any_recording(); });
  m.def("begin_group", [] { GradSession::begin_group(); });
  m.def("end_group", [] { GradSession::end_group(); });
  m.def("is_tracked", [](nb::sequence ts) {
    Tensors t = tensors(ts, "is_tracked");
    return tracking_session({t.data(), t.size()}) != nullptr;
  });
  m.def("same_value", [](nb::handle a, nb::handle b) {
    return is_tensor(a.ptr()) && is_tensor(b.ptr()) && tensor_of(a.ptr())->value == tensor_of(b.ptr())->value;
  });
  // Runs fn() with recording suppressed for the innermost session that tracks an input (and its group), and returns the
  // result.
  m.def("run_untracked", [](nb::sequence ts, nb::callable fn) -> nb::object {
    Tensors t = tensors(ts, "run_untracked");
    GradSession* s = tracking_session({t.data(), t.size()});
    if (!s) return fn();
    s->suppress();
    try {
      nb::object r = fn();
      s->resume();
      return r;
    } catch (...) {
      s->resume();
      throw;
    }
  });
  m.def("set_custom_grad", [](nb::callable backward, nb::sequence ins, nb::sequence outs) {
    Tensors in = tensors(ins, "Function"), out = tensors(outs, "Function");
    size_t n = in.size();
    CustomVjp rule = [f = Callable(backward), n](const std::vector<TensorPtr>& gys) {
      Obj args = check(PyTuple_New(static_cast<Py_ssize_t>(gys.size())));
      for (size_t i = 0; i < gys.size(); ++i)
        PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), gys[i] ? wrap_grad(gys[i]) : Py_NewRef(Py_None));
      Obj r = check(PyObject_Call(f.f, args.get(), nullptr));
      std::vector<TensorPtr> gxs(n);
      auto take = [&](size_t i, PyObject* o) {
        MGE_CHECK(o == Py_None || is_tensor(o), Type, "Function.backward: gradient {} is a {}, not a Tensor or None.",
                  i, Py_TYPE(o)->tp_name);
        if (o != Py_None) gxs[i] = TensorPtr(tensor_of(o));
      };
      if (PyTuple_Check(r.get()) || PyList_Check(r.get())) {
        size_t got = static_cast<size_t>(PySequence_Fast_GET_SIZE(r.get()));
        auto item = [&](size_t i) { return PySequence_Fast_GET_ITEM(r.get(), static_cast<Py_ssize_t>(i)); };
        while (got > n && item(got - 1) == Py_None)
          --got;  // one for each argument of forward, where some are no tensors
        MGE_CHECK(got == n, Value, "Function.backward: returned {} gradients for {} inputs.", got, n);
        for (size_t i = 0; i < n; ++i) take(i, item(i));
      } else if (r.get() != Py_None) {
        MGE_CHECK(n == 1, Value, "Function.backward: returned one gradient for {} inputs.", n);
        take(0, r.get());
      }
      return gxs;
    };
    tape_record_custom(std::move(rule), {in.data(), in.size()}, {out.data(), out.size()});
  });
}

}  // namespace mge::py
