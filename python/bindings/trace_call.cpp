// A traced function: its recordings by the keys of calls, and the call itself. Python runs when a call is recorded,
// when the body of the function has to run, and when something that a hook brings up to date has changed.
#include <atomic>
#include <unordered_map>

#include "eager/tape.h"
#include "trace_entry.h"

namespace mge::py {
namespace {

std::atomic<bool> g_symbolic_shape{false};
thread_local int t_symbolic_shape = -1;  // of the traced call of this thread; -1: there is none
PyObject* g_settle = nullptr;            // jit/conditional.py
thread_local bool t_unsettled = false;   // the traced call of this thread gave somebody a conditional gradient

using EntryRef = Obj;
using Bucket = std::vector<EntryRef>;  // the one that served last comes first

Entry& entry_in(const EntryRef& r) { return *reinterpret_cast<Entry*>(r.get()); }

struct Table {
  std::unordered_map<std::string, Bucket> buckets;
  uint64_t clock = 0;
  const std::string* last_key = nullptr;  // of the last call, which the next is likely to be like
  Bucket* last = nullptr;

  Bucket* find(const std::string& key) {
    if (last_key && *last_key == key) return last;
    auto it = buckets.find(key);
    if (it == buckets.end()) return nullptr;
    last_key = &it->first;
    last = &it->second;
    return last;
  }
  size_t size() const {
    size_t n = 0;
    for (auto& [key, bucket] : buckets) n += bucket.size();
    return n;
  }
};

/// megengine.core._core.TraceBase.
struct TraceObject {
  PyObject_HEAD Table* table;
  // Attributes as they were when they were last looked at; a new version of the class, or an attribute set, and they
  // are looked at again.
  PyObject* function;
  uint32_t version;
  bool known, without_host, capture_as_const, symbolic_shape;
};
TraceObject& self_of(PyObject* o) { return *reinterpret_cast<TraceObject*>(o); }

bool truth(PyObject* self, const char* name) {
  Obj v = check(PyObject_GetAttrString(self, name));
  const int yes = PyObject_IsTrue(v.get());
  if (yes < 0) throw PythonError{};
  return yes;
}

void look(PyObject* o) {
  TraceObject& t = self_of(o);
  if (t.known && t.version && t.version == class_version(Py_TYPE(o))) return;
  Obj function = check(PyObject_GetAttrString(o, "__wrapped__"));
  t.without_host = truth(o, "without_host");
  t.symbolic_shape = truth(o, "symbolic_shape");
  t.capture_as_const = truth(o, "_capture_as_const");
  Obj old(std::exchange(t.function, function.release()));
  t.version = class_version(Py_TYPE(o));
  t.known = true;
}

CallSettings settings(const TraceObject& t) {
  // Under an open GradManager the tape has to see the ops, so Python runs.
  const bool strict = t.without_host && !(any_grad_session() && any_recording());
  return {strict, t.symbolic_shape, t.function};
}

void settle() {
  if (!std::exchange(t_unsettled, false) || !g_settle) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Obj done(PyObject_CallNoArgs(g_settle));
  if (type)
    PyErr_Restore(type, value, trace);
  else if (!done)
    throw PythonError{};
}

struct TracedShapes {
  explicit TracedShapes(bool on) : before(std::exchange(t_symbolic_shape, on)) {}
  ~TracedShapes() { t_symbolic_shape = before; }
  int before;
};

PyObject* match(Entry& e, PyObject* function, PyObject* args, PyObject* kwargs, const ArgTensors& tensors,
                bool any_size) {
  SmallVec<Tensor*, 8> t;
  for (auto& a : tensors) t.push_back(tensor_of(a.get()));
  Recording& r = *e.rec->r;
  TracedShapes shapes(any_size);
  r.match_begin({t.data(), t.size()});
  Obj result(PyObject_Call(function, args, kwargs));
  try {
    if (!result) throw PythonError{};
    r.match_end();
  } catch (...) {
    r.match_abort();
    e.take_back_grads();
    settle();
    throw;
  }
  settle();
  return result.release();
}

struct Busy {
  explicit Busy(Entry& e) : e(e) { e.busy = true; }
  ~Busy() { e.busy = false; }
  Entry& e;
};

void used(Table& table, const std::string& key, const EntryRef& e) {
  entry_in(e).used = ++table.clock;
  Bucket* bucket = table.find(key);  // what ran meanwhile may have changed it
  if (!bucket || (*bucket)[0].get() == e.get()) return;
  for (size_t i = 1; i < bucket->size(); ++i)
    if ((*bucket)[i].get() == e.get())
      std::rotate(bucket->begin(), bucket->begin() + static_cast<long>(i), bucket->begin() + static_cast<long>(i) + 1);
}

PyObject* call(PyObject* o, PyObject* args, PyObject* kwargs) {
  MGE_PY_TRY
  look(o);
  TraceObject& t = self_of(o);
  Obj function(Py_NewRef(t.function));  // it may be assigned another one while it runs
  if (active_tracer()) return PyObject_Call(function.get(), args, kwargs);  // in another trace an ordinary function
  bool ordinary = !t.capture_as_const;
  if (!ordinary) {
    ordinary = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) ordinary &= is_tensor(PyTuple_GET_ITEM(args, i));
  }
  if (ordinary) {
    CallKey key(settings(t), args, kwargs);
    Bucket* bucket = t.table->find(key.bytes);
    for (size_t i = 0; bucket && i < bucket->size(); ++i) {
      EntryRef ref(Py_NewRef((*bucket)[i].get()));
      Entry& e = entry_in(ref);
      if (!e.host_only) {
        if (e.holds(key.tensors)) {
          used(*t.table, key.bytes, ref);
          return e.replay(key.tensors);
        }
      } else if (e.busy) {  // another thread is in the middle of this recording
        return PyObject_Call(function.get(), args, kwargs);
      } else {
        Busy here(e);
        if (e.holds(key.tensors)) {
          used(*t.table, key.bytes, ref);
          if (e.eager) return PyObject_Call(function.get(), args, kwargs);
          return match(e, function.get(), args, kwargs, key.tensors, t.symbolic_shape);
        }
      }
      bucket = t.table->find(key.bytes);  // what the notes asked may have run Python, and that may have recorded
    }
  }
  static PyObject* const name = PyUnicode_InternFromString("_record_call");
  Obj none = kwargs ? Obj() : check(PyDict_New());
  return PyObject_CallMethodObjArgs(o, name, args, kwargs ? kwargs : none.get(), nullptr);
  MGE_PY_CATCH(nullptr)
}

// ---- what jit/tracing.py asks

PyObject* key_of_call(PyObject* o, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  MGE_CHECK(n == 2 && PyTuple_Check(args[0]) && PyDict_Check(args[1]), Type, "_call_key(args, kwargs)");
  look(o);
  const CallSettings how = settings(self_of(o));
  Obj held = check(PyList_New(0));
  CallKey key(how, args[0], args[1], held.get());
  Obj tensors(tensor_list(key.tensors));
  return Py_BuildValue("(y#OOOO)", key.bytes.data(), static_cast<Py_ssize_t>(key.bytes.size()), tensors.get(),
                       held.get(), how.strict ? Py_True : Py_False, how.any_size ? Py_True : Py_False);
  MGE_PY_CATCH(nullptr)
}

// For partial_trace, which runs a recording in two halves.
PyObject* find(PyObject* o, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  MGE_CHECK(n == 2 && PyTuple_Check(args[0]) && PyDict_Check(args[1]), Type, "_find(args, kwargs)");
  look(o);
  TraceObject& t = self_of(o);
  CallKey key(settings(t), args[0], args[1]);
  Bucket* bucket = t.table->find(key.bytes);
  for (size_t i = 0; bucket && i < bucket->size(); ++i) {
    EntryRef ref(Py_NewRef((*bucket)[i].get()));
    if (!entry_in(ref).host_only && entry_in(ref).holds(key.tensors)) {
      used(*t.table, key.bytes, ref);
      entry_in(ref).bring_up_to_date();
      Obj tensors(tensor_list(key.tensors));
      return PyTuple_Pack(2, ref.get(), tensors.get());
    }
    bucket = t.table->find(key.bytes);
  }
  Py_RETURN_NONE;
  MGE_PY_CATCH(nullptr)
}

std::string text_of(PyObject* bytes) {
  MGE_CHECK(PyBytes_Check(bytes), Type, "a key is bytes; got {}.", Py_TYPE(bytes)->tp_name);
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

PyObject* keep(PyObject* o, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  MGE_CHECK(n == 3 && is_entry(args[1]), Type, "_keep(key, entry, limit)");
  const Py_ssize_t limit = PyLong_AsSsize_t(args[2]);
  if (limit < 0 && PyErr_Occurred()) return nullptr;
  Table& table = *self_of(o).table;
  table.last = nullptr;
  table.last_key = nullptr;
  Bucket& bucket = table.buckets[text_of(args[0])];
  bucket.insert(bucket.begin(), EntryRef(Py_NewRef(args[1])));
  entry_in(bucket[0]).used = ++table.clock;
  EntryRef dropped;  // let go at the end: that may run Python
  if (table.size() > static_cast<size_t>(limit)) {
    auto oldest = table.buckets.end();
    size_t at = 0;
    uint64_t when = UINT64_MAX;
    for (auto it = table.buckets.begin(); it != table.buckets.end(); ++it)
      for (size_t i = 0; i < it->second.size(); ++i)
        if (uint64_t used = entry_in(it->second[i]).used; used < when) when = used, oldest = it, at = i;
    if (oldest != table.buckets.end()) {
      dropped = std::move(oldest->second[at]);
      oldest->second.erase(oldest->second.begin() + static_cast<long>(at));
      if (oldest->second.empty()) table.buckets.erase(oldest);
    }
  }
  return PyBool_FromLong(static_cast<bool>(dropped));
  MGE_PY_CATCH(nullptr)
}

PyObject* entries(PyObject* o, void*) {
  MGE_PY_TRY
  Obj out = check(PyDict_New());
  for (auto& [key, bucket] : self_of(o).table->buckets) {
    Obj list = check(PyList_New(0)),
        k = check(PyBytes_FromStringAndSize(key.data(), static_cast<Py_ssize_t>(key.size())));
    for (auto& e : bucket)
      if (PyList_Append(list.get(), e.get())) throw PythonError{};
    if (PyDict_SetItem(out.get(), k.get(), list.get())) throw PythonError{};
  }
  return out.release();
  MGE_PY_CATCH(nullptr)
}

PyObject* set_symbolic_shape(PyObject*, PyObject* on) {
  const int yes = PyObject_IsTrue(on);
  if (yes < 0) return nullptr;
  if (active_tracer() && t_symbolic_shape >= 0) return PyBool_FromLong(std::exchange(t_symbolic_shape, yes != 0));
  return PyBool_FromLong(g_symbolic_shape.exchange(yes != 0));
}
PyObject* use_symbolic_shape(PyObject*, PyObject*) { return PyBool_FromLong(symbolic_shape()); }
// The shapes of a call that is recorded; None ends it.
PyObject* traced_shapes(PyObject*, PyObject* on) {
  t_symbolic_shape = on == Py_None ? -1 : PyObject_IsTrue(on);
  Py_RETURN_NONE;
}
PyObject* set_settle(PyObject*, PyObject* fn) {
  Obj old(std::exchange(g_settle, Py_NewRef(fn)));
  Py_RETURN_NONE;
}
PyObject* to_settle(PyObject*, PyObject*) {
  t_unsettled = true;
  Py_RETURN_NONE;
}

// ---- the type

PyObject* trace_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (o) self_of(o).table = new Table;
  return o;
}
int traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(self_of(o).function);
  if (self_of(o).table)
    for (auto& [key, bucket] : self_of(o).table->buckets)
      for (auto& e : bucket) Py_VISIT(e.get());
  return 0;
}
int clear(PyObject* o) {
  TraceObject& t = self_of(o);
  if (t.table) {
    t.table->last = nullptr;
    t.table->last_key = nullptr;
    auto buckets = std::move(t.table->buckets);
    t.table->buckets.clear();
  }
  t.known = false;
  Py_CLEAR(t.function);
  return 0;
}
void dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  clear(o);
  delete std::exchange(self_of(o).table, nullptr);
  type->tp_free(o);
  Py_DECREF(type);
}
int set_attribute(PyObject* o, PyObject* name, PyObject* v) {
  self_of(o).known = false;
  return PyObject_GenericSetAttr(o, name, v);
}
PyObject* bind(PyObject* o, PyObject* obj, PyObject*) {
  return !obj || obj == Py_None ? Py_NewRef(o) : PyMethod_New(o, obj);
}

PyMethodDef methods[] = {
    {"_call_key", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(key_of_call)), METH_FASTCALL,
     "_call_key(args, kwargs): (key, tensors, what must be kept alive, to be replayed, of any size)."},
    {"_find", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(find)), METH_FASTCALL,
     "_find(args, kwargs): (entry, tensors) of the recording for such a call, brought up to date; None: there is "
     "none."},
    {"_keep", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(keep)), METH_FASTCALL,
     "_keep(key, entry, limit): a recording for calls with this key; True when the one used longest ago had to go."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {{"_entries", entries, nullptr, "{key: [TraceEntry]}", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef functions[] = {
    {"set_symbolic_shape", set_symbolic_shape, METH_O, "Whether x.shape is a tensor; the old value."},
    {"use_symbolic_shape", use_symbolic_shape, METH_NOARGS, "Whether x.shape is a tensor here and now."},
    {"traced_shapes", traced_shapes, METH_O, "Whether it is in the call that is recorded; None ends that."},
    {"set_settle", set_settle, METH_O, "What is called after a traced call that gave a conditional gradient."},
    {"to_settle", to_settle, METH_NOARGS, "The traced call of this thread gave somebody a conditional gradient."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool symbolic_shape() {
  return t_symbolic_shape >= 0 && active_tracer() ? t_symbolic_shape : g_symbolic_shape.load(std::memory_order_relaxed);
}

bool add_trace_call(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("What a traced function is called by; megengine.jit.trace.")},
                         {Py_tp_new, reinterpret_cast<void*>(trace_new)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_call, reinterpret_cast<void*>(call)},
                         {Py_tp_setattro, reinterpret_cast<void*>(set_attribute)},
                         {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {"megengine.core._core.TraceBase", sizeof(TraceObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  Obj type(PyType_FromSpec(&spec));
  return type && PyModule_AddObjectRef(module, "TraceBase", type.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mge::py
