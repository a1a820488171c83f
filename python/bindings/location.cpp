// The user's place in the program: the innermost frame whose file is not inside the package. Text is interned when a
// place is first seen, so that a worker thread can print it without the interpreter lock.
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common.h"
#include "core/profile.h"

// Frame objects are made on demand since Python 3.11, which costs as much as the rest of noting a line. Where the
// layout of the interpreter's own frames is known they are read directly; elsewhere the public functions serve.
#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#elif PY_VERSION_HEX < 0x030E0000
#define MGE_RAW_FRAMES 1
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

namespace mge::py {
namespace {

std::mutex g_mutex;
std::vector<Place> g_places(1);
std::unordered_map<uint64_t, LocId> g_ids;           // (code object, instruction) -> id; code objects are kept alive
std::unordered_map<PyCodeObject*, bool> g_internal;  // is this code inside the package?
std::string g_package_dir;
bool g_capture = false;

bool is_internal(PyCodeObject* code) {
  auto it = g_internal.find(code);
  if (it != g_internal.end()) return it->second;
  const bool inside = !g_package_dir.empty() && text_of(code->co_filename).starts_with(g_package_dir);
  Py_INCREF(code);
  return g_internal[code] = inside;
}

constexpr LocId kInternal = -1;

LocId find_place(PyCodeObject* code, int at) {
  if (is_internal(code)) return kInternal;
  uint64_t key = hash_mix(reinterpret_cast<uint64_t>(code), static_cast<uint64_t>(at));
  auto it = g_ids.find(key);
  if (it != g_ids.end()) return it->second;
#if PY_VERSION_HEX < 0x030B0000
  PyObject* name = code->co_name;
#else
  PyObject* name = code->co_qualname;
#endif
  std::lock_guard<std::mutex> lock(g_mutex);
  g_places.push_back({text_of(code->co_filename), text_of(name), PyCode_Addr2Line(code, at)});
  return g_ids[key] = static_cast<LocId>(g_places.size() - 1);
}

// After the first time a slot of a small table says which place it is. The key is the instruction, not the line:
// finding the line walks the code's line table.
LocId place_of(PyCodeObject* code, int at) {
  struct Slot {
    PyCodeObject* code = nullptr;  // alive: g_internal holds it
    int at = 0;
    LocId id = 0;
  };
  static Slot slots[1024];
  Slot& s = slots[(reinterpret_cast<uintptr_t>(code) / 64 + static_cast<uintptr_t>(at)) % 1024];
  if (s.code != code || s.at != at) s = {code, at, find_place(code, at)};
  return s.id;
}

#ifdef MGE_RAW_FRAMES
_PyInterpreterFrame* top_frame() {
#if PY_VERSION_HEX < 0x030D0000
  return PyThreadState_Get()->cframe->current_frame;
#else
  return PyThreadState_Get()->current_frame;
#endif
}
PyCodeObject* code_of(_PyInterpreterFrame* f) {
#if PY_VERSION_HEX < 0x030D0000
  return f->f_code;
#else
  return _PyFrame_GetCode(f);
#endif
}
bool is_complete(_PyInterpreterFrame* f) {
#if PY_VERSION_HEX >= 0x030C0000
  if (f->owner == FRAME_OWNED_BY_CSTACK) return false;  // stands between C and Python, runs no code of a file
#endif
  return !_PyFrame_IsIncomplete(f);
}
#endif

// Runs for every queued or recorded op.
LocId current() {
#ifdef MGE_RAW_FRAMES
  for (_PyInterpreterFrame* f = top_frame(); f; f = f->previous) {
    if (!is_complete(f)) continue;
    LocId id = place_of(code_of(f), _PyInterpreterFrame_LASTI(f) * static_cast<int>(sizeof(_Py_CODEUNIT)));
    if (id != kInternal) return id;
  }
#elif PY_VERSION_HEX < 0x030B0000
  for (PyFrameObject* f = PyThreadState_Get()->frame; f; f = f->f_back) {
    LocId id = place_of(f->f_code, f->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT)));
    if (id != kInternal) return id;
  }
#else
  for (PyFrameObject* f = PyThreadState_GetFrame(PyThreadState_Get()); f;) {
    PyCodeObject* code = PyFrame_GetCode(f);
    LocId id = place_of(code, PyFrame_GetLasti(f));
    Py_DECREF(code);
    PyFrameObject* back = id == kInternal ? PyFrame_GetBack(f) : nullptr;
    Py_DECREF(f);
    if (id != kInternal) return id;
    f = back;
  }
#endif
  return 0;
}

Place place(LocId id) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_places[static_cast<size_t>(id)];
}

// The list of names that modules push and pop while they run; null until the package gives it.
PyObject* g_modules = nullptr;

const std::string* modules() {
  if (!g_modules) return nullptr;
  const Py_ssize_t n = PyList_GET_SIZE(g_modules);
  if (n == 0) return nullptr;
  std::string path;
  for (Py_ssize_t i = 0; i < n; ++i) path += (i ? "." : "") + text_of(PyList_GET_ITEM(g_modules, i));
  return profile::intern(path);
}

}  // namespace

void init_locations(const char* package_dir) {
  g_package_dir = package_dir;
  capture_locations(true);
}

bool captures_locations() { return g_capture; }
void capture_locations(bool on) {
  g_capture = on;
  set_location_hooks({on ? current : nullptr, place, modules});
}

void set_module_scopes(PyObject* list) { g_modules = Py_NewRef(list); }

}  // namespace mge::py
