// x[...] with ints, slices, None and Ellipsis: one slice and, when axes come or go, one reshape. x[i] with one int32
// tensor: rows of x. Anything else goes to the Python hooks.
#include "op/index/indexing.h"

#include <algorithm>

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

/// A slice bound may be None, an int, or anything with __index__.
bool bound(PyObject* o, int64_t* out) {
  if (o == Py_None) return false;
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
  MGE_CHECK(used <= s.rank, Index, "too many indices for tensor: tensor is {}-dimensional, but {} were indexed",
            int{s.rank}, used);
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
      MGE_CHECK(-size <= v && v < size, Index, "index {} is out of bounds for axis {} with size {}", v, axis, size);
      if (v < 0) v += size;
      add(v, v + 1, 1);
      ix->region[axis++] = 1;
    }
  }
  (void)seen_ellipsis;
  while (axis < s.rank) ix->result.push_back(s[axis++]);
  return true;
}

// ---- the same for any sizes: while a call is recorded, an index is written down as Python has it

struct AnyIndex {
  SliceAttrs slice;
  SizeList sizes;
  Ints dropped;   // axes of x that an int names
  Ints inserted;  // axes of the result that are new
};

bool is_basic(PyObject* k) {
  return k == Py_Ellipsis || k == Py_None || PySlice_Check(k) || (PyLong_Check(k) && !PyBool_Check(k));
}

/// Whether the sizes of x, or bounds that are tensors, are others in later calls. Those of a graph that is edited are.
bool any_size(const Tensor& x, std::span<PyObject* const> items) {
  if (x.modes & mode::kNode) return true;
  if (!(mode::t_word & mode::kTrace)) return false;
  if (active_tracer()->any_size(x)) return true;
  for (PyObject* k : items)
    if (PySlice_Check(k)) {
      auto* s = reinterpret_cast<PySliceObject*>(k);
      if (is_tensor(s->start) || is_tensor(s->stop) || is_tensor(s->step)) return true;
    }
  return false;
}

/// Part `field` of the slice of one axis: a number, or a tensor that goes with it.
int64_t any_bound(PyObject* o, int64_t open, const char* field, AnyIndex* ix) {
  constexpr int64_t kOpen = SliceAttrs::kOpen;
  if (o == Py_None) return open;
  if (!is_tensor(o)) {
    int64_t v = 0;
    bound(o, &v);
    return std::clamp(v, -kOpen, kOpen);
  }
  bool later = false;
  Tensor& t = *tensor_of(o);
  Ints v = size_numbers(t, &later);
  MGE_CHECK(v.size() == 1, Type, "slice: a bound must be one integer; got a tensor of shape {}.", t.meta().shape.str());
  if (later)
    ix->sizes.push_back(
        {field_index<SliceAttrs>(field), static_cast<int>(ix->slice.axes.size()) - 1, RefPtr<ValImpl>(&t)});
  return v[0];
}

AnyIndex parse_any(std::span<PyObject* const> items, int rank) {
  constexpr int64_t kOpen = SliceAttrs::kOpen;
  int used = 0, ellipsis = 0;
  for (PyObject* k : items) {
    ellipsis += k == Py_Ellipsis;
    used += k != Py_Ellipsis && k != Py_None;
  }
  if (ellipsis > 1) {
    PyErr_SetString(PyExc_IndexError, "an index can only have a single ellipsis ('...')");
    throw PythonError{};
  }
  MGE_CHECK(used <= rank, Index, "too many indices for tensor: tensor is {}-dimensional, but {} were indexed", rank,
            used);
  AnyIndex ix;
  ix.slice.python = true;
  int axis = 0, result = 0;
  for (PyObject* k : items) {
    if (k == Py_Ellipsis) {
      axis += rank - used;
      result += rank - used;
    } else if (k == Py_None) {
      ix.inserted.push_back(result++);
    } else {
      auto* s = PySlice_Check(k) ? reinterpret_cast<PySliceObject*>(k) : nullptr;
      if (s && s->start == Py_None && s->stop == Py_None && s->step == Py_None) {
        ++axis;
        ++result;
        continue;
      }
      ix.slice.axes.push_back(axis);
      int64_t step = s ? any_bound(s->step, 1, "steps", &ix) : 0;
      MGE_CHECK(!s || step != 0, Value, "slice: a slice step cannot be 0.");
      ix.slice.steps.push_back(step);
      ix.slice.starts.push_back(any_bound(s ? s->start : k, step > 0 ? 0 : kOpen, "starts", &ix));
      ix.slice.stops.push_back(s ? any_bound(s->stop, step > 0 ? kOpen : -kOpen, "stops", &ix) : 0);
      if (s)
        ++result;
      else
        ix.dropped.push_back(axis);
      ++axis;
    }
  }
  return ix;
}

TensorPtr with_axes(const char* name, TensorPtr t, const Ints& axes) {
  return axes.empty() ? t : apply1(op(name), make_attrs(AxesAttrs{axes}), {t.get()});
}

TensorPtr get_any(Tensor* t, const AnyIndex& ix) {
  TensorPtr y(t);
  if (!ix.slice.axes.empty()) y = apply1(op("slice"), make_attrs(ix.slice, ix.sizes), {t});
  y = with_axes("squeeze", std::move(y), ix.dropped);
  return with_axes("expand_dims", std::move(y), ix.inserted);
}

void set_any(Tensor* t, const AnyIndex& ix, TensorPtr v) {
  EagerEmitter& em = EagerEmitter::get();
  Val part = em.val(get_any(t, ix)), value = em.val(v);
  if (value.rank() > part.rank()) {  // NumPy drops leading ones of the value
    Ints lead;
    for (int i = 0; i < value.rank() - part.rank(); ++i) lead.push_back(i);
    value = em.emit1("squeeze", {value}, make_attrs(AxesAttrs{lead}));
  }
  if (t->modes & mode::kNode) {
    // The region's sizes follow from the inputs of the graph. Where takes a value that is no variable into the graph.
    static const OpDef& where = op("where");
    TensorPtr region(EagerEmitter::tensor(part)), given(EagerEmitter::tensor(value));
    TensorOptions beside;
    beside.cn = t->meta().cn;
    TensorPtr yes = tensor_from_object(Py_True, beside);
    value = em.val(apply1(where, nullptr, {yes.get(), given.get(), region.get()}));
  } else {
    value = broadcast_to(value, part.sizes());
  }
  TensorPtr y = with_axes("squeeze", TensorPtr(EagerEmitter::tensor(value)), ix.inserted);
  y = with_axes("expand_dims", std::move(y), ix.dropped);
  if (!ix.slice.axes.empty()) y = apply1(op("set_slice"), make_attrs(ix.slice, ix.sizes), {t, y.get()});
  assign(*t, *y);
}

std::span<PyObject* const> items_of(PyObject* const& key) {
  if (!PyTuple_Check(key)) return {&key, 1};
  return {reinterpret_cast<PyTupleObject*>(key)->ob_item, static_cast<size_t>(PyTuple_GET_SIZE(key))};
}
bool all_basic(std::span<PyObject* const> items) { return std::all_of(items.begin(), items.end(), is_basic); }

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
  if (any_size(*t, items_of(key)) && all_basic(items_of(key))) {
    TensorPtr y = get_any(t, parse_any(items_of(key), t->meta().shape.rank));
    if (y.get() == t) y = apply1(op("copy"), nullptr, {t});
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
  if (key == Py_Ellipsis && is_tensor(value) && !(mode::t_word & mode::kTrace)) {  // often, and of what fits
    const Meta &to = t->meta(), &from = tensor_of(value)->meta();
    if (to.dtype == from.dtype && to.shape == from.shape) return assign(*t, *tensor_of(value)), 0;
  }
  Index ix;
  const bool sized = any_size(*t, items_of(key)) || ((mode::t_word & mode::kTrace) && is_tensor(value) &&
                                                     active_tracer()->any_size(*tensor_of(value)));
  const bool any = sized && all_basic(items_of(key));
  if (!any && !parse(key, t->meta().shape, &ix)) {
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
  if (any) {
    set_any(t, parse_any(items_of(key), t->meta().shape.rank), std::move(v));
    return 0;
  }
  Shape vs = v->meta().shape;
  while (vs.rank > ix.result.rank && vs[0] == 1) vs.erase(0);  // NumPy drops leading ones of the value
  bool fits = vs.rank <= ix.result.rank;
  for (int i = 0; fits && i < vs.rank; ++i) {
    int64_t d = vs[vs.rank - 1 - i];
    fits = d == 1 || d == ix.result[ix.result.rank - 1 - i];
  }
  MGE_CHECK(fits, Value, "cannot copy tensor with shape {} to subtensor with shape {}", v->meta().shape.str(),
            ix.result.str());
  v = reshaped(v.get(), vs);
  if (!(v->meta().shape == ix.result)) v = apply1(broadcast, make_attrs(ShapeAttrs{to_ints(ix.result)}), {v.get()});
  v = reshaped(v.get(), ix.region);
  if (ix.slice.axes.empty()) {
    assign(*t, *v);
  } else if (((t->modes | v->modes) & mode::kNode) || is_quant(t->meta().dtype)) {  // numbers of 4 bits are widened
    assign(*t, *apply1(set_slice, make_attrs(std::move(ix.slice)), {t, v.get()}));
  } else {  // in place where nobody else sees the memory, or writing a row would copy the whole tensor
    Tensor* const in[] = {t, v.get()};
    dispatch_update(set_slice, make_attrs(std::move(ix.slice)), in, {&t, 1});
  }
  return 0;
  MGE_PY_CATCH(-1)
}

}  // namespace mge::py
