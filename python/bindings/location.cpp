// The user's place in the program: the innermost frame whose file is not inside the package. Text is interned when a
// place is first seen, so that a worker thread can print it without the interpreter lock.
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common.h"

namespace mge::py {
namespace {

std::mutex g_mutex;
std::vector<Place> g_places(1);
std::unordered_map<uint64_t, LocId> g_ids;           // (code object, line) -> id; code objects are kept alive
std::unordered_map<PyCodeObject*, bool> g_internal;  // is this code inside the package?
std::string g_package_dir;

bool is_internal(PyCodeObject* code) {
  auto it = g_internal.find(code);
  if (it != g_internal.end()) return it->second;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  bool inside =
      file && !g_package_dir.empty() && std::string_view(file).substr(0, g_package_dir.size()) == g_package_dir;
  Py_INCREF(code);
  return g_internal[code] = inside;
}

LocId current() {
  PyFrameObject* f = PyThreadState_GetFrame(PyThreadState_Get());
  while (f) {
    PyCodeObject* code = PyFrame_GetCode(f);
    bool inside = is_internal(code);
    Py_DECREF(code);  // g_internal holds one
    if (!inside) {
      int line = PyFrame_GetLineNumber(f);
      Py_DECREF(f);
      uint64_t key = hash_mix(reinterpret_cast<uint64_t>(code), static_cast<uint64_t>(line));
      auto it = g_ids.find(key);
      if (it != g_ids.end()) return it->second;
      std::lock_guard<std::mutex> lock(g_mutex);
      g_places.push_back({PyUnicode_AsUTF8(code->co_filename), PyUnicode_AsUTF8(code->co_qualname), line});
      return g_ids[key] = static_cast<LocId>(g_places.size() - 1);
    }
    PyFrameObject* back = PyFrame_GetBack(f);
    Py_DECREF(f);
    f = back;
  }
  return 0;
}

Place place(LocId id) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_places[static_cast<size_t>(id)];
}

}  // namespace

void init_locations(const char* package_dir) {
  g_package_dir = package_dir;
  set_location_hooks({current, place});
}

}  // namespace mge::py
