// C++ errors become Python exceptions. Shape mistakes are both RuntimeError (what MegEngine raises) and ValueError
// (what they are), so either except clause catches them.
#include <cstring>
#include <new>

#include "base/write_file.h"
#include "common.h"
#include "core/profile.h"

namespace mge::py {
namespace {

PyObject *g_user, *g_type, *g_index, *g_memory, *g_internal, *g_async, *g_trace;

PyObject* make(PyObject* module, const char* name, const char* doc, PyObject* a, PyObject* b) {
  Obj bases(b ? PyTuple_Pack(2, a, b) : PyTuple_Pack(1, a));
  std::string full = std::string("megengine.core._core.") + name;
  PyObject* e = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.get(), nullptr);
  if (e) PyModule_AddObjectRef(module, name, e);
  return e;
}

// Texts may name files, whose names are bytes.
Obj decoded(std::string_view text) {
  return Obj(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}
void set_error(PyObject* type, std::string_view text) {
  if (const Obj message = decoded(text)) PyErr_SetObject(type, message.get());
}

void raise_with_cause(PyObject* type, std::string_view text) {
  const Obj message = decoded(text);
  if (!message) return;
  Obj cause(PyObject_CallOneArg(PyExc_RuntimeError, message.get()));
  Obj error(PyObject_CallOneArg(type, message.get()));
  if (!cause || !error) return;
  PyException_SetCause(error.get(), cause.release());
  PyErr_SetObject(type, error.get());
}

// As open() raises it: the kind that belongs to the error number, with the path as it was given.
void raise_file_error(const FileError& e) {
  Obj path(PyUnicode_DecodeFSDefaultAndSize(e.path().data(), static_cast<Py_ssize_t>(e.path().size())));
  Obj text = decoded("cannot write: " + e.reason());
  Obj error(path && text ? PyObject_CallFunction(PyExc_OSError, "iOO", e.code(), text.get(), path.get()) : nullptr);
  if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
}

}  // namespace

bool add_errors(PyObject* m) {
  g_user = make(m, "UserError", "A shape or argument that breaks an op's rule.", PyExc_RuntimeError, PyExc_ValueError);
  g_type = make(m, "DTypeError", "A dtype or type that an op does not take.", PyExc_RuntimeError, PyExc_TypeError);
  g_index = make(m, "OpIndexError", "An index out of range.", PyExc_RuntimeError, PyExc_IndexError);
  g_memory =
      make(m, "OutOfMemoryError", "Memory limit reached or no memory left.", PyExc_RuntimeError, PyExc_MemoryError);
  g_internal = make(m, "InternalError", "A bug of the framework; please report it.", PyExc_RuntimeError, nullptr);
  g_async =
      make(m, "AsyncError", "An op failed after its call returned; __cause__ says why.", PyExc_RuntimeError, nullptr);
  g_trace =
      make(m, "TraceError", "A traced function did something else than was recorded.", PyExc_RuntimeError, nullptr);
  return g_user && g_type && g_index && g_memory && g_internal && g_async && g_trace;
}

void set_python_error() {
  try {
    throw;
  } catch (const PythonError&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "a binding failed without saying why");
  } catch (const FileError& e) {
    raise_file_error(e);
  } catch (const Error& e) {
    const char* text = e.what();
    std::string scoped;
    if (const std::string* scope = profile::scope(); scope && !std::strstr(text, "in scope ")) {
      scoped = format("{}\n  in scope {}", text, *scope);
      text = scoped.c_str();
    }
    switch (e.kind()) {
      case ErrorKind::Value:
        return set_error(g_user, text);
      case ErrorKind::Type:
        return set_error(g_type, text);
      case ErrorKind::Index:
        return set_error(g_index, text);
      case ErrorKind::Assertion:
        return set_error(PyExc_AssertionError, text);
      case ErrorKind::NotImplemented:
        return set_error(PyExc_NotImplementedError, text);
      case ErrorKind::Memory:
        return set_error(g_memory, text);
      case ErrorKind::Env:
        return set_error(PyExc_RuntimeError, text);
      case ErrorKind::Internal:
        return set_error(g_internal, text);
      case ErrorKind::Async:
        return raise_with_cause(g_async, e.text());
      case ErrorKind::Trace:
        return set_error(g_trace, text);
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    set_error(g_internal, e.what());
  } catch (...) {
    set_error(g_internal, "unknown C++ exception");
  }
}

std::string text_of(PyObject* o) {
  if (!o || !PyUnicode_Check(o)) return {};
  Py_ssize_t n;
  if (const char* text = PyUnicode_AsUTF8AndSize(o, &n)) return {text, static_cast<size_t>(n)};
  PyErr_Clear();
  const Obj bytes(PyUnicode_AsEncodedString(o, "utf-8", "backslashreplace"));
  if (!bytes) throw PythonError{};
  return {PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()))};
}

void name_python_error(const char* who) {
  PyObject* kind = PyErr_Occurred();
  if (kind != PyExc_TypeError && kind != PyExc_ValueError && kind != PyExc_OverflowError) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Obj t(type), v(value), tb(trace), text(v ? PyObject_Str(v.get()) : nullptr);
  const char* said = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!said) PyErr_Clear();
  PyErr_Format(t.get(), "%s: %s", who, said ? said : "bad value");
}

}  // namespace mge::py
