#include "trace_result.h"

namespace mge::py {
namespace {

PyObject* field(PyObject* plan, Py_ssize_t i) {
  MGE_ASSERT(PyTuple_Check(plan) && i < PyTuple_GET_SIZE(plan), "trace: not a plan of a result");
  return PyTuple_GET_ITEM(plan, i);
}
size_t number(PyObject* plan, Py_ssize_t i) {
  Py_ssize_t n = PyLong_AsSsize_t(field(plan, i));
  MGE_ASSERT(n >= 0, "trace: not a number in the plan of a result");
  return static_cast<size_t>(n);
}

}  // namespace

Obj ResultBuilder::build(PyObject* plan) { return part(plan); }

Obj ResultBuilder::part(PyObject* plan) {
  const auto kind = static_cast<Part>(number(plan, 0));
  switch (kind) {
    case Part::New:
      return Obj(Py_NewRef(new_[number(plan, 1)].get()));
    case Part::Argument:
      return Obj(Py_NewRef(args_[number(plan, 1)].get()));
    case Part::Same:
      return Obj(Py_NewRef(field(plan, 1)));
    case Part::Size:
      return Obj(wrap(TensorPtr(tensor_of(new_[number(plan, 1)].get())), g_size_type));
    case Part::Grad:
      return check(PyObject_GetAttrString(field(plan, 1), "grad"));
    case Part::Copy:
      return check(PyObject_CallMethod(field(plan, 1), "copy", nullptr));
    case Part::Again:
      return Obj(Py_NewRef(slots_[number(plan, 1)]));
    default: {
      Obj made = container(kind, plan);
      const size_t slot = number(plan, 1);
      if (slots_.size() <= slot) slots_.resize(slot + 1);
      slots_[slot] = made.get();
      return made;
    }
  }
}

Obj ResultBuilder::container(Part kind, PyObject* plan) {
  PyObject* parts = field(plan, 2);
  const Py_ssize_t n = PyTuple_GET_SIZE(parts);
  if (kind == Part::Dict || kind == Part::Filled) {
    PyObject* keys = field(plan, 3);
    Obj made = check(kind == Part::Dict ? PyDict_New() : PyObject_CallNoArgs(field(plan, 4)));
    for (Py_ssize_t i = 0; i < n; ++i) {
      Obj v = part(PyTuple_GET_ITEM(parts, i));
      // A subclass keeps an order of its own.
      const int failed = kind == Part::Dict ? PyDict_SetItem(made.get(), PyTuple_GET_ITEM(keys, i), v.get())
                                            : PyObject_SetItem(made.get(), PyTuple_GET_ITEM(keys, i), v.get());
      if (failed) throw PythonError{};
    }
    return made;
  }
  if (kind == Part::Fields) {
    auto* type = reinterpret_cast<PyTypeObject*>(field(plan, 4));
    static PyObject* const nothing = PyTuple_New(0);
    Obj made = check(PyBaseObject_Type.tp_new(type, nothing, nullptr));
    for (Py_ssize_t i = 0; i < n; ++i) {
      Obj v = part(PyTuple_GET_ITEM(parts, i));
      if (PyObject_GenericSetAttr(made.get(), PyTuple_GET_ITEM(field(plan, 3), i), v.get())) throw PythonError{};
    }
    return made;
  }
  if (kind == Part::Tuple || kind == Part::Called || kind == Part::Named) {
    Obj made = check(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(made.get(), i, part(PyTuple_GET_ITEM(parts, i)).release());
    if (kind == Part::Tuple) return made;
    if (kind == Part::Called) return check(PyObject_Call(field(plan, 3), made.get(), nullptr));
    Obj args = check(PyTuple_Pack(1, made.get()));
    return check(PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(field(plan, 3)), args.get(), nullptr));
  }
  Obj made = check(PyList_New(n));
  for (Py_ssize_t i = 0; i < n; ++i) PyList_SET_ITEM(made.get(), i, part(PyTuple_GET_ITEM(parts, i)).release());
  return kind == Part::List ? std::move(made) : check(PyObject_CallOneArg(field(plan, 3), made.get()));
}

}  // namespace mge::py
