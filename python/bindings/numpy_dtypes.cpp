// bfloat16, intb1, intb2 and intb4 as dtypes that NumPy holds, prints, casts, sorts and pickles.
//
// An Element says what one dtype is: the bits in memory and the number they stand for. The templates below make from it
// the table of functions that NumPy asks of a dtype. Ufuncs get no loops of their own: the cast to float64 is
// registered as safe, so that arithmetic and comparisons take NumPy's float64 loops.
#include "common.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION  // runs with NumPy 1.23 and later, 2.x included
#include <numpy/arrayobject.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "core/half.h"

namespace mge::py {
namespace {

void value_error(const std::string& text) { PyErr_SetString(PyExc_ValueError, text.c_str()); }
// ValueError "bfloat16: needs a number; got 'a'."
void refuse(DType t, const char* needs, PyObject* got) {
  Obj text(PyObject_Repr(got));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (utf8) value_error(format("{}: needs {}; got {}.", dtype_name(t), needs, utf8));
}

struct BFloatElement {
  static constexpr DType kDType = DType::BF16;
  static constexpr const char* kName = "megengine.core._imperative_rt.pybfloat16";
  static constexpr char kChar = 'E';
  using Bits = uint16_t;
  using Number = float;

  static Number number(Bits b) { return bfloat_to_float(b); }
  template <class T>
  static bool encode(T v, Bits* out) {
    float f = static_cast<float>(v);
    if constexpr (sizeof(T) >= sizeof(float) && !std::is_same_v<T, float>) {
      // Rounding to float32 first could turn what is near a tie into one. Where float32 is not exact, the number just
      // nearer to zero with its last bit set falls on the right side.
      using Exact = std::conditional_t<sizeof(T) == 4 || std::is_same_v<T, double>, double, long double>;  // any T
      const Exact exact = static_cast<Exact>(v), rounded = f;
      if (exact < rounded || exact > rounded) {
        uint32_t u = std::bit_cast<uint32_t>(f);
        if (std::fabs(rounded) > std::fabs(exact)) --u;
        f = std::bit_cast<float>(u | 1);
      }
    }
    *out = float_to_bfloat(f);
    return true;
  }
  static bool from_python(PyObject* o, Bits* out) {
    const PyNumberMethods* as = Py_TYPE(o)->tp_as_number;
    if (!as || !(as->nb_float || as->nb_index) || PyArray_IsScalar(o, ComplexFloating) || PyArray_IsScalar(o, Flexible))
      return refuse(kDType, "a number", o), false;
    Obj f(PyNumber_Float(o));
    return f && encode(PyFloat_AS_DOUBLE(f.get()), out);
  }
  static PyObject* to_python(Bits b) { return PyFloat_FromDouble(number(b)); }
  /// Element i of the arithmetic sequence that starts with `first` and `second`.
  static Bits term(Bits first, Bits second, npy_intp i) {
    Bits b;
    const double step = static_cast<double>(number(second)) - number(first);
    encode(number(first) + step * static_cast<double>(i), &b);
    return b;
  }
};

// The 2^bits odd numbers from -(2^bits - 1) to 2^bits - 1. In memory one signed byte each.
template <int bits, DType dtype>
struct LowBitElement {
  static constexpr DType kDType = dtype;
  static constexpr const char* kName = bits == 1   ? "megengine.core._imperative_rt.pyintb1"
                                       : bits == 2 ? "megengine.core._imperative_rt.pyintb2"
                                                   : "megengine.core._imperative_rt.pyintb4";
  static constexpr char kChar = 'r';
  static constexpr int kTop = (1 << bits) - 1;
  using Bits = int8_t;
  using Number = int;

  static Number number(Bits b) { return b; }
  template <class T>
  static bool encode(T v, Bits* out) {  // the fraction of a float is dropped, as in NumPy's casts to integers
    const auto wide = static_cast<long double>(v);
    if (std::fabs(wide) < kTop + 1) {  // not so for NaN
      *out = static_cast<Bits>(wide);
      if (*out % 2 != 0) return true;
    }
    value_error(format("{}: takes the odd numbers from {} to {}; got {}.", dtype_name(dtype), -kTop, kTop,
                       static_cast<double>(v)));
    return false;
  }
  static bool from_python(PyObject* o, Bits* out) {
    if (!PyIndex_Check(o)) return refuse(dtype, "an int", o), false;
    Obj i(PyNumber_Index(o));
    if (!i) return false;
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(i.get(), &overflow);
    if (overflow) return refuse(dtype, "a small int", o), false;
    return encode(v, out);
  }
  static PyObject* to_python(Bits b) { return PyLong_FromLong(b); }
  /// Past the largest number the sequence goes on at the smallest.
  static Bits term(Bits first, Bits second, npy_intp i) {
    const npy_intp at = (first + kTop) / 2 + i * ((second - first) / 2);
    return static_cast<Bits>(2 * (at & kTop) - kTop);
  }
};

template <class E>
struct Scalar {
  PyObject_HEAD typename E::Bits bits;  // where NumPy looks for the value of a scalar
};
template <class E>
PyTypeObject* g_scalar_type = nullptr;

template <class E>
bool bits_of(PyObject* o, typename E::Bits* out) {
  if (Py_TYPE(o) == g_scalar_type<E>) return *out = reinterpret_cast<Scalar<E>*>(o)->bits, true;
  return E::from_python(o, out);
}

// ---- the scalar type

template <class E>
PyObject* scalar_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* value = nullptr;
  if (kwargs && PyDict_Size(kwargs) != 0)
    return PyErr_Format(PyExc_TypeError, "%s takes no keyword arguments", type->tp_name);
  if (!PyArg_UnpackTuple(args, type->tp_name, 1, 1, &value)) return nullptr;
  typename E::Bits bits;
  if (!bits_of<E>(value, &bits)) return nullptr;
  PyObject* o = type->tp_alloc(type, 0);
  if (o) reinterpret_cast<Scalar<E>*>(o)->bits = bits;
  return o;
}
void scalar_free(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}
template <class E>
PyObject* scalar_value(PyObject* o) {
  return E::to_python(reinterpret_cast<Scalar<E>*>(o)->bits);
}
template <class E>
PyObject* scalar_repr(PyObject* o) {
  Obj v(scalar_value<E>(o));
  return v ? PyObject_Repr(v.get()) : nullptr;
}
template <class E>
Py_hash_t scalar_hash(PyObject* o) {  // that of the equal Python number
  Obj v(scalar_value<E>(o));
  return v ? PyObject_Hash(v.get()) : -1;
}
template <class E>
PyObject* scalar_format(PyObject* o, PyObject* spec) {
  Obj v(scalar_value<E>(o));
  return v ? PyObject_Format(v.get(), spec) : nullptr;
}

// Everything else (float(), arithmetic, pickle) is np.generic's.
template <class E>
PyTypeObject* make_scalar_type() {
  static PyMethodDef methods[] = {{"__format__", scalar_format<E>, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(scalar_new<E>)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(scalar_free)},
                         {Py_tp_repr, reinterpret_cast<void*>(scalar_repr<E>)},
                         {Py_tp_str, reinterpret_cast<void*>(scalar_repr<E>)},
                         {Py_tp_hash, reinterpret_cast<void*>(scalar_hash<E>)},
                         {Py_tp_richcompare, reinterpret_cast<void*>(PyGenericArrType_Type.tp_richcompare)},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec = {E::kName, sizeof(Scalar<E>), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};
  Obj type = check(PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(&PyGenericArrType_Type)));
  return reinterpret_cast<PyTypeObject*>(type.release());
}

// ---- what NumPy asks of a dtype; `array` may be null, and elements may lie anywhere

template <class Bits>
Bits swapped(Bits b) {
  if constexpr (sizeof(Bits) == 2) return static_cast<Bits>(b << 8 | b >> 8);
  return b;
}
template <class Bits>
Bits load(const void* from, bool swap = false) {
  Bits b;
  std::memcpy(&b, from, sizeof b);
  return swap ? swapped(b) : b;
}
bool is_swapped(void* array) { return array && PyArray_ISBYTESWAPPED(static_cast<PyArrayObject*>(array)); }

template <class E>
PyObject* getitem(void* data, void* array) {
  return E::to_python(load<typename E::Bits>(data, is_swapped(array)));
}
template <class E>
int setitem(PyObject* value, void* data, void* array) {
  typename E::Bits b;
  if (!bits_of<E>(value, &b)) return -1;
  if (is_swapped(array)) b = swapped(b);
  std::memcpy(data, &b, sizeof b);
  return 0;
}
template <class E>
void copyswapn(void* to, npy_intp to_step, void* from, npy_intp from_step, npy_intp n, int swap, void*) {
  using Bits = typename E::Bits;
  if (!from) from = to, from_step = to_step;  // swap in place
  for (npy_intp i = 0; i < n; ++i) {
    const Bits b = load<Bits>(static_cast<char*>(from) + i * from_step, swap);
    std::memcpy(static_cast<char*>(to) + i * to_step, &b, sizeof b);
  }
}
template <class E>
void copyswap(void* to, void* from, int swap, void* array) {
  copyswapn<E>(to, 0, from, 0, 1, swap, array);
}
template <class E>
npy_bool nonzero(void* data, void* array) {
  return E::number(load<typename E::Bits>(data, is_swapped(array))) != 0;
}
// NaN after all numbers, as NumPy sorts
template <class Number>
bool before(Number a, Number b) {
  return a < b || (a == a && b != b);
}
template <class E>
int compare(const void* a, const void* b, void*) {
  const auto x = E::number(load<typename E::Bits>(a)), y = E::number(load<typename E::Bits>(b));
  return before(x, y) ? -1 : before(y, x);
}
// The first NaN wins in both directions.
template <class E, bool largest>
int argbest(void* data, npy_intp n, npy_intp* at, void*) {
  const auto* bits = static_cast<const typename E::Bits*>(data);
  auto best = E::number(bits[*at = 0]);
  for (npy_intp i = 1; i < n && best == best; ++i) {
    const auto v = E::number(bits[i]);
    if (v != v || (largest ? v > best : v < best)) best = E::number(bits[*at = i]);
  }
  return 0;
}
template <class E>
int fill(void* data, npy_intp n, void*) {  // np.arange has set the first two
  auto* bits = static_cast<typename E::Bits*>(data);
  for (npy_intp i = 2; i < n; ++i) bits[i] = E::term(bits[0], bits[1], i);
  return 0;
}

// ---- casts

template <int num, class T>
struct Builtin {
  static constexpr int kNum = num;
  using Type = T;
};
template <class... Rows>
struct List {};
using Builtins =
    List<Builtin<NPY_BOOL, bool>, Builtin<NPY_BYTE, npy_byte>, Builtin<NPY_UBYTE, npy_ubyte>,
         Builtin<NPY_SHORT, npy_short>, Builtin<NPY_USHORT, npy_ushort>, Builtin<NPY_INT, npy_int>,
         Builtin<NPY_UINT, npy_uint>, Builtin<NPY_LONG, npy_long>, Builtin<NPY_ULONG, npy_ulong>,
         Builtin<NPY_LONGLONG, npy_longlong>, Builtin<NPY_ULONGLONG, npy_ulonglong>, Builtin<NPY_HALF, Half>,
         Builtin<NPY_FLOAT, float>, Builtin<NPY_DOUBLE, double>, Builtin<NPY_LONGDOUBLE, npy_longdouble>>;

float plain(Half h) { return static_cast<float>(h); }
template <class T>
T plain(T v) {
  return v;
}

template <class E, class T>
void cast_from(void* from, void* to, npy_intp n, void*, void*) {
  const auto* source = static_cast<const T*>(from);
  auto* target = static_cast<typename E::Bits*>(to);
  for (npy_intp i = 0; i < n; ++i)
    if (!E::encode(plain(source[i]), &target[i])) return;  // NumPy sees the Python error
}
template <class E, class T>
void cast_to(void* from, void* to, npy_intp n, void*, void*) {
  const auto* source = static_cast<const typename E::Bits*>(from);
  auto* target = static_cast<T*>(to);
  for (npy_intp i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, Half>)
      target[i] = Half(static_cast<float>(E::number(source[i])));
    else
      target[i] = static_cast<T>(E::number(source[i]));
  }
}

void register_cast(PyArray_Descr* from, int to, PyArray_VectorUnaryFunc* fn) {
  if (PyArray_RegisterCastFunc(from, to, fn) < 0) throw PythonError{};
}
template <class E, class... Rows>
void register_casts(PyArray_Descr* descr, List<Rows...>) {
  (register_cast(descr, Rows::kNum, cast_to<E, typename Rows::Type>), ...);
  (register_cast(PyArray_DescrFromType(Rows::kNum), descr->type_num, cast_from<E, typename Rows::Type>), ...);
  if (PyArray_RegisterCanCast(descr, NPY_DOUBLE, NPY_NOSCALAR) < 0) throw PythonError{};
}

// Pickles of a dtype make NumPy write the byte order and flags they hold into the one dtype object that all arrays
// share. Files of MegEngine hold other flags, and a damaged or hostile file anything.
PyObject* ignore_state(PyObject*, PyObject*) { Py_RETURN_NONE; }
void keep_state(PyArray_Descr* descr) {
  static PyMethodDef method = {"__setstate__", ignore_state, METH_O, nullptr};
  PyTypeObject* type = Py_TYPE(reinterpret_cast<PyObject*>(descr));
  Obj f = check(PyDescr_NewMethod(type, &method));
  if (PyDict_SetItemString(type->tp_dict, method.ml_name, f.get()) < 0) throw PythonError{};
  PyType_Modified(type);
}

template <class E>
PyArray_Descr* g_descr = nullptr;

template <class E>
PyObject* make_dtype() {
  g_scalar_type<E> = make_scalar_type<E>();
  static PyArray_ArrFuncs functions;  // NumPy keeps the address
  PyArray_InitArrFuncs(&functions);
  functions.getitem = getitem<E>;
  functions.setitem = setitem<E>;
  functions.copyswap = copyswap<E>;
  functions.copyswapn = copyswapn<E>;
  functions.nonzero = nonzero<E>;
  functions.compare = compare<E>;
  functions.argmax = argbest<E, true>;
  functions.argmin = argbest<E, false>;
  functions.fill = fill<E>;
  static PyArray_DescrProto proto;  // NumPy 1 makes this very object the dtype
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&proto), 1);
  Py_SET_TYPE(reinterpret_cast<PyObject*>(&proto), &PyArrayDescr_Type);
  proto.typeobj = g_scalar_type<E>;
  proto.kind = 'V';
  proto.type = E::kChar;
  proto.byteorder = '=';
  proto.flags = NPY_NEEDS_PYAPI | NPY_USE_SETITEM;  // casts may raise
  proto.elsize = sizeof(typename E::Bits);
  proto.alignment = alignof(typename E::Bits);
  proto.f = &functions;
  proto.hash = -1;
  const int num = PyArray_RegisterDataType(&proto);
  if (num < 0) throw PythonError{};
  g_descr<E> = PyArray_DescrFromType(num);
  register_casts<E>(g_descr<E>, Builtins{});
  keep_state(g_descr<E>);
  return Py_NewRef(reinterpret_cast<PyObject*>(g_descr<E>));
}

using Elements =
    List<BFloatElement, LowBitElement<1, DType::IB1>, LowBitElement<2, DType::IB2>, LowBitElement<4, DType::IB4>>;

template <class... E>
void make_all(PyObject** dtypes, List<E...>) {
  ((dtypes[static_cast<int>(E::kDType)] = make_dtype<E>()), ...);
}
template <class... E>
bool find(int type_num, DType* out, List<E...>) {
  return ((g_descr<E>->type_num == type_num && (*out = E::kDType, true)) || ...);
}
template <class E>
bool check_values(const void* data, int64_t n) {
  const auto* bits = static_cast<const typename E::Bits*>(data);
  typename E::Bits same;
  for (int64_t i = 0; i < n; ++i)
    if (!E::encode(E::number(bits[i]), &same)) return false;
  return true;
}
template <class... E>
bool check_values(DType t, const void* data, int64_t n, List<E...>) {
  return ((E::kDType != t || check_values<E>(data, n)) && ...);
}

}  // namespace

void make_numpy_dtypes(PyObject** dtypes) {
  if (_import_array() < 0) throw PythonError{};
  make_all(dtypes, Elements{});
}

bool is_swapped_array(PyObject* array) { return is_swapped(array); }
PyObject* native_array(PyObject* array) {
  PyArray_Descr* descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array));
  Obj native = check(reinterpret_cast<PyObject*>(PyArray_DescrNewByteorder(descr, NPY_NATIVE)));
  return PyObject_CallMethod(array, "astype", "O", native.get());
}

bool holds_our_dtype(PyObject* array, DType* out) {
  const int num = PyArray_TYPE(reinterpret_cast<PyArrayObject*>(array));
  if (PyTypeNum_ISUSERDEF(num)) return find(num, out, Elements{});
  PyArray_Descr* descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array));
  if (num != NPY_VOID || !PyDataType_METADATA(descr)) return false;
  try {  // files written when bfloat16 was two bytes with a note
    return to_dtype(reinterpret_cast<PyObject*>(descr)) == DType::BF16 && (*out = DType::BF16, true);
  } catch (const Error&) {  // some other record
    return false;
  }
}

void check_element_values(DType t, const void* data, int64_t n) {
  if (!check_values(t, data, n, Elements{})) throw PythonError{};
}

}  // namespace mge::py
