// One recording of a traced function, what it depends on, and how to call it again.
#pragma once
#include "recording.h"
#include "trace_key.h"
#include "watch.h"

namespace mge::py {

/// A thing to watch beside what is to be done when it has changed.
struct Watched {
  PyObject* what;  // kept by the list it is in
  Watch watch;
  bool seen = false;  // the watch is of a moment at which all was well
};

/// megengine.core._core.TraceEntry. Its attributes are filled by jit/tracing.py while the call is recorded.
struct Entry {
  PyObject_HEAD PyObject* recording;
  PyRecording* rec;          // the same
  PyObject* held;            // list: what the key names by address
  PyObject* notes;           // list: what the call depends on besides its arguments
  PyObject* refresh;         // list of (fn, what it goes by or None), to be called before each replay
  PyObject* grads;           // list of (tensor, gradient that the call found)
  PyObject* new_grads;       // list of (tensor, plan of the gradient that it leaves)
  PyObject* result;          // plan of the result
  PyObject* result_tree;     // for dump
  PyObject* result_tensors;  // for dump
  char host_only;            // Python has to run
  char eager;                // nor can it be expected to make the same ops again
  char busy;                 // some thread is in the middle of it
  uint64_t used, checked;
  PyObject* prepared_notes;  // borrowed: the lists that the two below were made of
  PyObject* prepared_refresh;
  std::vector<Watched> volatile_notes, hooks;

  /// Whether everything the recording depends on is as it was.
  bool holds(const ArgTensors& args);
  /// What hooks and new gradients ask for, before the recording runs again.
  void bring_up_to_date();
  void take_back_grads();
  /// New reference.
  PyObject* replay(const ArgTensors& args);
};

bool is_entry(PyObject* o);
bool add_trace_entry(PyObject* module);

}  // namespace mge::py
