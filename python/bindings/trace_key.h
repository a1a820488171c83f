// Keys and notes of traced calls, from trace_key.cpp.
#pragma once
#include "common.h"

namespace mge::py {

bool add_trace_key(PyObject* module);
/// Whether a call being recorded on this thread wants to hear of gradients.
bool notes_grads();
/// `tensor.grad`, which is `now`, is about to be read or set; a call being recorded remembers what it was first.
void note_grad(PyObject* tensor, PyObject* now);

}  // namespace mge::py
