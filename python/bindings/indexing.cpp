// x[...] with ints, slices, None and Ellipsis: one slice and, when axes come or go, one reshape. x[i] with one int32
// tensor: rows of x. Anything else goes to the Python hooks.
#include "op/index/indexing.h"
#include "common.h"
#include "op/shape/shape_ops.h"

namespace mge::py {
namespace {

PyObject *g_get_hook = nullptr, *g_set_hook = nullptr;

struct Index {
  SliceAttrs slice;
  Shape region;  // shape of the sliced region
  Shape result;  // after dropping integer axes and inserting new ones
};

const OpDef& op(const char* name) { return OpRegistry::global().get(name); }

/// A slice bound may be None, an int, or anything with __index__ (0-d tensors too: their value decides a size).
bool bound(PyObject* o, int64_t* out) {
  if (o == Py_None) return false;
  if (Tracer* t = is_tensor(o) ? active_tracer() : nullptr) t->cut("index");
  Obj i = check(PyNumber_Index(o));
  Py_ssize_t v = PyNumber_AsSsize_t(i.get(), nullptr);
  if (v == -1 && PyErr_Occurred()) throw PythonError{};
  *out = v;
  return true;
}

/// False: not a basic index.
bool parse(PyObject* key, const Shape& s, Index* ix) {
  PyObject* single[] = {key};
  PyObject** items = single;
  Py_ssize_t n = 1;
  if (PyTuple_Check(key)) {
    items = reinterpret_cast<PyTupleObject*>(key)->ob_item;
    n = PyTuple_GET_SIZE(key);
  }
  int used = 0, ellipsis = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* k = items[i];
    if (k == Py_Ellipsis)
      ++ellipsis;
    else if (k == Py_None)
      continue;
    else if (PySlice_Check(k) || (PyLong_Check(k) && !PyBool_Check(k)))
      ++used;
    else
      return false;
  }
  if (ellipsis > 1) {
    PyErr_SetString(PyExc_IndexError, "an index can only have a single ellipsis ('...')");
    throw PythonError{};
  }
  if (used > s.rank) {
    PyErr_Format(PyExc_IndexError, "too many indices for tensor: tensor is %d-dimensional, but %d were indexed",
                 int{s.rank}, used);
    throw PythonError{};
  }
  ix->region = s;
  int axis = 0;
  auto add = [&](int64_t start, int64_t stop, int64_t step) {
    ix->slice.axes.push_back(axis);
    ix->slice.starts.push_back(start);
    ix->slice.stops.push_back(stop);
    ix->slice.steps.push_back(step);
  };
  bool seen_ellipsis = false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* k = items[i];
    if (k == Py_Ellipsis) {
      seen_ellipsis = true;
      for (int skip = s.rank - used; skip > 0; --skip) ix->result.push_back(s[axis++]);
    } else if (k == Py_None) {
      ix->result.push_back(1);
    } else if (PySlice_Check(k)) {
      auto* sl = reinterpret_cast<PySliceObject*>(k);
      int64_t size = s[axis], step = 1, start = 0, stop = 0;
      bound(sl->step, &step);
      MGE_CHECK(step != 0, Value, "slice: a slice step cannot be 0.");
      bool has_start = bound(sl->start, &start), has_stop = bound(sl->stop, &stop);
      Py_ssize_t a = has_start  ? start
                     : step > 0 ? 0
                                : PY_SSIZE_T_MAX,
                 b = has_stop   ? stop
                     : step > 0 ? PY_SSIZE_T_MAX
                                : PY_SSIZE_T_MIN;
      Py_ssize_t len = PySlice_AdjustIndices(size, &a, &b, step);
      if (!(a == 0 && len == size && step == 1)) add(a, a + len * step, step);
      ix->region[axis] = len;
      ix->result.push_back(len);
      ++axis;
    } else {
      int64_t v = 0, size = s[axis];
      bound(k, &v);
      if (v < -size || v >= size) {
        PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for axis %d with size %lld",
                     static_cast<long long>(v), axis, static_cast<long long>(size));
        throw PythonError{};
      }
      if (v < 0) v += size;
      add(v, v + 1, 1);
      ix->region[axis++] = 1;
    }
  }
  (void)seen_ellipsis;
  while (axis < s.rank) ix->result.push_back(s[axis++]);
  return true;
}

TensorPtr reshaped(Tensor* t, const Shape& s) {
  static const OpDef& reshape = op("reshape");
  if (t->meta().shape == s) return TensorPtr(t);
  return apply1(reshape, make_attrs(ShapeAttrs{to_ints(s)}), {t});
}

}  // namespace

void set_index_hooks(PyObject* get, PyObject* set) {
  g_get_hook = Py_XNewRef(get);
  g_set_hook = Py_XNewRef(set);
}

PyObject* get_index(PyObject* self, PyObject* key) {
  MGE_PY_TRY
  Index ix;
  Tensor* t = tensor_of(self);
  if (is_tensor(key) && tensor_of(key)->meta().dtype == DType::I32 && t->meta().shape.rank > 0) {
    static const OpDef& take = op("take");
    static const Attrs first_axis = make_attrs(TakeAttrs{0});
    TensorPtr y = apply1(take, first_axis, {t, tensor_of(key)});
    if (y->meta().shape.rank == t->meta().shape.rank) y->modes |= t->modes & mode::kNhwc;
    return wrap(std::move(y));
  }
  if (!parse(key, t->meta().shape, &ix)) {
    MGE_CHECK(g_get_hook, NotImplemented, "indexing: this kind of index is not supported yet.");
    return PyObject_CallFunctionObjArgs(g_get_hook, self, key, nullptr);
  }
  static const OpDef &slice = op("slice"), &copy = op("copy");
  TensorPtr y(t);
  if (!ix.slice.axes.empty()) y = apply1(slice, make_attrs(std::move(ix.slice)), {t});
  y = reshaped(y.get(), ix.result);
  if (y.get() == t) y = apply1(copy, nullptr, {t});  // x[:] is a new tensor
  return wrap(std::move(y));
  MGE_PY_CATCH(nullptr)
}

int set_index(PyObject* self, PyObject* key, PyObject* value) {
  MGE_PY_TRY
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "tensor elements cannot be deleted");
    return -1;
  }
  Tensor* t = tensor_of(self);
  if (key == Py_Ellipsis) {  // api §3.6: replaces the whole value
    TensorOptions opt;
    opt.has_dtype = true;
    opt.dtype = t->meta().dtype;
    opt.cn = t->meta().cn;
    TensorPtr v = is_tensor(value) ? TensorPtr(tensor_of(value)) : tensor_from_object(value, opt);
    assign(*t, *v);
    return 0;
  }
  Index ix;
  if (!parse(key, t->meta().shape, &ix)) {
    MGE_CHECK(g_set_hook, NotImplemented, "indexing: this kind of index is not supported yet.");
    Obj r(PyObject_CallFunctionObjArgs(g_set_hook, self, key, value, nullptr));
    return r ? 0 : -1;
  }
  static const OpDef &set_slice = op("set_slice"), &typecvt = op("typecvt"), &broadcast = op("broadcast_to");
  TensorOptions opt;
  opt.has_dtype = true;
  opt.dtype = t->meta().dtype;
  opt.cn = t->meta().cn;
  TensorPtr v = is_tensor(value) ? TensorPtr(tensor_of(value)) : tensor_from_object(value, opt);
  if (v->meta().dtype != t->meta().dtype) {
    NamedAttr a{"dtype", t->meta().dtype};
    v = apply1(typecvt, typecvt.schema.build("typecvt", {&a, 1}), {v.get()});
  }
  Shape vs = v->meta().shape;
  while (vs.rank > ix.result.rank && vs[0] == 1) vs.erase(0);  // NumPy drops leading ones of the value
  bool fits = vs.rank <= ix.result.rank;
  for (int i = 0; fits && i < vs.rank; ++i) {
    int64_t d = vs[vs.rank - 1 - i];
    fits = d == 1 || d == ix.result[ix.result.rank - 1 - i];
  }
  if (!fits) {
    PyErr_Format(PyExc_ValueError, "cannot copy tensor with shape %s to subtensor with shape %s",
                 v->meta().shape.str().c_str(), ix.result.str().c_str());
    return -1;
  }
  v = reshaped(v.get(), vs);
  if (!(v->meta().shape == ix.result)) v = apply1(broadcast, make_attrs(ShapeAttrs{to_ints(ix.result)}), {v.get()});
  v = reshaped(v.get(), ix.region);
  TensorPtr y = ix.slice.axes.empty() ? v : apply1(set_slice, make_attrs(std::move(ix.slice)), {t, v.get()});
  assign(*t, *y);
  return 0;
  MGE_PY_CATCH(-1)
}

}  // namespace mge::py
