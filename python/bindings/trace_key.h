// Keys and notes of traced calls, from trace_key.cpp.
#pragma once
#include "base/small_vec.h"
#include "common.h"

namespace mge::py {

bool add_trace_key(PyObject* module);
bool add_trace_call(PyObject* module);  // trace_call.cpp

/// The tensors among the arguments of a call, in the order of the argument tree.
using ArgTensors = SmallVec<Obj, 6>;

struct CallSettings {
  bool strict;         // to be replayed without Python: what cannot be keyed is refused
  bool any_size;       // sizes of tensors are none of the key's business
  PyObject* function;  // what is called: of a bound method the object counts as an argument
};

/// What a call is looked up by: equal bytes mean that a recording of the one may serve the other.
struct CallKey {
  /// `held`: a list that takes what whoever keeps the bytes must keep alive; null for a look-up.
  CallKey(const CallSettings& how, PyObject* args, PyObject* kwargs, PyObject* held = nullptr);
  ~CallKey();
  CallKey(const CallKey&) = delete;
  std::string bytes;
  ArgTensors tensors;
};
/// New reference: a list.
PyObject* tensor_list(const ArgTensors& tensors);

// A note: (target, name, bytes, held, volatile, deep). With a name the target is a dict and the note is of one entry.
namespace note_fields {
enum { kTarget, kName, kBytes, kHeld, kVolatile, kDeep };
}
/// Whether what it says is still so.
bool note_holds(PyObject* note);
/// How often something that recordings may depend on has changed in this process.
uint64_t mutations();
/// Another number when an attribute of the class or of a base has been assigned; 0 when there is none yet.
inline uint32_t class_version(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030D0000  // where this says it, the number alone does not
  if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return static_cast<uint32_t>(type->tp_version_tag);
}
/// Types of Python and NumPy that keys and watches treat each in its own way.
struct KnownTypes {
  PyTypeObject *generic, *ndarray, *np_dtype, *enumeration, *deque, *partial, *defaultdict, *cell, *space;
};
const KnownTypes& types();
inline bool is(PyObject* o, PyTypeObject* t) { return PyObject_TypeCheck(o, t); }

/// Whether instances share attributes of this class that a user wrote.
bool is_users_class(PyTypeObject* type);

/// Whether a call being recorded on this thread wants to hear of gradients.
bool notes_grads();
/// `tensor.grad`, which is `now`, is about to be read or set; a call being recorded remembers what it was first.
void note_grad(PyObject* tensor, PyObject* now);

}  // namespace mge::py
