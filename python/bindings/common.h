// What the binding files share: the Tensor object, conversions, and one way to turn C++ errors into Python ones.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>

#include "eager/dispatch.h"

namespace mge::py {

struct PyTensor {
  PyObject_HEAD TensorPtr t;
  PyObject* name;  // null: the default ""
};

extern PyTypeObject* g_base_type;    // TensorBase
extern PyTypeObject* g_tensor_type;  // what op results are: megengine.Tensor once it is set
/// Whether `x.shape` is a tensor: in a traced call as the trace says, else by the switch of the process.
bool symbolic_shape();
extern PyTypeObject* g_size_type;  // its subclass for sizes in a traced call; null until it is set

inline bool is_tensor(PyObject* o) { return Py_TYPE(o) == g_tensor_type || PyObject_TypeCheck(o, g_base_type); }
inline Tensor* tensor_of(PyObject* o) { return reinterpret_cast<PyTensor*>(o)->t.get(); }
/// Sizes as a traced call sees them: beside other tensors they count as the numbers they stand for.
inline bool is_size(PyObject* o) { return Py_TYPE(o) == g_size_type; }
/// New reference.
PyObject* wrap(TensorPtr t, PyTypeObject* type = nullptr);
PyObject* wrap_node(TensorPtr t);  // graph_nodes.cpp: the object of a variable of an edited graph

/// Sets the Python error for the C++ exception now in flight. Use in a catch (...) block.
void set_python_error();
/// A Python error is already set; unwinds to the binding that returns null.
struct PythonError {};

#define MGE_PY_TRY try {
#define MGE_PY_CATCH(result)       \
  }                                \
  catch (...) {                    \
    ::mge::py::set_python_error(); \
    return result;                 \
  }

/// Takes the interpreter's lock back. When the interpreter has ended meanwhile Python ends the thread by unwinding it,
/// which no destructor of ours survives: the thread stays here instead and goes with the process.
void take_turn(PyThreadState* state);
/// While it lives, other threads of the interpreter run. Also for nb::call_guard.
class OthersTurn {
 public:
  OthersTurn() : state_(PyEval_SaveThread()) {}
  ~OthersTurn() { take_turn(state_); }
  OthersTurn(const OthersTurn&) = delete;
  OthersTurn& operator=(const OthersTurn&) = delete;

 private:
  PyThreadState* state_;
};

/// The text of a str; what is no valid text, a path that is no UTF-8 for example, as Python shows it: "\udcff". Empty
/// when `o` is no str.
std::string text_of(PyObject* o);

/// Puts "who: " before the text of the Python error that is set, if Python itself raised it: it says what is wrong with
/// a value, but not which op got it.
void name_python_error(const char* who);
#define MGE_PY_CATCH_AS(result, who)      \
  }                                       \
  catch (const ::mge::py::PythonError&) { \
    ::mge::py::name_python_error(who);    \
    return result;                        \
  }                                       \
  catch (...) {                           \
    ::mge::py::set_python_error();        \
    return result;                        \
  }

/// Owns a reference.
class Obj {
 public:
  Obj() = default;
  explicit Obj(PyObject* p) : p_(p) {}  // steals
  Obj(Obj&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Obj& operator=(Obj&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Obj() { Py_XDECREF(p_); }
  PyObject* get() const { return p_; }
  PyObject* release() { return std::exchange(p_, nullptr); }
  explicit operator bool() const { return p_; }

 private:
  PyObject* p_ = nullptr;
};
/// Throws PythonError when `p` is null.
inline Obj check(PyObject* p) {
  if (!p) throw PythonError{};
  return Obj(p);
}

// convert.cpp
void init_convert();
/// str, np.dtype, NumPy scalar type; a Type error otherwise. Quantised dtypes fill `quant`.
DType to_dtype(PyObject* o, Quant* quant = nullptr);
PyObject* dtype_object(const Meta& m);  // new reference
/// None = default comp node, str or CompNode object.
const CompNode* to_comp_node(PyObject* o);
PyObject* comp_node_object(const CompNode* cn);
struct TensorOptions {
  bool has_dtype = false;
  DType dtype = DType::F32;
  Quant quant;
  const CompNode* cn = nullptr;
  bool exact = false;  // keep float64 and int64 as they are
};
/// The dtype of an array of quantised numbers, as numpy() and convert_to_qint8 make it; else leaves `opt`.
void take_quantised(PyObject* data, TensorOptions* opt);
/// Numbers, sequences, arrays. Never a Tensor.
TensorPtr tensor_from_object(PyObject* data, const TensorOptions& opt);
/// Read-only ndarray that shares memory when it can.
PyObject* to_numpy(Tensor& t);
/// Operand of an op beside tensors of dtype `like` (api §4.3 step 1); tensors pass through.
TensorPtr operand(PyObject* o, DType like, const CompNode* cn, bool elementwise = true);
/// The attributes of a call that came as tensors and are others in later calls, as far as a trace is recorded.
using SizeList = std::vector<SizeOperand>;
/// Attribute value of any kind a field may have. Tensors in it go to `sizes` as field `field`.
AttrValue to_attr(PyObject* o, SizeList* sizes = nullptr, int field = 0);
PyObject* attr_object(const AttrValue& v);
/// Ints from a tuple, list, int, Tensor or ndarray. Without `sizes`, a traced call that gives tensors is for these
/// numbers alone.
Ints to_ints(PyObject* o, SizeList* sizes = nullptr, int field = 0);
PyObject* shape_tuple(const Shape& s);

// numpy_dtypes.cpp
/// Makes the dtypes that NumPy lacks and puts them into a table by DType; new references.
void make_numpy_dtypes(PyObject** dtypes);
/// Whether the bytes of its elements are in the other order than the machine's, and the same array in its order.
bool is_swapped_array(PyObject* array);
PyObject* native_array(PyObject* array);
/// Whether the elements of an ndarray are of one of those; NumPy lends no buffer of them.
bool holds_our_dtype(PyObject* array, DType* out);
/// Throws a ValueError when some element is not a value of `t`: arrays start as zeros, and 0 is no intb2.
void check_element_values(DType t, const void* data, int64_t n);

// tensor.cpp, ops.cpp, indexing.cpp, location.cpp
bool add_tensor_type(PyObject* module);
bool add_ops(PyObject* module);
bool add_op_classes(PyObject* module);  // compat.cpp
/// What an op object of the original's classes means, emitted.
std::vector<Val> emit_op_class(Emitter& em, PyObject* op, std::span<const Val> in);
PyObject* get_index(PyObject* self, PyObject* key);
int set_index(PyObject* self, PyObject* key, PyObject* value);
void set_index_hooks(PyObject* get, PyObject* set);
bool add_errors(PyObject* module);
void init_locations(const char* package_dir);
// dlpack.cpp; both return null with a Python error set
/// `stream` is the raw one that the other side will use the memory on, of a tensor on a GPU.
PyObject* to_dlpack(PyObject* tensor, uintptr_t stream);
PyObject* from_dlpack(PyObject*, PyObject* capsule);
bool captures_locations();
void capture_locations(bool on);  // off only to measure what it costs
/// The list that running modules push their names on.
void set_module_scopes(PyObject* list);
TensorPtr apply1(const OpDef& op, const Attrs& attrs, std::initializer_list<Tensor*> in);

}  // namespace mge::py
