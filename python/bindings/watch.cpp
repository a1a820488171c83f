#include "watch.h"

#include "trace_key.h"

namespace mge::py {
namespace {

constexpr int kMaxDepth = 12;
constexpr size_t kMaxRefs = 2000;

PyObject* trace_state() {
  static PyObject* const name = PyUnicode_InternFromString("_trace_state");
  return name;
}

// Where an object keeps its attributes; null when it has no dict.
Obj dict_of(PyObject* o) {
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  Obj d(PyObject_GetAttr(o, name));
  if (!d) PyErr_Clear();
  if (d && !PyDict_Check(d.get())) return Obj();
  return d;
}

bool is_plain(PyObject* o) {
  return o == Py_None || PyBool_Check(o) || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) ||
         PyBytes_Check(o) || PyComplex_CheckExact(o) || o == Py_Ellipsis || PyRange_Check(o) || PyModule_Check(o) ||
         PyCFunction_Check(o);
}

}  // namespace

void Watch::push(Kind kind, PyObject* of, std::initializer_list<PyObject*> found, uint32_t version) {
  refs_.emplace_back(Py_NewRef(of));
  steps_.push_back({kind, of, refs_.size(), found.size(), version});
  for (PyObject* o : found) refs_.emplace_back(Py_XNewRef(o));
}

bool Watch::seen(PyObject* o) const {
  for (auto& s : steps_)
    if (s.of == o) return true;
  return false;
}

bool Watch::add_note(PyObject* note) {
  using namespace note_fields;
  PyObject *target = PyTuple_GET_ITEM(note, kTarget), *name = PyTuple_GET_ITEM(note, kName);
  const bool deep = PyObject_IsTrue(PyTuple_GET_ITEM(note, kDeep));
  if (name != Py_None) {
    PyObject* v = PyDict_GetItemWithError(target, name);
    if (!v && PyErr_Occurred()) throw PythonError{};
    push(Kind::Item, target, {name, v});
    return !v || value(v, deep, 0);
  }
  if (PyFunction_Check(target)) return code_and_defaults(target, deep, 0);
  if (PyCell_Check(target) || PyType_Check(target)) return value(target, deep, 0);
  PyObject* says = _PyType_Lookup(Py_TYPE(target), trace_state());
  return says ? owner(target, says) : object(target, deep, 0);
}

// What an object says of itself can be watched where its class tells what it goes by: `_trace_watched` is the method
// that says it, so that an overriding one is not taken for it, and None for all attributes and what they refer to, or
// the names of those of which more than the identity counts.
bool Watch::owner(PyObject* o, PyObject* says) {
  static PyObject* const name = PyUnicode_InternFromString("_trace_watched");
  PyObject* watched = _PyType_Lookup(Py_TYPE(o), name);
  if (!watched || !PyTuple_Check(watched) || PyTuple_GET_SIZE(watched) != 2 || PyTuple_GET_ITEM(watched, 0) != says)
    return false;
  PyObject* deep = PyTuple_GET_ITEM(watched, 1);
  if (deep == Py_None) return object(o, true, 0);
  Obj dict = dict_of(o);
  if (!dict || !PyTuple_Check(deep) || is_users_class(Py_TYPE(o))) return false;
  push(Kind::Object, o, {reinterpret_cast<PyObject*>(Py_TYPE(o)), dict.get()});
  list_items(dict.get());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(deep); ++i) {
    PyObject* v = PyDict_GetItemWithError(dict.get(), PyTuple_GET_ITEM(deep, i));
    if (!v && PyErr_Occurred()) throw PythonError{};
    if (v && !value(v, true, 1)) return false;
  }
  return true;
}

bool Watch::add(PyObject* o, bool deep) { return value(o, deep, 0); }

bool Watch::value(PyObject* o, bool deep, int depth) {
  if (is_plain(o) || is_tensor(o)) return true;
  if (depth > kMaxDepth || refs_.size() > kMaxRefs) return false;
  if (PyTuple_Check(o)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (!value(PyTuple_GET_ITEM(o, i), deep, depth + 1)) return false;
    return true;
  }
  if (PyType_Check(o)) return class_of(reinterpret_cast<PyTypeObject*>(o));
  if (PyFunction_Check(o)) return function(o, deep, depth);
  if (PyMethod_Check(o))
    return value(PyMethod_GET_FUNCTION(o), deep, depth + 1) && value(PyMethod_GET_SELF(o), deep, depth + 1);
  if (PyCell_Check(o)) {
    PyObject* content = PyCell_GET(o);
    push(Kind::Cell, o, {content});
    return !content || value(content, deep, depth + 1);
  }
  const bool container = PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) || is(o, types().deque);
  if (container && !deep) return !PyFrozenSet_Check(o);  // by address
  if (PyList_CheckExact(o)) {
    if (seen(o)) return true;
    refs_.emplace_back(Py_NewRef(o));
    steps_.push_back({Kind::List, o, refs_.size(), static_cast<size_t>(PyList_GET_SIZE(o))});
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) refs_.emplace_back(Py_NewRef(PyList_GET_ITEM(o, i)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i)
      if (!value(PyList_GET_ITEM(o, i), deep, depth + 1)) return false;
    return true;
  }
  if (PyDict_CheckExact(o) || PyODict_CheckExact(o)) return seen(o) || items(o, deep, depth);
  if (container || PyByteArray_Check(o) || PySlice_Check(o)) return false;
  if (is(o, types().enumeration) || is(o, types().generic) || is(o, types().np_dtype)) return true;
  if (is(o, types().ndarray) || is(o, types().partial)) return false;
  if (_PyType_Lookup(Py_TYPE(o), trace_state())) return true;  // its state is a note of its own
  return object(o, deep, depth);
}

size_t Watch::list_items(PyObject* dict) {
  refs_.emplace_back(Py_NewRef(dict));
  steps_.push_back({Kind::Dict, dict, refs_.size(), 0});
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &k, &v)) {
    refs_.emplace_back(Py_NewRef(k));
    refs_.emplace_back(Py_NewRef(v));
    steps_.back().n += 2;
  }
  return steps_.size() - 1;
}

bool Watch::items(PyObject* dict, bool deep, int depth) {
  if (static_cast<size_t>(PyDict_GET_SIZE(dict)) > kMaxRefs) return false;
  const size_t at = list_items(dict);
  for (size_t i = 0; i < steps_[at].n; ++i)
    if (!value(refs_[steps_[at].first + i].get(), deep, depth + 1)) return false;
  return true;
}

bool Watch::object(PyObject* o, bool deep, int depth) {
  if (seen(o)) return true;
  PyTypeObject* type = Py_TYPE(o);
  static PyObject* const slots = PyUnicode_InternFromString("__slots__");
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && !is(o, types().space)) return true;  // by address
  Obj dict = dict_of(o);
  push(Kind::Object, o, {reinterpret_cast<PyObject*>(type), dict.get()});
  if (is_users_class(type) && !class_of(type)) return false;
  if (PyList_Check(o) || PyDict_Check(o) || _PyType_Lookup(type, slots)) return false;
  return !dict || !deep || seen(dict.get()) || items(dict.get(), deep, depth + 1);
}

bool Watch::function(PyObject* f, bool deep, int depth) {
  if (seen(f)) return true;
  PyObject* cells = reinterpret_cast<PyFunctionObject*>(f)->func_closure;
  return code_and_defaults(f, deep, depth) && (!cells || value(cells, deep, depth + 1));
}

bool Watch::code_and_defaults(PyObject* f, bool deep, int depth) {
  auto* fn = reinterpret_cast<PyFunctionObject*>(f);
  push(Kind::Function, f, {fn->func_code, fn->func_defaults, fn->func_kwdefaults});
  for (PyObject* part : {fn->func_defaults, fn->func_kwdefaults})
    if (part && !value(part, deep, depth + 1)) return false;
  return true;
}

bool Watch::class_of(PyTypeObject* type) {
  if (!is_users_class(type)) return true;
  _PyType_Lookup(type, trace_state());  // gives it a version if it has none
  const uint32_t now = class_version(type);
  if (now) push(Kind::Class, reinterpret_cast<PyObject*>(type), {}, now);
  return now;
}

bool Watch::holds() const {
  for (auto& s : steps_) {
    auto found = [&](size_t i) { return refs_[s.first + i].get(); };
    switch (s.kind) {
      case Kind::Item: {
        PyObject* v = PyDict_GetItemWithError(s.of, found(0));
        if (v != found(1)) return PyErr_Clear(), false;
        break;
      }
      case Kind::Cell:
        if (PyCell_GET(s.of) != found(0)) return false;
        break;
      case Kind::Dict: {
        if (static_cast<size_t>(PyDict_GET_SIZE(s.of)) * 2 != s.n) return false;
        PyObject *k, *v;
        Py_ssize_t pos = 0;
        for (size_t i = 0; PyDict_Next(s.of, &pos, &k, &v); i += 2)
          if (k != found(i) || v != found(i + 1)) return false;
        break;
      }
      case Kind::List:
        if (static_cast<size_t>(PyList_GET_SIZE(s.of)) != s.n) return false;
        for (size_t i = 0; i < s.n; ++i)
          if (PyList_GET_ITEM(s.of, static_cast<Py_ssize_t>(i)) != found(i)) return false;
        break;
      case Kind::Function: {
        auto* fn = reinterpret_cast<PyFunctionObject*>(s.of);
        if (fn->func_code != found(0) || fn->func_defaults != found(1) || fn->func_kwdefaults != found(2)) return false;
        break;
      }
      case Kind::Class:
        if (class_version(reinterpret_cast<PyTypeObject*>(s.of)) != s.version) return false;
        break;
      case Kind::Object:
        if (reinterpret_cast<PyObject*>(Py_TYPE(s.of)) != found(0) || dict_of(s.of).get() != found(1)) return false;
        break;
    }
  }
  return true;
}

int Watch::traverse(visitproc visit, void* arg) const {
  for (auto& r : refs_) Py_VISIT(r.get());
  return 0;
}
void Watch::clear() {
  steps_.clear();
  std::vector<Obj> refs = std::move(refs_);
  refs_.clear();
}

}  // namespace mge::py
