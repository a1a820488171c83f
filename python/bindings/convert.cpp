#include <cmath>
#include <cstring>

#include "common.h"
#include "kernel/copy.h"
#include "kernel/row_io.h"
#include "op/promote.h"

namespace mge::py {
namespace {

PyObject *g_np, *g_asarray, *g_np_dtype, *g_ndarray, *g_generic;
PyObject* g_dtypes[kDTypeCount];   // np.dtype objects; null for the quantised, which differ by scale
PyObject* g_quant_hook = nullptr;  // (name, scale, zero_point) -> np.dtype, set by core/tensor/dtype.py

// PEP 3118 format -> dtype
bool from_format(const char* f, Py_ssize_t itemsize, DType* t) {
  if (!f) return *t = DType::U8, true;
  if (*f == '<' || *f == '=' || *f == '@') ++f;
  if (*f == '>' && itemsize > 1) return false;
  switch (*f) {
    case '?':
      return *t = DType::Bool, true;
    case 'B':
      return *t = DType::U8, true;
    case 'b':
      return *t = DType::I8, true;
    case 'H':
      return *t = DType::U16, true;
    case 'h':
      return *t = DType::I16, true;
    case 'e':
      return *t = DType::F16, true;
    case 'f':
      return *t = DType::F32, true;
    case 'd':
      return *t = DType::F64, true;
    case 'i':
    case 'l':
    case 'q':
      return *t = itemsize == 4 ? DType::I32 : DType::I64, true;
    case 'Z':
      return f[1] == 'f' ? (*t = DType::C64, true) : false;
    default:
      return false;
  }
}
const char* to_format(DType t) {
  switch (t) {
    case DType::Bool:
      return "?";
    case DType::U8:
    case DType::QU8:
    case DType::QU4:
      return "B";
    case DType::I8:
    case DType::QI8:
    case DType::QI1:
    case DType::QI4:
    case DType::IB1:
    case DType::IB2:
    case DType::IB4:
      return "b";
    case DType::U16:
    case DType::BF16:
      return "H";
    case DType::I16:
    case DType::QI16:
      return "h";
    case DType::I32:
    case DType::QI32:
      return "i";
    case DType::I64:
      return "q";
    case DType::F16:
      return "e";
    case DType::F32:
      return "f";
    case DType::F64:
      return "d";
    case DType::C64:
      return "Zf";
    default:
      return nullptr;
  }
}

// Lends a tensor's memory to NumPy through the buffer protocol; the storage lives as long as some array looks at it.
struct Exporter {
  PyObject_HEAD RefPtr<Storage> storage;
  void* ptr;
  DType dtype;
  int ndim;
  Py_ssize_t shape[kMaxRank], strides[kMaxRank];
  Py_ssize_t bytes;
};
int exporter_get(PyObject* self, Py_buffer* view, int flags) {
  auto* e = reinterpret_cast<Exporter*>(self);
  if (flags & PyBUF_WRITABLE) {
    PyErr_SetString(PyExc_BufferError, "tensors are values; their memory is read-only");
    view->obj = nullptr;
    return -1;
  }
  view->obj = Py_NewRef(self);
  view->buf = e->ptr;
  view->len = e->bytes;
  view->readonly = 1;
  view->itemsize = static_cast<Py_ssize_t>(dtype_size(e->dtype));
  view->format = flags & PyBUF_FORMAT ? const_cast<char*>(to_format(e->dtype)) : nullptr;
  view->ndim = e->ndim;
  view->shape = e->shape;
  view->strides = e->strides;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  return 0;
}
void exporter_free(PyObject* self) {
  reinterpret_cast<Exporter*>(self)->storage.~RefPtr<Storage>();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
PyType_Slot exporter_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(exporter_get)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(exporter_free)},
                                {0, nullptr}};
PyType_Spec exporter_spec = {"megengine.core._core._Exporter", sizeof(Exporter), 0, Py_TPFLAGS_DEFAULT, exporter_slots};
PyTypeObject* g_exporter;

struct BufferGuard {
  Py_buffer view{};
  bool held = false;
  ~BufferGuard() {
    if (held) PyBuffer_Release(&view);
  }
};

// A Python number. An int is kept exactly; `real` is what floating point makes of it.
struct Number {
  PyObject* from;
  DType natural;  // Bool, I32 or F32
  double real;
  int64_t whole = 0;
  bool huge = false;  // an int of more than 64 bits
};

bool as_number(PyObject* o, Number* n) {
  n->from = o;
  if (PyFloat_CheckExact(o)) return n->real = PyFloat_AS_DOUBLE(o), n->natural = DType::F32, true;
  if (PyBool_Check(o)) return n->whole = o == Py_True, n->real = o == Py_True, n->natural = DType::Bool, true;
  if (!PyLong_CheckExact(o)) return false;
  int overflow = 0;
  n->natural = DType::I32;
  n->whole = PyLong_AsLongLongAndOverflow(o, &overflow);
  n->real = static_cast<double>(n->whole);
  if ((n->huge = overflow != 0)) {
    n->real = PyLong_AsDouble(o);
    if (PyErr_Occurred()) PyErr_Clear(), n->real = std::copysign(HUGE_VAL, overflow);
  }
  return true;
}

// The least and the largest value of an integer dtype.
int64_t least(DType t) { return is_unsigned(t) ? 0 : INT64_MIN >> (64 - dtype_info(t).bits); }
int64_t most(DType t) { return static_cast<int64_t>(UINT64_MAX >> (64 - dtype_info(t).bits + !is_unsigned(t))); }
bool within(int64_t v, DType t) { return v >= least(t) && v <= most(t); }
bool within(double v, DType t) {  // after truncation
  const double end = std::ldexp(1.0, dtype_info(t).bits - !is_unsigned(t));
  return v < end && (is_unsigned(t) ? v > -1 : v >= -end || std::trunc(v) >= -end);
}
[[noreturn]] void does_not_fit(std::string_view value, const std::string& where, DType t, bool in_64_bits) {
  fail(ErrorKind::Value, "tensor: {}{} does not fit {} ({}..{}). {}", value, where, dtype_name(t), least(t), most(t),
       in_64_bits ? "Give dtype=\"int64\" to keep it, or cast the tensor beside it with x.astype(\"int64\")."
                  : "No integer dtype holds it; take float64.");
}

// What the number is in dtype `t`. One that the dtype does not hold is refused; a float that becomes infinite may be
// meant so and is warned of.
TensorPtr number_tensor(const Number& n, DType t, const CompNode* cn) {
  if (is_int(t) && (n.natural == DType::F32 ? !within(n.real, t) : n.huge || !within(n.whole, t))) {
    Obj text = check(PyObject_Str(n.from));
    const bool in_64_bits = n.natural == DType::F32 ? within(n.real, DType::I64) : !n.huge;
    does_not_fit(text_of(text.get()), "", t, in_64_bits);
  }
  const double infinite = t == DType::F16 ? 65520 : t == DType::BF16 ? 0x1.FFp127 : 0x1.FFFFFFp127;  // what rounds up
  if (t != DType::F64 && is_float(t) && std::fabs(n.real) >= infinite && (n.huge || std::isfinite(n.real))) {
    Obj text = check(PyObject_Str(n.from));
    if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "tensor: %U is infinite in %s; dtype=\"float64\" holds it.",
                         text.get(), std::string(dtype_name(t)).c_str()) < 0)
      throw PythonError{};
  }
  if (t != DType::I64 || n.natural == DType::F32) return scalar_tensor(n.real, t, cn);
  Meta m;
  m.dtype = t;
  m.cn = cn ? cn : CompNode::default_node();
  Buffer b = allocate_for_host(m);
  std::memcpy(b.storage->ptr, &n.whole, sizeof n.whole);
  return tensor_from_host(m, std::move(b));
}

// Whether all integers of `src`, or floats cut to integers, are integers of `t`.
bool always_fits(DType src, DType t) {
  if (!is_int(t) || !(is_int(src) || is_float(src))) return true;
  return is_int(src) && within(least(src), t) && within(most(src), t);
}

// Elements that dtype `t` does not hold are refused: NumPy would make others of them. The buffer is contiguous.
void check_fits(const Py_buffer& v, DType src, DType t) {
  const int64_t n = v.len / v.itemsize;
  if (src == DType::I64) {  // what NumPy makes of everything: bits above those of `t` are left when one does not fit
    const auto* p = static_cast<const uint64_t*>(v.buf);
    const uint64_t first = static_cast<uint64_t>(least(t));
    uint64_t above = 0;
    for (int64_t i = 0; i < n; ++i) above |= p[i] - first;
    if (above >> dtype_info(t).bits == 0) return;
  }
  auto check_all = [&]<class V>(V lowest, V end, Compute c) {
    V row[kRowTile];
    for (int64_t from = 0; from < n; from += kRowTile) {
      const int64_t m = std::min(kRowTile, n - from);
      load_row(src, static_cast<const char*>(v.buf) + from * v.itemsize, 1, c, row, m);
      bool inside = true;
      for (int64_t i = 0; i < m; ++i) inside &= (row[i] >= lowest) & (row[i] <= end);
      for (int64_t i = 0; i < m && !inside; ++i)  // the bounds of floats are a little too narrow
        if (!within(row[i], t))
          does_not_fit(format("{}", row[i]), format(" at position {}", from + i), t, within(row[i], DType::I64));
    }
  };
  if (is_int(src))
    check_all(least(t), most(t), Compute::I64);
  else
    check_all(static_cast<double>(least(t)), std::nextafter(static_cast<double>(most(t)), 0.0), Compute::F64);
}

// `bytes` holds one element each.
TensorPtr packed_tensor(Meta m, DType want, const Buffer& bytes) {
  const QuantRange range = quant_range(want);
  const int64_t n = m.shape.numel();
  const auto* p = static_cast<const uint8_t*>(bytes.storage->ptr);
  for (int64_t i = 0; i < n; ++i) {
    const int v = want == DType::QU4 ? p[i] : static_cast<int8_t>(p[i]);
    MGE_CHECK(v >= range.lo && v <= range.hi, Value, "tensor: {} does not fit {}, which holds {} to {}.", v,
              dtype_name(want), range.lo, range.hi);
  }
  m.dtype = want;
  Buffer b = allocate_for_host(m);
  pack4(p, b.storage->ptr, n);
  return tensor_from_host(m, std::move(b));
}

TensorPtr from_array(PyObject* array, const TensorOptions& opt) {
  if (is_swapped_array(array)) {  // big-endian
    Obj native = check(native_array(array));
    return from_array(native.get(), opt);
  }
  DType src;
  const bool ours = holds_our_dtype(array, &src);
  Obj plain(ours ? check(PyObject_CallMethod(array, "view", "s", to_format(src))) : Obj(Py_NewRef(array)));
  BufferGuard g;
  if (PyObject_GetBuffer(plain.get(), &g.view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    Obj kind(PyObject_GetAttrString(array, "dtype"));
    Obj text(kind ? PyObject_Str(kind.get()) : nullptr);
    fail(ErrorKind::Type, "tensor: data of dtype {} is not supported. Convert it with .astype first.",
         text ? text_of(text.get()) : "unknown");
  }
  g.held = true;
  if (g.view.format && std::strcmp(g.view.format, "Zd") == 0) {  // what Python's complex numbers are in NumPy
    Obj single = check(PyObject_CallMethod(array, "astype", "O", g_dtypes[static_cast<int>(DType::C64)]));
    return from_array(single.get(), opt);
  }
  MGE_CHECK(ours || from_format(g.view.format, g.view.itemsize, &src), Type,
            "tensor: data of NumPy format '{}' is not supported (uint32, uint64, str and object are not). "
            "Convert it with .astype first.",
            g.view.format ? g.view.format : "?");
  MGE_CHECK(g.view.ndim <= kMaxRank, Value, "tensor: at most {} dimensions are supported; got {}.", kMaxRank,
            g.view.ndim);
  DType want = opt.has_dtype ? opt.dtype : opt.exact ? src : in_32_bits(src);
  DType raw = want;
  if (is_quant(want)) from_format(to_format(want), sizeof(int32_t), &raw);  // the integers that carry it
  bool regular = reinterpret_cast<uintptr_t>(g.view.buf) % static_cast<size_t>(g.view.itemsize) == 0;
  for (int i = 0; i < g.view.ndim; ++i) regular &= g.view.strides[i] % g.view.itemsize == 0;
  if (!regular) {  // a field of a structured array, or bytes of a file: NumPy brings it to where words are read
    PyBuffer_Release(&g.view);
    g.held = false;
    Obj copy = check(PyObject_CallMethod(array, "copy", nullptr));
    return from_array(copy.get(), opt);
  }
  if (src != raw) {
    MGE_CHECK(src != DType::C64, Type, "tensor: complex data cannot become {}. Take its .real first.",
              dtype_name(want));
    if (!always_fits(src, raw)) {
      if (!PyBuffer_IsContiguous(&g.view, 'C')) {
        PyBuffer_Release(&g.view);
        g.held = false;
        Obj copy = check(PyObject_CallMethod(array, "copy", nullptr));
        return from_array(copy.get(), opt);
      }
      check_fits(g.view, src, raw);
    }
    Obj target(Py_XNewRef(g_dtypes[static_cast<int>(raw)]));
    MGE_CHECK(target, Type, "tensor: cannot make {} from this data.", dtype_name(want));
    PyBuffer_Release(&g.view);
    g.held = false;
    Obj typed(ours ? check(PyObject_CallMethod(array, "view", "O", g_dtypes[static_cast<int>(src)]))
                   : std::move(plain));
    Obj cast = check(PyObject_CallMethod(typed.get(), "astype", "O", target.get()));
    TensorOptions inner = opt;
    inner.exact = true;
    return from_array(cast.get(), inner);
  }
  Meta m;
  m.dtype = want;
  m.quant = opt.quant;
  m.cn = opt.cn ? opt.cn : CompNode::default_node();
  for (int i = 0; i < g.view.ndim; ++i) m.shape.push_back(g.view.shape[i]);
  check_shape("tensor", m.shape);
  m.dtype = unpacked(want);
  Buffer b = allocate_for_host(m);
  TensorArg dst = make_arg(m, b), from = dst;
  from.ptr = g.view.buf;
  for (int i = 0; i < g.view.ndim; ++i) from.layout.stride[i] = g.view.strides[i] / g.view.itemsize;
  copy_strided(from, dst);
  if (is_low_bit(want)) check_element_values(want, dst.ptr, m.shape.numel());
  if (is_packed(want)) return packed_tensor(m, want, b);
  return tensor_from_host(m, std::move(b));
}

}  // namespace

void init_convert() {
  g_np = check(PyImport_ImportModule("numpy")).release();
  g_asarray = check(PyObject_GetAttrString(g_np, "asarray")).release();
  g_np_dtype = check(PyObject_GetAttrString(g_np, "dtype")).release();
  g_ndarray = check(PyObject_GetAttrString(g_np, "ndarray")).release();
  g_generic = check(PyObject_GetAttrString(g_np, "generic")).release();
  for (DType t : {DType::Bool, DType::U8, DType::I8, DType::U16, DType::I16, DType::I32, DType::I64, DType::F16,
                  DType::F32, DType::F64, DType::C64})
    g_dtypes[static_cast<int>(t)] =
        check(PyObject_CallFunction(g_np_dtype, "s", std::string(dtype_name(t)).c_str())).release();
  make_numpy_dtypes(g_dtypes);
  g_exporter = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&exporter_spec)).release());
}

/// core/tensor/dtype.py registers how to spell quantised dtypes.
void set_quant_hook(PyObject* quant) { g_quant_hook = Py_XNewRef(quant); }

namespace {

// scale and zero point of a dtype's metadata: numbers, or lists with the axis of the channels they belong to.
Quant quant_of(PyObject* info) {
  auto item = [&](const char* name) {
    Obj o(PyMapping_GetItemString(info, name));
    if (!o) PyErr_Clear();
    return o;
  };
  auto whole = [](PyObject* o) {
    const int64_t v = PyLong_AsLongLong(o);
    if (v == -1 && PyErr_Occurred()) throw PythonError{};
    MGE_CHECK(within(v, DType::I32), Value, "dtype: the zero point {} of a quantised dtype does not fit int32.", v);
    return static_cast<int32_t>(v);
  };
  Obj scale = check(PyMapping_GetItemString(info, "scale")), zero = item("zero_point"), axis = item("axis");
  if (!axis) {
    Quant q;
    q.scale = PyFloat_AsDouble(scale.get());
    if (q.scale == -1 && PyErr_Occurred()) throw PythonError{};
    if (zero) q.zero_point = whole(zero.get());
    return q;
  }
  std::vector<float> scales;
  std::vector<int32_t> zeros;
  Obj list = check(PySequence_Fast(scale.get(), "scale must be a list of numbers"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    const double v = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(list.get(), i));
    if (v == -1 && PyErr_Occurred()) throw PythonError{};
    scales.push_back(static_cast<float>(v));
  }
  if (zero) {
    list = check(PySequence_Fast(zero.get(), "zero_point must be a list of integers"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i)
      zeros.push_back(whole(PySequence_Fast_GET_ITEM(list.get(), i)));
  }
  Obj span = item("span");
  return Quant::per_channel(std::move(scales), std::move(zeros), whole(axis.get()), span ? whole(span.get()) : 1);
}

}  // namespace

DType to_dtype(PyObject* o, Quant* quant) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (g_dtypes[i] == o) return static_cast<DType>(i);
  const std::string spelled = text_of(o);
  if (DType t; !spelled.empty() && find_dtype(spelled, &t)) return t;
  Obj d(PyObject_CallOneArg(g_np_dtype, o));  // also knows 'f4', '<i4', 'single'
  if (!d) {
    PyErr_Clear();
    if (!spelled.empty()) return parse_dtype(spelled);  // whose error lists the names
    Obj text = check(PyObject_Repr(o));
    fail(ErrorKind::Type, "dtype: {} is not a dtype.", text_of(text.get()));
  }
  Obj meta = check(PyObject_GetAttrString(d.get(), "metadata"));
  if (meta.get() != Py_None) {
    PyObject* info = PyMapping_GetItemString(meta.get(), "mgb_dtype");
    if (info) {
      Obj held(info);
      static const std::pair<const char*, DType> kNames[] = {
          {"Quantized8Asymm", DType::QU8}, {"QuantizedS8", DType::QI8}, {"QuantizedS32", DType::QI32},
          {"Quantized4Asymm", DType::QU4}, {"QuantizedS4", DType::QI4}, {"QuantizedS1", DType::QI1},
          {"QuantizedS16", DType::QI16}};
      Obj name = check(PyMapping_GetItemString(info, "name"));
      const std::string text = text_of(name.get());
      if (text == "BFloat16") return DType::BF16;  // as holds_our_dtype says
      for (auto& [n, t] : kNames)
        if (text == n) {
          if (quant) *quant = quant_of(info);
          return t;
        }
    } else {
      PyErr_Clear();
    }
  }
  for (int i = 0; i < kDTypeCount; ++i)
    if (g_dtypes[i] && PyObject_RichCompareBool(g_dtypes[i], d.get(), Py_EQ) == 1) return static_cast<DType>(i);
  Obj name = check(PyObject_GetAttrString(d.get(), "name"));
  return parse_dtype(text_of(name.get()));
}

void take_quantised(PyObject* data, TensorOptions* opt) {
  if (!PyObject_TypeCheck(data, reinterpret_cast<PyTypeObject*>(g_ndarray))) return;
  Obj dtype = check(PyObject_GetAttrString(data, "dtype")),
      meta = check(PyObject_GetAttrString(dtype.get(), "metadata"));
  if (meta.get() == Py_None || !PyMapping_HasKeyString(meta.get(), "mgb_dtype")) return;  // other programs' notes
  Quant quant;
  const DType t = to_dtype(dtype.get(), &quant);
  if (!is_quant(t)) return;
  opt->has_dtype = true;
  opt->dtype = t;
  opt->quant = quant;
}

PyObject* dtype_object(const Meta& m) {
  if (PyObject* d = g_dtypes[static_cast<int>(m.dtype)]) return Py_NewRef(d);
  MGE_CHECK(g_quant_hook, NotImplemented, "dtype: {} has no NumPy spelling here.", dtype_name(m.dtype));
  const std::string name(dtype_name(m.dtype));
  if (m.quant.per_tensor())
    return check(PyObject_CallFunction(g_quant_hook, "sdi", name.c_str(), m.quant.scale, m.quant.zero_point)).release();
  const QuantChannels& c = m.quant.channels();
  const auto n = static_cast<Py_ssize_t>(c.scale.size());
  Obj scales = check(PyTuple_New(n)), zeros = check(PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyTuple_SET_ITEM(scales.get(), i, PyFloat_FromDouble(c.scale[static_cast<size_t>(i)]));
    PyTuple_SET_ITEM(zeros.get(), i, PyLong_FromLong(c.zero_point[static_cast<size_t>(i)]));
  }
  return check(PyObject_CallFunction(g_quant_hook, "sOOii", name.c_str(), scales.get(), zeros.get(), c.axis, c.span))
      .release();
}

PyObject* shape_tuple(const Shape& s) {
  PyObject* t = PyTuple_New(s.rank);
  if (!t) throw PythonError{};
  for (int i = 0; i < s.rank; ++i) PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(s[i]));
  return t;
}

TensorPtr tensor_from_object(PyObject* o, const TensorOptions& opt) {
  Number n;
  if (!(opt.has_dtype && (is_quant(opt.dtype) || is_low_bit(opt.dtype))) && as_number(o, &n))
    return number_tensor(n, opt.has_dtype ? opt.dtype : n.natural, opt.cn);
  if (o == Py_None) {
    Obj empty = check(PyList_New(0));
    return tensor_from_object(empty.get(), opt);
  }
  if (PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(g_ndarray))) return from_array(o, opt);
  Obj array = check(PyObject_CallOneArg(g_asarray, o));
  TensorOptions inner = opt;
  // Python ints and floats inside sequences are int32 and float32, whatever NumPy makes of them.
  return from_array(array.get(), inner);
}

namespace {

// 4-bit elements look like 8-bit ones to NumPy.
PyObject* unpacked_array(Tensor& t) {
  Meta m = t.meta();
  const Buffer packed = read_buffer(t);
  Obj dtype = check(dtype_object(m));
  const DType narrow = m.dtype;
  m.dtype = unpacked(narrow);
  m.cn = nullptr;
  Buffer wide = allocate_buffer(m);
  unpack4(narrow, packed.storage->ptr, wide.storage->ptr, m.shape.numel());
  Obj array(to_numpy(*tensor_from_buffer(m, std::move(wide))));
  return check(PyObject_CallMethod(array.get(), "view", "O", dtype.get())).release();
}

}  // namespace

PyObject* to_numpy(Tensor& t) {
  const Meta m = t.meta();
  MGE_CHECK(to_format(m.dtype), NotImplemented, "numpy: packed dtype {} cannot be exported yet.", dtype_name(m.dtype));
  if (is_packed(m.dtype)) return unpacked_array(t);
  ValuePtr held = t.value;  // other threads run while this one waits, and may assign to the cell
  const Buffer src = read_buffer(t);
  Buffer b;
  try {
    b = make_contiguous(m, src);
  } catch (const Error& e) {  // a broadcast value may be small until somebody wants all of it
    throw Error(e.kind(), format("numpy: {}\n  for a value of {}", e.text(), m.str()));
  }
  Obj e = check(g_exporter->tp_alloc(g_exporter, 0));
  auto* x = reinterpret_cast<Exporter*>(e.get());
  new (&x->storage) RefPtr<Storage>(b.storage);
  x->ptr = b.data(m.dtype);
  x->dtype = m.dtype;
  x->ndim = m.shape.rank;
  x->bytes = static_cast<Py_ssize_t>(m.bytes());
  Py_ssize_t step = static_cast<Py_ssize_t>(dtype_size(m.dtype));
  for (int i = m.shape.rank - 1; i >= 0; --i) {
    x->shape[i] = m.shape[i];
    x->strides[i] = step;
    step *= std::max<int64_t>(m.shape[i], 1);
  }
  Obj array = check(PyObject_CallOneArg(g_asarray, e.get()));
  if (m.dtype == DType::BF16 || is_quant(m.dtype) || is_low_bit(m.dtype)) {
    Obj d = check(dtype_object(m));
    return check(PyObject_CallMethod(array.get(), "view", "O", d.get())).release();
  }
  return array.release();
}

namespace {

bool is_array(PyObject* o) {
  return PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(g_ndarray)) ||
         PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(g_generic));
}

}  // namespace

TensorPtr operand(PyObject* o, DType like, const CompNode* cn, bool elementwise) {
  if (is_tensor(o)) return TensorPtr(tensor_of(o));
  if (o == Py_None) {
    PyErr_SetString(PyExc_TypeError, "the operand is None and is not supported.");
    throw PythonError{};
  }
  TensorOptions opt;
  opt.cn = cn;
  Number n;
  if (as_number(o, &n)) {
    const DType t = number_beside(n.natural, like);
    if (!active_tracer()) {  // small constants come again and again; a recording needs its own
      struct Slot {
        uint64_t bits = 0;
        DType t = DType::F32;
        const CompNode* cn = nullptr;
        TensorPtr p;
      };
      static Slot slots[64];
      if (n.huge) return number_tensor(n, t, cn);
      const uint64_t bits = t == DType::I64 ? static_cast<uint64_t>(n.whole) : hash_double(n.real);
      Slot& s = slots[hash_mix(bits, static_cast<uint64_t>(t)) % 64];
      if (s.p && s.bits == bits && s.t == t && s.cn == cn) return s.p;
      s = {bits, t, cn, number_tensor(n, t, cn)};
      return s.p;
    }
    return number_tensor(n, t, cn);
  }
  if (PyList_Check(o)) {
    MGE_CHECK(!elementwise || !is_low_bit(like), Value,
              "operand: a list has no dtype beside a tensor of {}. Make it a tensor too, or cast the other.",
              dtype_name(like));
    opt.has_dtype = !is_quant(like);
    opt.dtype = like;
    // A list of floats beside an int tensor must not be truncated.
    Obj array = check(PyObject_CallOneArg(g_asarray, o));
    TensorOptions natural;
    natural.cn = cn;
    natural.exact = true;  // only its dtype is asked for
    if (ranks_above(tensor_from_object(array.get(), natural)->meta().dtype, like)) opt.has_dtype = false;
    return tensor_from_object(array.get(), opt);
  }
  if (elementwise && has_kind(like) && is_array(o)) {
    Obj d = check(PyObject_GetAttrString(o, "dtype"));
    const DType given = to_dtype(d.get());
    opt.has_dtype = has_kind(given);
    if (opt.has_dtype) opt.dtype = array_beside(given, like);
  }
  return tensor_from_object(o, opt);
}

namespace {

// The integers in a tensor, which goes to `sizes` when they are others in later calls. `element`: of a list.
Ints from_tensor(Tensor& t, SizeList* sizes, int field, int element) {
  bool later = false;
  Ints out = size_numbers(t, sizes ? &later : nullptr);
  MGE_CHECK(element == SizeOperand::kWhole || out.size() == 1, Value,
            "shape: a size must be one number; got a tensor of shape {}.", t.meta().shape.str());
  if (later) sizes->push_back({field, element, RefPtr<ValImpl>(&t)});
  return out;
}

}  // namespace

Ints to_ints(PyObject* o, SizeList* sizes, int field) {
  Ints out;
  if (PyLong_Check(o)) {
    out.push_back(PyLong_AsLongLong(o));
  } else if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {  // what is asked below may change a list
      const Obj held(Py_NewRef(PySequence_Fast_GET_ITEM(o, i)));
      PyObject* item = held.get();
      if (PyLong_CheckExact(item)) {
        out.push_back(PyLong_AsLongLong(item));
        continue;
      }
      if (is_tensor(item)) {
        out.push_back(from_tensor(*tensor_of(item), sizes, field, static_cast<int>(i))[0]);
        continue;
      }
      Obj index = check(PyNumber_Index(item));  // NumPy ints, 0-d int tensors
      out.push_back(PyLong_AsLongLong(index.get()));
    }
  } else if (is_tensor(o)) {
    return from_tensor(*tensor_of(o), sizes, field, SizeOperand::kWhole);
  } else if (PyObject_HasAttrString(o, "tolist")) {
    Obj list = check(PyObject_CallMethod(o, "tolist", nullptr));
    return to_ints(list.get());
  } else if (PyIndex_Check(o)) {
    Obj index = check(PyNumber_Index(o));
    out.push_back(PyLong_AsLongLong(index.get()));
  } else {
    if (PyFloat_Check(o)) {
      PyErr_Format(PyExc_TypeError, "sizes must be integers; got %R", o);
      throw PythonError{};
    }
    Obj list = check(PySequence_List(o));
    return to_ints(list.get());
  }
  if (PyErr_Occurred()) throw PythonError{};
  return out;
}

AttrValue to_attr(PyObject* o, SizeList* sizes, int field) {
  if (is_tensor(o)) {
    Ints v = from_tensor(*tensor_of(o), sizes, field, SizeOperand::kWhole);
    return tensor_of(o)->meta().shape.rank == 0 ? AttrValue(v[0]) : AttrValue(std::move(v));
  }
  if (PyBool_Check(o)) return o == Py_True;
  if (PyLong_Check(o)) {
    int64_t v = PyLong_AsLongLong(o);
    if (v == -1 && PyErr_Occurred()) throw PythonError{};
    return v;
  }
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  if (PyUnicode_Check(o)) return text_of(o);
  if (PyTuple_Check(o) || PyList_Check(o)) return to_ints(o, sizes, field);
  if (PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(g_np_dtype)) || PyType_Check(o)) {
    Quant q;
    const DType t = to_dtype(o, &q);
    return q.scale != 0 ? AttrValue(QType{t, q}) : AttrValue(t);
  }
  if (PyIndex_Check(o)) return to_attr(check(PyNumber_Index(o)).get());
  if (PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(g_generic))) {
    Obj f = check(PyNumber_Float(o));
    return PyFloat_AS_DOUBLE(f.get());
  }
  return to_ints(o);
}

PyObject* attr_object(const AttrValue& v) {
  switch (v.index()) {
    case 0:
      return PyBool_FromLong(std::get<bool>(v));
    case 1:
      return PyLong_FromLongLong(std::get<int64_t>(v));
    case 2:
      return PyFloat_FromDouble(std::get<double>(v));
    case 3:
      return PyUnicode_FromString(std::get<std::string>(v).c_str());
    case 4: {
      auto& ints = std::get<Ints>(v);
      PyObject* t = PyTuple_New(static_cast<Py_ssize_t>(ints.size()));
      for (size_t i = 0; t && i < ints.size(); ++i)
        PyTuple_SET_ITEM(t, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(ints[i]));
      return t;
    }
    case 5:
      return PyUnicode_FromString(std::string(dtype_name(std::get<DType>(v))).c_str());
    default:
      return PyUnicode_FromString(print_qtype(std::get<QType>(v)).c_str());
  }
}

}  // namespace mge::py
