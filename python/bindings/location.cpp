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
std::unordered_map<uint64_t, LocId> g_ids;           // (code object, instruction) -> id; code objects are kept alive
std::unordered_map<PyCodeObject*, bool> g_internal;  // is this code inside the package?
std::string g_package_dir;
bool g_capture = false;

bool is_internal(PyCodeObject* code) {
  auto it = g_internal.find(code);
  if (it != g_internal.end()) return it->second;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  bool inside =
      file && !g_package_dir.empty() && std::string_view(file).substr(0, g_package_dir.size()) == g_package_dir;
  Py_INCREF(code);
  return g_internal[code] = inside;
}

constexpr LocId kInternal = -1;

LocId find_place(PyCodeObject* code, int at) {
  if (is_internal(code)) return kInternal;
  uint64_t key = hash_mix(reinterpret_cast<uint64_t>(code), static_cast<uint64_t>(at));
  auto it = g_ids.find(key);
  if (it != g_ids.end()) return it->second;
  std::lock_guard<std::mutex> lock(g_mutex);
  g_places.push_back(
      {PyUnicode_AsUTF8(code->co_filename), PyUnicode_AsUTF8(code->co_qualname), PyCode_Addr2Line(code, at)});
  return g_ids[key] = static_cast<LocId>(g_places.size() - 1);
}

// Runs for every queued op. The key is the instruction, not the line: finding the line walks the code's line table,
// which is done once per place; after that a slot of a small table says which place it is.
LocId current() {
  struct Slot {
    PyCodeObject* code = nullptr;  // alive: g_internal holds it
    int at = 0;
    LocId id = 0;
  };
  static Slot slots[1024];
  PyFrameObject* f = PyThreadState_GetFrame(PyThreadState_Get());
  while (f) {
    PyCodeObject* code = PyFrame_GetCode(f);
    int at = PyFrame_GetLasti(f);
    Slot& s = slots[(reinterpret_cast<uintptr_t>(code) / 64 + static_cast<uintptr_t>(at)) % 1024];
    if (s.code != code || s.at != at) s = {code, at, find_place(code, at)};
    Py_DECREF(code);
    if (s.id != kInternal) {
      Py_DECREF(f);
      return s.id;
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
  capture_locations(true);
}

bool captures_locations() { return g_capture; }
void capture_locations(bool on) {
  g_capture = on;
  set_location_hooks({on ? current : nullptr, place});
}

}  // namespace mge::py
