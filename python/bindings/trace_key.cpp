// What a recording depends on besides tensors, as bytes: the key of a call (its argument tree, full metas, aliasing)
// and the state of objects that took part. Equal bytes mean equal: values are written out, everything else by address,
// and whoever keeps the bytes keeps the objects behind the addresses alive (`held`), so that no address is used twice.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>

#include "common.h"
#include "eager/tape.h"
#include "trace_key.h"

namespace mge::py {
namespace {

std::atomic<uint64_t> g_mutation{1};
uint32_t g_config = 0;  // which of the states that megengine.config has been in
// Of the call being recorded on this thread: {id: note}; borrowed from the trace that records.
thread_local PyObject* t_notes = nullptr;
thread_local std::string t_spare;          // of the last key: a call need not allocate one
thread_local PyObject* t_grads = nullptr;  // {id: (tensor, gradient when it was first looked at)}

constexpr Py_ssize_t kMaxArrayBytes = 1 << 16;
constexpr int kMaxNodes = 20000;
constexpr int kMaxNoteNodes = 400;  // of what is looked at on each call
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxObjectDepth = 3;  // objects in objects in objects

PyObject* interned(const char* s) { return PyUnicode_InternFromString(s); }

struct Names {
  PyObject *trace_state = interned("_trace_state"), *dict = interned("__dict__"),
           *fields = interned("__dataclass_fields__"), *qparams = interned("_qparams"), *dtype = interned("dtype"),
           *shape = interned("shape"), *tobytes = interned("tobytes"), *nbytes = interned("nbytes"),
           *metadata = interned("metadata"), *hasobject = interned("hasobject"),
           *cell_contents = interned("cell_contents"), *default_factory = interned("default_factory"),
           *func = interned("func"), *args = interned("args"), *keywords = interned("keywords"),
           *is_volatile = interned("_trace_volatile"), *slots = interned("__slots__");
};
const Names& names() {
  static const Names n;
  return n;
}

// By what right an object that is no plain value enters the bytes.
enum class Mode {
  Strict,   // a call that is replayed without Python: what cannot be keyed is refused
  Loose,    // a call whose body runs again: large arrays by type, unknown objects by address
  State,    // what an object refers to: tensors and unknown objects by address, containers by content
  Shallow,  // the same, containers by address as well
};

class KeyBuilder {
 public:
  // held: a list of the objects that the bytes name by address, for whoever keeps the bytes; null when they are only
  // compared with bytes whose objects are kept. tensors: those of the arguments; null: tensors go by address.
  KeyBuilder(Mode mode, PyObject* held, ArgTensors* tensors) : mode_(mode), held_(held), tensors_(tensors) {}

  std::string bytes;
  int nodes = 0;
  void set_any_size(bool on) { any_size_ = on; }  // sizes of tensors are none of the key's business

  void add(PyObject* o) {
    if (o == Py_None) return put('N');
    if (o == Py_True) return put('T');
    if (o == Py_False) return put('F');
    if (is_tensor(o)) return tensor(o);
    if (PyLong_CheckExact(o)) return integer(o);
    if (PyFloat_CheckExact(o)) return put('f', PyFloat_AS_DOUBLE(o));
    if (PyUnicode_CheckExact(o)) return text(o);
    if (++nodes > kMaxNodes || path_.size() > kMaxDepth) return too_big(o);
    if (PyTuple_CheckExact(o)) return sequence('(', o);
    if (PyList_CheckExact(o)) return deep() ? sequence('[', o) : address('p', o);
    if (PyDict_Check(o)) return deep() ? mapping(o) : address('p', o);
    if (o == Py_Ellipsis) return put('E');
    if (PyComplex_CheckExact(o)) {
      put('c', PyComplex_RealAsDouble(o));
      return raw(PyComplex_ImagAsDouble(o));
    }
    if (PyBytes_CheckExact(o)) return blob('b', PyBytes_AS_STRING(o), PyBytes_GET_SIZE(o));
    if (PyByteArray_CheckExact(o)) return blob('B', PyByteArray_AS_STRING(o), PyByteArray_GET_SIZE(o));
    if (PySlice_Check(o)) return parts('l', o, {"start", "stop", "step"});
    if (PyRange_Check(o)) return parts('r', o, {"start", "stop", "step"});
    if (PyAnySet_Check(o)) return PyFrozenSet_Check(o) || deep() ? set(o) : address('p', o);
    if (PyType_Check(o)) return class_state(reinterpret_cast<PyTypeObject*>(o));
    if (PyModule_Check(o) || PyCFunction_Check(o)) return address('t', o);
    if (PyFunction_Check(o)) return function(o);
    if (PyMethod_Check(o)) {
      put('m');
      add(PyMethod_GET_FUNCTION(o));
      return nested(o, ".__self__", [&] { add(PyMethod_GET_SELF(o)); });
    }
    other(o);
  }

  /// What a function is apart from its address: code, defaults, and what its closure holds now.
  void function(PyObject* f) {
    put('<');
    Mode outer = std::exchange(mode_, mode_ == Mode::Shallow ? Mode::Shallow : Mode::State);
    auto* fn = reinterpret_cast<PyFunctionObject*>(f);
    code_and_defaults(f);
    nested(f, "", [&] {
      for (Py_ssize_t i = 0; fn->func_closure && i < PyTuple_GET_SIZE(fn->func_closure); ++i)
        cell(PyTuple_GET_ITEM(fn->func_closure, i));
    });
    mode_ = outer;
    put('>');
  }
  void code_and_defaults(PyObject* f) {
    auto* fn = reinterpret_cast<PyFunctionObject*>(f);
    address('t', fn->func_code);
    address('t', fn->func_globals);
    nested(f, "", [&] {
      add(fn->func_defaults ? fn->func_defaults : Py_None);
      add(fn->func_kwdefaults ? fn->func_kwdefaults : Py_None);
    });
  }

  /// A class of the user's, with the attributes that its instances share.
  void class_state(PyTypeObject* type) {
    address('t', reinterpret_cast<PyObject*>(type));
    if (mode_ == Mode::Loose || !type->tp_mro || !is_users_class(type)) return;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
      auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
      if (!is_users_class(base)) continue;
      PyObject *k, *v;
      Py_ssize_t pos = 0;
      while (base->tp_dict && PyDict_Next(base->tp_dict, &pos, &k, &v)) {
        Py_ssize_t n;
        const char* name = PyUnicode_Check(k) ? PyUnicode_AsUTF8AndSize(k, &n) : nullptr;
        if (!name || (n > 1 && name[0] == '_' && (name[1] == '_' || !std::strncmp(name, "_abc_", 5)))) continue;
        text(k);
        PyLong_CheckExact(v) || PyFloat_CheckExact(v) || PyUnicode_CheckExact(v) ? add(v) : address('t', v);
      }
    }
  }
  void cell(PyObject* c) {
    PyObject* content = PyCell_GET(c);
    content ? add(content) : put('U');
  }

  /// The state of an object that took part: what `_trace_state` says, or its attributes.
  void state(PyObject* o) {
    if (is(o, types().cell)) return cell(o);
    if (PyFunction_Check(o)) return code_and_defaults(o);  // its cells are notes of their own
    if (PyType_Check(o)) return class_state(reinterpret_cast<PyTypeObject*>(o));
    if (is_users_class(Py_TYPE(o))) class_state(Py_TYPE(o));
    if (PyObject* method = _PyType_Lookup(Py_TYPE(o), names().trace_state)) {
      Obj s = check(PyObject_CallOneArg(method, o));
      return nested(o, "", [&] { PyDict_Check(s.get()) ? items(s.get()) : add(s.get()); });
    }
    Obj dict(PyObject_GetAttr(o, names().dict));
    if (!dict) return PyErr_Clear(), add(o);
    nested(o, "", [&] { items(dict.get()); });
  }

  void no_items() { put('{', Py_ssize_t{0}); }
  /// What decides which ops any call makes and what they compute.
  void settings(const CallSettings& how) {
    raw(how.strict);
    raw(how.any_size);
    raw(CompNode::default_node());
    raw(mode::settings());
    raw(g_config);
    PyFunction_Check(how.function) ? address('t', how.function) : add(how.function);
  }

  // Which sessions record now, and which of the tensors of this call they follow: both decide what the tape keeps.
  void gradients(std::span<Tensor* const> ts) {
    if (!any_recording()) return;
    put('G', grad_context());
    for (Tensor* t : ts) raw(link_mask(*t));
  }

 private:
  bool deep() const { return mode_ != Mode::Shallow; }
  template <class T>
  void raw(const T& v) {
    bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void put(char tag) { bytes.push_back(tag); }
  template <class T>
  void put(char tag, const T& v) {
    put(tag);
    raw(v);
  }
  void blob(char tag, const char* p, Py_ssize_t n) {
    put(tag, n);
    bytes.append(p, static_cast<size_t>(n));
  }
  void address(char tag, PyObject* o) {
    put(tag, o);
    if (held_ && PyList_Append(held_, o) != 0) throw PythonError{};
  }
  void text(PyObject* o) {
    Py_ssize_t n;
    if (const char* s = PyUnicode_AsUTF8AndSize(o, &n)) return blob('s', s, n);
    PyErr_Clear();  // lone surrogates
    address('t', o);
  }
  void integer(PyObject* o) {
    int overflow;
    long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) return put('i', v);
    Obj hex = check(PyNumber_ToBase(o, 16));
    put('I');
    text(hex.get());
  }

  template <class F>
  void nested(PyObject* o, const char* name, F&& f) {
    for (size_t i = 0; i < path_.size(); ++i)
      if (path_[i].object == o && !*name) return put('R', i);  // a cycle
    path_.push_back({o, name, 0, nullptr});
    f();
    path_.pop_back();
  }
  void sequence(char tag, PyObject* o) {
    put(tag, PySequence_Fast_GET_SIZE(o));
    nested(o, "", [&] {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
        path_.back().index = i;
        path_.back().name = "[]";
        add(PySequence_Fast_GET_ITEM(o, i));
      }
    });
  }
  void items(PyObject* o) {
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    put('{', PyDict_GET_SIZE(o));
    while (PyDict_Next(o, &pos, &k, &v)) {
      path_.back().key = k;
      path_.back().name = "{}";
      Obj key(Py_NewRef(k)), value(Py_NewRef(v));
      add(k);
      add(v);
    }
  }
  void mapping(PyObject* o) {
    if (!PyDict_CheckExact(o)) {
      address('t', reinterpret_cast<PyObject*>(Py_TYPE(o)));
      if (is(o, types().defaultdict)) {
        Obj factory = check(PyObject_GetAttr(o, names().default_factory));
        add(factory.get());
      }
    }
    nested(o, "", [&] { items(o); });
  }
  void set(PyObject* o) {
    address('t', reinterpret_cast<PyObject*>(Py_TYPE(o)));
    std::vector<std::string> elements;
    Obj it = check(PyObject_GetIter(o));
    std::string outer = std::move(bytes);
    while (PyObject* e = PyIter_Next(it.get())) {
      Obj element(e);
      bytes.clear();
      add(e);
      elements.push_back(std::move(bytes));
    }
    bytes = std::move(outer);
    if (PyErr_Occurred()) throw PythonError{};
    std::sort(elements.begin(), elements.end());
    put('S', elements.size());
    for (auto& e : elements) bytes += e;
  }
  void parts(char tag, PyObject* o, std::initializer_list<const char*> attributes) {
    put(tag);
    for (const char* a : attributes) {
      Obj part = check(PyObject_GetAttrString(o, a));
      add(part.get());
    }
  }

  void tensor(PyObject* o) {
    if (!tensors_) return address('v', o);
    Tensor* t = tensor_of(o);
    put('x', Py_TYPE(o));
    tensors_->emplace_back(Py_NewRef(o));
    const auto [number, first] = numbered(t);
    raw(number);
    if (!first) return;
    const Meta& m = t->meta();
    raw(m.dtype);
    raw(m.cn);
    raw(m.quant.scale);
    raw(m.quant.zero_point);
    raw(m.quant.list);
    raw(m.shape.rank);
    if (!any_size_)
      for (int64_t d : m.shape) raw(d);
    raw(t->modes);  // its memory format
    Obj qparams(PyObject_GetAttr(o, names().qparams));
    if (!qparams) return PyErr_Clear();  // a bare TensorBase
    if (qparams.get() != Py_None) add(qparams.get());
  }

  void other(PyObject* o) {
    PyTypeObject* type = Py_TYPE(o);
    auto* type_object = reinterpret_cast<PyObject*>(type);
    if (is(o, types().enumeration)) return address('t', o);
    if (is(o, types().generic) || is(o, types().ndarray)) return array(o);
    if (is(o, types().np_dtype)) return dtype(o);
    if (is(o, types().partial)) return parts('P', o, {"func", "args", "keywords"});
    if (_PyType_Lookup(type, names().trace_state)) return address('M', o);  // its state is compared as a note
    if (_PyType_Lookup(type, names().fields)) {
      address('t', type_object);
      return attributes(o, _PyType_Lookup(type, names().fields));
    }
    if (PyTuple_Check(o) || PyList_Check(o)) {
      if (PyList_Check(o) && !deep()) return address('p', o);
      address('t', type_object);
      sequence('(', o);
      return has_dict(o) && PyList_Check(o) ? attributes(o, nullptr) : void();
    }
    if (is(o, types().deque)) {
      if (!deep()) return address('p', o);
      Obj list = check(PySequence_List(o));
      address('t', type_object);
      return sequence('[', list.get());
    }
    if (is(o, types().cell)) return cell(o);
    address('o', o);
    if (PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o)) return;  // immutable
    // Attributes are not all there is to a file.
    const bool plain = PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || is(o, types().space);
    if (plain && (has_dict(o) || _PyType_Lookup(type, names().slots))) {
      if (is_users_class(type)) class_state(type);
      if (!deep() || (mode_ == Mode::State && path_.size() > kMaxObjectDepth)) return;
      Mode outer = std::exchange(mode_, Mode::State);  // what it refers to need not be comparable
      attributes(o, nullptr);
      mode_ = outer;
      return;
    }
    const bool value_type =
        type->tp_hash && type->tp_hash != PyBaseObject_Type.tp_hash && type->tp_hash != PyObject_HashNotImplemented;
    if (mode_ == Mode::Strict && !value_type) refuse(o, "has a state that cannot be compared");
  }
  static bool has_dict(PyObject* o) {
    Obj d(PyObject_GetAttr(o, names().dict));
    return d ? true : (PyErr_Clear(), false);
  }
  // Inside an argument tensors are arguments as well.
  void attributes(PyObject* o, PyObject* fields) {
    nested(o, "", [&] {
      Obj d(PyObject_GetAttr(o, names().dict));
      if (d) {
        items(d.get());
        if (fields) return;
      }
      PyErr_Clear();
      if (!fields) return slots(o);
      PyObject *k, *v;
      Py_ssize_t pos = 0;
      while (PyDict_Next(fields, &pos, &k, &v)) {
        Obj value = check(PyObject_GetAttr(o, k));
        path_.back().key = k;
        path_.back().name = "{}";
        add(value.get());
      }
    });
  }

  void slots(PyObject* o) {
    PyObject* mro = Py_TYPE(o)->tp_mro;
    for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
      PyObject* dict = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i))->tp_dict;
      PyObject* given = dict ? PyDict_GetItem(dict, names().slots) : nullptr;
      if (!given) continue;
      Obj all = PyUnicode_Check(given) ? check(PyTuple_Pack(1, given)) : check(PySequence_Tuple(given));
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(all.get()); ++k) {
        PyObject* name = PyTuple_GET_ITEM(all.get(), k);
        if (PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) continue;
        if (PyUnicode_CompareWithASCIIString(name, "__weakref__") == 0) continue;
        Obj v(PyObject_GetAttr(o, name));
        if (!v) {  // not assigned, or a private name, which is spelled otherwise
          PyErr_Clear();
          continue;
        }
        text(name);
        add(v.get());
      }
    }
  }

  void dtype(PyObject* o) {
    put('D');
    Obj repr = check(PyObject_Repr(o)), meta = check(PyObject_GetAttr(o, names().metadata));
    text(repr.get());
    if (meta.get() == Py_None) return put('N');
    Obj meta_repr = check(PyObject_Repr(meta.get()));
    text(meta_repr.get());
  }
  void array(PyObject* o) {
    Obj t = check(PyObject_GetAttr(o, names().dtype)), shape = check(PyObject_GetAttr(o, names().shape));
    address('a', reinterpret_cast<PyObject*>(Py_TYPE(o)));
    dtype(t.get());
    add(shape.get());
    Obj objects = check(PyObject_GetAttr(t.get(), names().hasobject));
    if (objects.get() == Py_True) {
      Obj elements = check(PyObject_CallMethod(o, "tolist", nullptr));
      return add(elements.get());
    }
    const bool loose = mode_ == Mode::Loose && is(o, types().ndarray);
    if (loose) return;  // its elements are fed anew
    Obj n = check(PyObject_GetAttr(o, names().nbytes));
    Py_ssize_t size = PyLong_AsSsize_t(n.get());
    if (size > kMaxArrayBytes) {
      if (mode_ == Mode::Strict) refuse(o, "is an array of " + std::to_string(size) + " bytes, too large for a key");
      return address('o', o);
    }
    Obj data = check(PyObject_CallMethodNoArgs(o, names().tobytes));
    blob('b', PyBytes_AS_STRING(data.get()), PyBytes_GET_SIZE(data.get()));
  }

  void too_big(PyObject* o) {
    if (mode_ == Mode::Strict) refuse(o, "is part of a structure too large or too deep for a key");
    address('o', o);
  }

  [[noreturn]] void refuse(PyObject* o, const std::string& why) {
    std::string where;
    for (auto& p : path_) {
      if (!std::strcmp(p.name, "[]")) {
        where += "[" + std::to_string(p.index) + "]";
      } else if (!std::strcmp(p.name, "{}")) {
        Obj k(p.key ? PyObject_Repr(p.key) : nullptr);
        where += "[" + (k ? text_of(k.get()) : "?") + "]";
      } else {
        where += p.name;
      }
    }
    std::string line = location_text(current_location());
    fail(ErrorKind::Type,
         "trace: argument {} ({}) {}, so a recorded call could be taken for another. Pass a Tensor, a number, a string "
         "or a tuple, list, dict or dataclass of those; or leave out without_host=True.{}{}",
         where.empty() ? "?" : where, Py_TYPE(o)->tp_name, why, line.empty() ? "" : "\n  at ", line);
  }

  // Which of the different tensors it is, and whether it is there for the first time.
  std::pair<size_t, bool> numbered(const Tensor* t) {
    if (seen_.size() < kFewTensors) {
      for (size_t i = 0; i < seen_.size(); ++i)
        if (seen_[i] == t) return {i, false};
      seen_.push_back(t);
      if (seen_.size() == kFewTensors)
        for (size_t i = 0; i < seen_.size(); ++i) many_[seen_[i]] = i;
      return {seen_.size() - 1, true};
    }
    auto [it, first] = many_.try_emplace(t, many_.size());
    return {it->second, first};
  }

  struct Step {
    PyObject* object;
    const char* name;
    Py_ssize_t index;
    PyObject* key;
  };
  static constexpr size_t kFewTensors = 32;
  Mode mode_;
  PyObject* held_;
  ArgTensors* tensors_;
  bool any_size_ = false;
  SmallVec<Step, 6> path_;
  SmallVec<const Tensor*, 8> seen_;
  std::unordered_map<const Tensor*, size_t> many_;  // beyond a few
};

// Attributes that Module and its like are told of when they are assigned, but not when they are changed in place.
// Our own modules assign.
bool holds_public_containers(PyObject* o) {
  Obj home(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(o)), "__module__"));
  const char* name = home && PyUnicode_Check(home.get()) ? PyUnicode_AsUTF8(home.get()) : "";
  if (!name || !std::strncmp(name, "megengine.", 10)) return PyErr_Clear(), false;
  Obj dict(PyObject_GetAttr(o, names().dict));
  if (!dict) return PyErr_Clear(), false;
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict.get(), &pos, &k, &v))
    if ((PyList_Check(v) || PyDict_Check(v) || PySet_Check(v)) && PyUnicode_READ_CHAR(k, 0) != '_') return true;
  return false;
}

using namespace note_fields;

void build_state(KeyBuilder& b, PyObject* target, PyObject* name) {
  if (name == Py_None) return b.state(target);
  PyObject* v = PyDict_GetItemWithError(target, name);
  if (!v && PyErr_Occurred()) throw PythonError{};
  Obj keep(Py_XNewRef(v));
  if (v) b.add(v);
}

PyObject* make_note(PyObject* target, PyObject* name, bool is_volatile, bool deep) {
  Obj held = check(PyList_New(0));
  KeyBuilder b(deep ? Mode::State : Mode::Shallow, held.get(), nullptr);
  build_state(b, target, name);
  if (is_volatile && deep && b.nodes > kMaxNoteNodes) return make_note(target, name, is_volatile, false);
  return Py_BuildValue("(OOy#Oii)", target, name, b.bytes.data(), static_cast<Py_ssize_t>(b.bytes.size()), held.get(),
                       int{is_volatile}, int{deep});
}

void add_call(KeyBuilder& b, PyObject* args, PyObject* kwargs, const ArgTensors& tensors) {
  b.add(args);
  kwargs ? b.add(kwargs) : b.no_items();
  if (!any_grad_session()) return;
  SmallVec<Tensor*, 8> ts;
  for (auto& t : tensors) ts.push_back(tensor_of(t.get()));
  b.gradients({ts.data(), ts.size()});
}

PyObject* note_of(PyObject*, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  MGE_CHECK(n == 4, Type, "note(target, name, volatile, deep)");
  return make_note(args[0], args[1], PyObject_IsTrue(args[2]), PyObject_IsTrue(args[3]));
  MGE_PY_CATCH(nullptr)
}

PyObject* note_use(PyObject*, PyObject* o) {
  if (!t_notes) Py_RETURN_NONE;
  MGE_PY_TRY
  Obj id = check(PyLong_FromVoidPtr(o));
  int known = PyDict_Contains(t_notes, id.get());
  if (known < 0) throw PythonError{};
  if (!known) {
    const bool is_volatile = _PyType_Lookup(Py_TYPE(o), names().is_volatile) == Py_True || holds_public_containers(o);
    Obj note = check(make_note(o, Py_None, is_volatile, true));
    if (PyDict_SetItem(t_notes, id.get(), note.get()) != 0) throw PythonError{};
  }
  Py_RETURN_NONE;
  MGE_PY_CATCH(nullptr)
}

PyObject* takes_notes(PyObject*, PyObject*) { return PyBool_FromLong(t_notes != nullptr); }

PyObject* set_notes(PyObject*, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  MGE_CHECK(n == 2, Type, "set_notes(notes, grads)");
  t_notes = args[0] == Py_None ? nullptr : args[0];
  t_grads = args[1] == Py_None ? nullptr : args[1];
  Py_RETURN_NONE;
  MGE_PY_CATCH(nullptr)
}

PyObject* notes_hold(PyObject*, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  MGE_CHECK(n == 2 && PyList_Check(args[0]), Type, "notes_hold(notes, all)");
  const bool all = PyObject_IsTrue(args[1]);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); ++i) {
    PyObject* note = PyList_GET_ITEM(args[0], i);
    if ((all || PyObject_IsTrue(PyTuple_GET_ITEM(note, kVolatile))) && !note_holds(note)) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
  MGE_PY_CATCH(nullptr)
}

PyObject* bump_mutation(PyObject*, PyObject*) {
  g_mutation.fetch_add(1, std::memory_order_relaxed);
  Py_RETURN_NONE;
}
// Coming back to a state is coming back to its recordings.
PyObject* set_config(PyObject*, PyObject* values) {
  static auto* states = new std::vector<std::string>;
  MGE_PY_TRY
  KeyBuilder b(Mode::Shallow, nullptr, nullptr);
  b.add(values);
  auto it = std::find(states->begin(), states->end(), b.bytes);
  g_config = static_cast<uint32_t>(it - states->begin());
  if (it == states->end()) states->push_back(b.bytes);
  Py_RETURN_NONE;
  MGE_PY_CATCH(nullptr)
}
PyObject* mutation(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(g_mutation.load(std::memory_order_relaxed));
}

PyMethodDef functions[] = {
    {"note", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(note_of)), METH_FASTCALL,
     "note(target, name, volatile, deep): the state of an object, or of one entry of a dict, as it is now."},
    {"note_use", note_use, METH_O, "A call being recorded on this thread depends on the state of the object."},
    {"takes_notes", takes_notes, METH_NOARGS, "Whether a call being recorded on this thread wants to hear of uses."},
    {"set_notes", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(set_notes)), METH_FASTCALL,
     "set_notes(notes, grads): the dicts that note_use and Tensor.grad fill on this thread, or None."},
    {"notes_hold", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(notes_hold)), METH_FASTCALL,
     "notes_hold(notes, all): whether the volatile notes, or all of them, say what is still so."},
    {"bump_mutation", bump_mutation, METH_NOARGS, "Some object that a recording may depend on has changed."},
    {"set_config", set_config, METH_O, "What megengine.config holds now, a tuple: part of the key of every call."},
    {"mutation", mutation, METH_NOARGS, "How often that has happened in this process."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* tensor_list(const ArgTensors& tensors) {
  Obj list = check(PyList_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(tensors[i].get()));
  return list.release();
}

CallKey::CallKey(const CallSettings& how, PyObject* args, PyObject* kwargs, PyObject* held) {
  KeyBuilder b(how.strict ? Mode::Strict : Mode::Loose, held, &tensors);
  b.bytes = std::exchange(t_spare, {});
  b.bytes.clear();
  b.set_any_size(how.any_size);
  b.settings(how);
  add_call(b, args, kwargs, tensors);
  bytes = std::move(b.bytes);
}
CallKey::~CallKey() { t_spare = std::move(bytes); }

const KnownTypes& types() {
  auto imported = [](const char* module, const char* name) {
    Obj m = check(PyImport_ImportModule(module));
    return reinterpret_cast<PyTypeObject*>(check(PyObject_GetAttrString(m.get(), name)).release());
  };
  static const KnownTypes known = {imported("numpy", "generic"),
                                   imported("numpy", "ndarray"),
                                   imported("numpy", "dtype"),
                                   imported("enum", "Enum"),
                                   imported("collections", "deque"),
                                   imported("functools", "partial"),
                                   imported("collections", "defaultdict"),
                                   imported("types", "CellType"),
                                   imported("types", "SimpleNamespace")};
  return known;
}

bool is_users_class(PyTypeObject* type) {
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || !type->tp_dict) return false;
  static PyObject* const key = interned("__module__");
  PyObject* home = PyDict_GetItem(type->tp_dict, key);
  const char* name = home && PyUnicode_Check(home) ? PyUnicode_AsUTF8(home) : nullptr;
  if (!name) return PyErr_Clear(), false;
  for (const char* ours : {"megengine", "numpy", "builtins", "collections", "enum", "abc", "functools", "types"})
    if (size_t n = std::strlen(ours); !std::strncmp(name, ours, n) && (!name[n] || name[n] == '.')) return false;
  return true;
}

bool note_holds(PyObject* note) {
  const bool deep = PyObject_IsTrue(PyTuple_GET_ITEM(note, kDeep));
  KeyBuilder b(deep ? Mode::State : Mode::Shallow, nullptr, nullptr);
  build_state(b, PyTuple_GET_ITEM(note, kTarget), PyTuple_GET_ITEM(note, kName));
  PyObject* was = PyTuple_GET_ITEM(note, kBytes);
  return static_cast<size_t>(PyBytes_GET_SIZE(was)) == b.bytes.size() &&
         std::memcmp(PyBytes_AS_STRING(was), b.bytes.data(), b.bytes.size()) == 0;
}
uint64_t mutations() { return g_mutation.load(std::memory_order_relaxed); }

bool notes_grads() { return t_grads; }

void note_grad(PyObject* tensor, PyObject* now) {
  Obj id = check(PyLong_FromVoidPtr(tensor));
  Obj pair = check(PyTuple_Pack(2, tensor, now));
  if (!PyDict_SetDefault(t_grads, id.get(), pair.get())) throw PythonError{};
}

bool add_trace_key(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace mge::py
