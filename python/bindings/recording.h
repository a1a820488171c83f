// Recording as Python holds it, from trace.cpp.
#pragma once
#include <mutex>

#include "common.h"
#include "eager/trace.h"

namespace mge::py {

struct PyRecording {
  explicit PyRecording(const TraceOptions& o) : r(make_ref<Recording>(o)) {}
  RefPtr<Recording> r;
  std::mutex running;  // a program runs once at a time
};
/// Of an object of megengine's Recording; null for another.
PyRecording* recording_of(PyObject* o);

}  // namespace mge::py
