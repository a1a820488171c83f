#include "trace_entry.h"

#include <structmember.h>

#include "trace_result.h"

namespace mge::py {
namespace {

PyTypeObject* g_entry_type = nullptr;

PyObject* grad_name() {
  static PyObject* const name = PyUnicode_InternFromString("_grad");
  return name;
}

using Span = SmallVec<Tensor*, 8>;
Span span_of(const ArgTensors& args) {
  Span out;
  for (auto& t : args) out.push_back(tensor_of(t.get()));
  return out;
}

Py_ssize_t length(PyObject* list) { return list && PyList_Check(list) ? PyList_GET_SIZE(list) : 0; }

bool note_still_holds(Watched& w) {
  if (w.seen && w.watch.holds()) return true;
  Watch now;
  const bool watched = now.add_note(w.what);  // before it is compared: what changes in between shows next time
  if (!note_holds(w.what)) return false;
  std::swap(w.watch, now);
  w.seen = watched;
  return true;
}

void prepare_notes(Entry& e) {
  e.volatile_notes.clear();
  for (Py_ssize_t i = 0; i < length(e.notes); ++i) {
    PyObject* note = PyList_GET_ITEM(e.notes, i);
    if (PyObject_IsTrue(PyTuple_GET_ITEM(note, note_fields::kVolatile))) e.volatile_notes.push_back({note, {}});
  }
  e.prepared_notes = e.notes;
}

bool notes_hold(Entry& e) {
  if (e.prepared_notes != e.notes) prepare_notes(e);
  const uint64_t now = mutations();
  if (e.checked != now) {
    for (Py_ssize_t i = 0; i < length(e.notes); ++i)
      if (PyObject* note = PyList_GET_ITEM(e.notes, i);
          !PyObject_IsTrue(PyTuple_GET_ITEM(note, note_fields::kVolatile)) && !note_holds(note))
        return false;
  }
  // By number: what a note asks may run Python, and that may get here again.
  for (size_t i = 0; i < e.volatile_notes.size(); ++i)
    if (!note_still_holds(e.volatile_notes[i])) return false;
  e.checked = now;
  return true;
}

// The gradients that the recorded call found: None where there were none, a tensor of the same kind where there was
// one.
bool grads_hold(PyObject* list) {
  for (Py_ssize_t i = 0; i < length(list); ++i) {
    PyObject* pair = PyList_GET_ITEM(list, i);
    PyObject* was = PyTuple_GET_ITEM(pair, 1);
    Obj now = check(PyObject_GetAttr(PyTuple_GET_ITEM(pair, 0), grad_name()));
    if (now.get() == was) continue;
    if (!is_tensor(now.get()) || !is_tensor(was)) return false;
    const Meta &a = tensor_of(now.get())->meta(), &b = tensor_of(was)->meta();
    if (!a.same_type(b) || a.cn != b.cn) return false;
  }
  return true;
}

// A gradient that a parameter has got anew takes the place of the one that was there.
void rebind_grads(Entry& e) {
  for (Py_ssize_t i = 0; i < length(e.grads); ++i) {
    Obj pair(Py_NewRef(PyList_GET_ITEM(e.grads, i)));
    PyObject *tensor = PyTuple_GET_ITEM(pair.get(), 0), *was = PyTuple_GET_ITEM(pair.get(), 1);
    if (was == Py_None) continue;
    Obj now = check(PyObject_GetAttr(tensor, grad_name()));
    if (now.get() == was || !is_tensor(now.get())) continue;
    e.rec->r->rebind(*tensor_of(was), *tensor_of(now.get()));
    if (PyList_SetItem(e.grads, i, check(PyTuple_Pack(2, tensor, now.get())).release())) throw PythonError{};
  }
}

}  // namespace

// After a call that failed: it left gradients that were never computed.
void Entry::take_back_grads() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  for (Py_ssize_t i = 0; i < length(grads); ++i) {
    Obj pair(Py_NewRef(PyList_GET_ITEM(grads, i)));
    PyObject *tensor = PyTuple_GET_ITEM(pair.get(), 0), *was = PyTuple_GET_ITEM(pair.get(), 1);
    Obj now(PyObject_GetAttr(tensor, grad_name()));
    if (now && now.get() != was) PyObject_SetAttr(tensor, grad_name(), was);
    PyErr_Clear();
  }
  PyErr_Restore(type, value, trace);
}

namespace {

void run_hooks(Entry& e) {
  if (e.prepared_refresh != e.refresh || e.hooks.size() != static_cast<size_t>(length(e.refresh))) {
    e.hooks.clear();
    for (Py_ssize_t i = 0; i < length(e.refresh); ++i) e.hooks.push_back({PyList_GET_ITEM(e.refresh, i), {}});
    e.prepared_refresh = e.refresh;
  }
  for (size_t i = 0; i < e.hooks.size(); ++i) {
    if (e.hooks[i].seen && e.hooks[i].watch.holds()) continue;
    PyObject *fn = PyTuple_GET_ITEM(e.hooks[i].what, 0), *by = PyTuple_GET_ITEM(e.hooks[i].what, 1);
    Watch now;
    const bool watched = by != Py_None && now.add(by, true);
    check(PyObject_CallNoArgs(fn));
    e.hooks[i].watch = std::move(now);
    e.hooks[i].seen = watched;
  }
}

std::vector<TensorPtr> run(PyRecording& p, std::span<Tensor* const> args) {
  // Whoever runs it may let go of the interpreter while he waits: wait for him without holding it.
  std::unique_lock<std::mutex> lock(p.running, std::try_to_lock);
  if (!lock) {
    const OthersTurn others;
    lock.lock();
  }
  return p.r->replay(args);
}

// ---- the Python object

PyObject* entry_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* recording;
  if (!PyArg_ParseTuple(args, "O:TraceEntry", &recording)) return nullptr;
  MGE_PY_TRY
  MGE_CHECK(recording_of(recording), Type, "TraceEntry: expected a Recording; got {}.", Py_TYPE(recording)->tp_name);
  Obj self = check(type->tp_alloc(type, 0));
  auto& e = *reinterpret_cast<Entry*>(self.get());
  new (&e.volatile_notes) std::vector<Watched>;
  new (&e.hooks) std::vector<Watched>;
  e.recording = Py_NewRef(recording);
  e.rec = recording_of(recording);
  e.host_only = true;
  for (PyObject** list : {&e.held, &e.notes, &e.refresh, &e.grads, &e.new_grads, &e.result_tensors})
    *list = check(PyList_New(0)).release();
  return self.release();
  MGE_PY_CATCH(nullptr)
}

int entry_traverse(PyObject* self, visitproc visit, void* arg) {
  auto& e = *reinterpret_cast<Entry*>(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject* o :
       {e.recording, e.held, e.notes, e.refresh, e.grads, e.new_grads, e.result, e.result_tree, e.result_tensors})
    Py_VISIT(o);
  for (auto* list : {&e.volatile_notes, &e.hooks})
    for (auto& w : *list)
      if (int stop = w.watch.traverse(visit, arg)) return stop;
  return 0;
}
int entry_clear(PyObject* self) {
  auto& e = *reinterpret_cast<Entry*>(self);
  std::vector<Watched> notes = std::move(e.volatile_notes), hooks = std::move(e.hooks);
  e.volatile_notes.clear();
  e.hooks.clear();
  e.prepared_notes = e.prepared_refresh = nullptr;
  Py_CLEAR(e.recording);
  Py_CLEAR(e.held);
  Py_CLEAR(e.notes);
  Py_CLEAR(e.refresh);
  Py_CLEAR(e.grads);
  Py_CLEAR(e.new_grads);
  Py_CLEAR(e.result);
  Py_CLEAR(e.result_tree);
  Py_CLEAR(e.result_tensors);
  return 0;
}
void entry_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  entry_clear(self);
  auto& e = *reinterpret_cast<Entry*>(self);
  std::destroy_at(&e.volatile_notes);
  std::destroy_at(&e.hooks);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"recording", T_OBJECT_EX, offsetof(Entry, recording), READONLY, "The Recording."},
    {"held", T_OBJECT_EX, offsetof(Entry, held), 0, "What the key names by address."},
    {"notes", T_OBJECT_EX, offsetof(Entry, notes), 0, "What the call depends on besides its arguments."},
    {"refresh", T_OBJECT_EX, offsetof(Entry, refresh), 0, "[(fn, what it goes by or None)], called before a replay."},
    {"grads", T_OBJECT_EX, offsetof(Entry, grads), 0, "[(tensor, gradient)] as the call found them."},
    {"new_grads", T_OBJECT_EX, offsetof(Entry, new_grads), 0, "[(tensor, plan)] of the gradients that it leaves."},
    {"result", T_OBJECT, offsetof(Entry, result), 0, "The plan of what it returns."},
    {"result_tree", T_OBJECT, offsetof(Entry, result_tree), 0, "What it returned, with leaves for tensors; for dump."},
    {"result_tensors", T_OBJECT_EX, offsetof(Entry, result_tensors), 0, "Those tensors; for dump."},
    {"host_only", T_BOOL, offsetof(Entry, host_only), 0, "Python has to run."},
    {"eager", T_BOOL, offsetof(Entry, eager), 0, "Nor can it be expected to make the same ops again."},
    {nullptr, 0, 0, 0, nullptr}};

}  // namespace

bool Entry::holds(const ArgTensors& args) {
  if (!notes_hold(*this) || !grads_hold(grads)) return false;
  Span t = span_of(args);
  return rec->r->accepts({t.data(), t.size()});
}

void Entry::bring_up_to_date() {
  run_hooks(*this);
  rebind_grads(*this);
}

PyObject* Entry::replay(const ArgTensors& args) {
  bring_up_to_date();
  Span t = span_of(args);
  SmallVec<Obj, 4> made;
  for (auto& y : run(*rec, {t.data(), t.size()})) made.emplace_back(wrap(std::move(y)));
  ResultBuilder builder({made.data(), made.size()}, args);
  for (Py_ssize_t i = 0; i < length(new_grads); ++i) {
    PyObject* pair = PyList_GET_ITEM(new_grads, i);
    Obj grad = builder.build(PyTuple_GET_ITEM(pair, 1));
    if (PyObject_SetAttr(PyTuple_GET_ITEM(pair, 0), grad_name(), grad.get())) throw PythonError{};
  }
  return builder.build(result).release();
}

bool is_entry(PyObject* o) { return PyObject_TypeCheck(o, g_entry_type); }

bool add_trace_entry(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("One recording of a traced function, and how to call it again.")},
      {Py_tp_new, reinterpret_cast<void*>(entry_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(entry_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(entry_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(entry_clear)},
      {Py_tp_members, members},
      {0, nullptr}};
  PyType_Spec spec = {"megengine.core._core.TraceEntry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                      slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) return false;
  g_entry_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "TraceEntry", type) == 0;
}

}  // namespace mge::py
