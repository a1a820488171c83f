// The hot path: the Tensor type in raw CPython. Number protocol, attributes and basic indexing; the rest of Tensor is
// Python on top of this type.
#include "common.h"
#include "eager/tape.h"
#include "op/quant/quantize.h"
#include "op/shape/shape_ops.h"
#include "trace_key.h"

namespace mge::py {

PyTypeObject* g_base_type = nullptr;
PyTypeObject* g_tensor_type = nullptr;

PyTypeObject* g_size_type = nullptr;

PyObject* wrap(TensorPtr t, PyTypeObject* type) {
  if (__builtin_expect(t->modes & mode::kNode, 0)) return wrap_node(std::move(t));
  if (!type) type = g_tensor_type;
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) throw PythonError{};
  new (&reinterpret_cast<PyTensor*>(o)->t) TensorPtr(std::move(t));
  return o;
}

TensorPtr apply1(const OpDef& op, const Attrs& attrs, std::initializer_list<Tensor*> in) {
  TensorPtr out;
  dispatch(op, attrs, std::span<Tensor* const>(in.begin(), in.size()), {&out, 1});
  return out;
}

namespace {

struct Ops {
  const OpDef *add, *sub, *mul, *div, *floor_div, *mod, *pow, *lshift, *rshift, *land, *lor, *lxor, *lt, *le, *eq, *ne,
      *neg, *abs, *lnot, *matmul, *typecvt, *reshape, *floor, *ceil;
};
const Ops& ops() {
  static const Ops o = [] {
    auto& r = OpRegistry::global();
    auto g = [&](const char* n) { return &r.get(n); };
    return Ops{g("add"),         g("sub"),        g("mul"),         g("div"),         g("floor_div"),  g("mod"),
               g("pow"),         g("left_shift"), g("right_shift"), g("logical_and"), g("logical_or"), g("logical_xor"),
               g("lt"),          g("le"),         g("eq"),          g("ne"),          g("neg"),        g("abs"),
               g("logical_not"), g("matmul"),     g("typecvt"),     g("reshape"),     g("floor"),      g("ceil")};
  }();
  return o;
}

bool operand_like(PyObject* o) {
  // Objects with their own arithmetic (a class that knows Tensors) get their turn through NotImplemented.
  return is_tensor(o) || PyFloat_Check(o) || PyLong_Check(o) || PyList_Check(o) || o == Py_None ||
         PyObject_CheckBuffer(o) || PyObject_HasAttrString(o, "__array__");
}

template <const OpDef* Ops::*Member>
PyObject* binary(PyObject* a, PyObject* b) {
  MGE_PY_TRY
  const OpDef& op = *(ops().*Member);
  bool ta = is_tensor(a), tb = is_tensor(b);
  if (ta && tb) {
    Tensor* in[] = {tensor_of(a), tensor_of(b)};
    TensorPtr out;
    dispatch(op, nullptr, in, {&out, 1});
    return wrap(std::move(out));
  }
  if (!operand_like(ta ? b : a)) Py_RETURN_NOTIMPLEMENTED;
  const Meta& like = tensor_of(ta ? a : b)->meta();
  const DType dtype = cast_dtype(op, like.dtype);
  TensorPtr x = operand(a, dtype, like.cn), y = operand(b, dtype, like.cn);
  return wrap(apply1(op, nullptr, {x.get(), y.get()}));
  MGE_PY_CATCH_AS(nullptr, (ops().*Member)->name.c_str())
}

template <const OpDef* Ops::*Member>
PyObject* logic(PyObject* a, PyObject* b) {
  auto is_bool = [](PyObject* o) {
    if (is_tensor(o)) return tensor_of(o)->meta().dtype == DType::Bool;
    if (PyBool_Check(o)) return true;
    Obj dtype(PyObject_GetAttrString(o, "dtype"));  // an array
    if (!dtype) return PyErr_Clear(), false;
    return to_dtype(dtype.get()) == DType::Bool;
  };
  bool both;
  MGE_PY_TRY
  both = is_bool(a) && is_bool(b);
  MGE_PY_CATCH(nullptr)
  if (!both) {
    PyErr_SetString(PyExc_TypeError, "&, | and ^ need two bool tensors. Compare first, for example (x > 0) & (y > 0).");
    return nullptr;
  }
  return binary<Member>(a, b);
}

bool no_modulus(PyObject* m) {
  if (m == Py_None) return true;
  PyErr_SetString(PyExc_TypeError, "pow: tensors take no modulus. Write x ** y % z.");
  return false;
}
PyObject* power(PyObject* a, PyObject* b, PyObject* m) { return no_modulus(m) ? binary<&Ops::pow>(a, b) : nullptr; }

template <const OpDef* Ops::*Member>
PyObject* unary(PyObject* a) {
  MGE_PY_TRY
  return wrap(apply1(*(ops().*Member), nullptr, {tensor_of(a)}));
  MGE_PY_CATCH(nullptr)
}
PyObject* positive(PyObject* a) { return Py_NewRef(a); }

// a @ b follows NumPy, which needs reshapes for 1-D operands; functional.matmul knows them.
PyObject* matmul(PyObject* a, PyObject* b) {
  MGE_PY_TRY
  if (is_tensor(a) && is_tensor(b) && tensor_of(a)->meta().shape.rank >= 2 && tensor_of(b)->meta().shape.rank >= 2) {
    static const Attrs attrs = ops().matmul->schema.build("matmul", {});
    return wrap(apply1(*ops().matmul, attrs, {tensor_of(a), tensor_of(b)}));
  }
  static PyObject* fn = nullptr;
  if (!fn) {
    Obj m = check(PyImport_ImportModule("megengine.functional.math"));
    fn = check(PyObject_GetAttrString(m.get(), "matmul")).release();
  }
  return PyObject_CallFunctionObjArgs(fn, a, b, nullptr);
  MGE_PY_CATCH(nullptr)
}

// x += y computes out of place and points the cell at the result, so dtype and shape may change but nobody else's
// value.
template <PyObject* (*Fn)(PyObject*, PyObject*)>
PyObject* inplace(PyObject* a, PyObject* b) {
  PyObject* r = Fn(a, b);
  if (!r || r == Py_NotImplemented) return r;
  MGE_PY_TRY
  Obj held(r);
  assign(*tensor_of(a), *tensor_of(r));
  return Py_NewRef(a);
  MGE_PY_CATCH(nullptr)
}
PyObject* inplace_power(PyObject* a, PyObject* b, PyObject*) { return inplace<&binary<&Ops::pow>>(a, b); }

PyObject* compare(PyObject* a, PyObject* b, int kind) {
  if (b == Py_None) {
    if (kind == Py_EQ) Py_RETURN_FALSE;
    if (kind == Py_NE) Py_RETURN_TRUE;
  }
  switch (kind) {
    case Py_LT:
      return binary<&Ops::lt>(a, b);
    case Py_LE:
      return binary<&Ops::le>(a, b);
    case Py_EQ:
      return binary<&Ops::eq>(a, b);
    case Py_NE:
      return binary<&Ops::ne>(a, b);
    case Py_GT:
      return binary<&Ops::lt>(b, a);
    default:
      return binary<&Ops::le>(b, a);
  }
}

Py_hash_t hash(PyObject* a) { return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(a)); }  // api: id(a)

// ---- memory format: a label of the cell, kept in its mode bits; results get it from their inputs in dispatch

const char* format_name(const Tensor& t) {
  return t.modes & mode::kNhwc ? "nhwc" : t.modes & mode::kNchw ? "nchw" : "default";
}
void set_format_name(Tensor& t, std::string_view name) {
  const Shape& s = t.meta().shape;
  const bool nhwc = name == "nhwc", nchw = name == "nchw";
  MGE_CHECK(nhwc || nchw || name == "default", Value, "format: must be default, nchw or nhwc; got '{}'.", name);
  MGE_CHECK(!nhwc || s.rank == 4 || s.rank == 5, Value,
            "format: nhwc needs 4 dimensions, or 5 for a grouped weight; got {}.", s.str());
  t.modes = (t.modes & ~(mode::kNchw | mode::kNhwc)) | (nhwc ? mode::kNhwc : nchw ? mode::kNchw : 0);
}
PyObject* get_format(PyObject* o, void*) { return PyUnicode_FromString(format_name(*tensor_of(o))); }
int set_format(PyObject* o, PyObject* v, void*) {
  MGE_PY_TRY
  MGE_CHECK(v && PyUnicode_Check(v), Value, "format: must be default, nchw or nhwc; got {}.",
            v ? Py_TYPE(v)->tp_name : "nothing");
  set_format_name(*tensor_of(o), text_of(v));
  return 0;
  MGE_PY_CATCH(-1)
}

// ---- construction

TensorPtr change_type(Tensor* t, DType want) {
  NamedAttr a{"dtype", want};
  return apply1(*ops().typecvt, ops().typecvt->schema.build("astype", {&a, 1}), {t});
}

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"data", "dtype", "device", "is_const", "no_cache", "name", "format", nullptr};
  PyObject *data, *dtype = Py_None, *device = Py_None, *name = Py_None;
  int is_const = 0, no_cache = 0;
  const char* fmt = "default";
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOppOs:Tensor", const_cast<char**>(names), &data, &dtype, &device,
                                   &is_const, &no_cache, &name, &fmt)) {
    MGE_PY_TRY  // api: some bad calls of the constructor are RuntimeErrors, some TypeErrors; this kind is both
        PyObject *t,
        *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    Obj type_held(t), value(v), trace(tb), text(v ? PyObject_Str(v) : nullptr);
    const bool grad = kwargs && PyDict_GetItemString(kwargs, "requires_grad");
    fail(ErrorKind::Type, "{}{}", text ? text_of(text.get()) : "Tensor: bad arguments",
         grad ? ". Gradients are asked for with GradManager().attach(x)." : "");
    MGE_PY_CATCH(nullptr)
  }
  MGE_PY_TRY
  TensorOptions opt;
  if (dtype != Py_None) {
    opt.has_dtype = true;
    opt.dtype = to_dtype(dtype, &opt.quant);
  } else {
    take_quantised(data, &opt);
  }
  if (device != Py_None) opt.cn = to_comp_node(device);
  TensorPtr t;
  if (is_tensor(data)) {
    Tensor* src = tensor_of(data);
    TensorPtr cast;  // a size is a number: any dtype is made of it
    if (is_size(data) && opt.has_dtype && opt.dtype != src->meta().dtype && opt.quant.scale == 0)
      src = (cast = change_type(src, opt.dtype)).get();
    MGE_CHECK(!opt.has_dtype || opt.dtype == src->meta().dtype, Type,
              "Tensor: a tensor of {} cannot be taken as {}; use .astype().", dtype_name(src->meta().dtype),
              dtype_name(opt.dtype));
    MGE_CHECK(!opt.cn || opt.cn->same_as(*src->meta().cn), Value, "Tensor: the tensor is on {}, not {}; use .to().",
              src->meta().cn->logical, opt.cn->logical);
    MGE_CHECK(!is_const, Value, "Tensor: is_const needs plain data, not a Tensor.");
    MGE_CHECK(std::strcmp(fmt, "default") == 0 || std::strcmp(fmt, format_name(*src)) == 0, Value,
              "Tensor: a tensor of format {} was given with format='{}'; set it after.", format_name(*src), fmt);
    t = Tensor::alias(*src);
    t->links = src->links;
  } else {
    t = tensor_from_object(data, opt);
    if (std::strcmp(fmt, "default") != 0) set_format_name(*t, fmt);
  }
  Obj o = check(type->tp_alloc(type, 0));
  auto* p = reinterpret_cast<PyTensor*>(o.get());
  new (&p->t) TensorPtr(std::move(t));
  if (name != Py_None) p->name = Py_NewRef(name);
  return o.release();
  MGE_PY_CATCH_AS(nullptr, "Tensor")
}

void tensor_free(PyObject* o) {
  auto* p = reinterpret_cast<PyTensor*>(o);
  p->t.~TensorPtr();
  Py_XDECREF(p->name);
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  // The subclass's own deallocator drops the reference to a heap type made by `class`.
  if (type == g_base_type) Py_DECREF(type);
}

// ---- attributes

PyObject* get_shape(PyObject* o, void*) {
  MGE_PY_TRY
  Tensor& t = *tensor_of(o);
  if (mode::t_word & mode::kTrace) {
    if (TensorPtr sizes = symbolic_shape() && g_size_type ? traced_sizes(t) : nullptr)
      return wrap(std::move(sizes), g_size_type);
    fix_sizes(t);
  } else if (symbolic_shape() && g_size_type && t.meta().shape.rank > 0) {
    return wrap(apply1(OpRegistry::global().get("shape_of"), nullptr, {&t}), g_size_type);
  }
  return shape_tuple(t.meta().shape);
  MGE_PY_CATCH(nullptr)
}
PyObject* get_tuple_shape(PyObject* o, void*) {
  MGE_PY_TRY
  if (mode::t_word & mode::kTrace) fix_sizes(*tensor_of(o));
  return shape_tuple(tensor_of(o)->meta().shape);
  MGE_PY_CATCH(nullptr)
}
PyObject* get_ndim(PyObject* o, void*) { return PyLong_FromLong(tensor_of(o)->meta().shape.rank); }
PyObject* get_dtype(PyObject* o, void*) {
  MGE_PY_TRY
  return dtype_object(tensor_of(o)->meta());
  MGE_PY_CATCH(nullptr)
}
PyObject* get_device(PyObject* o, void*) {
  MGE_PY_TRY
  return comp_node_object(tensor_of(o)->meta().cn);
  MGE_PY_CATCH(nullptr)
}
PyObject* get_name(PyObject* o, void*) {
  auto* p = reinterpret_cast<PyTensor*>(o);
  return p->name ? Py_NewRef(p->name) : PyUnicode_FromString("");
}
int set_name(PyObject* o, PyObject* v, void*) {
  auto* p = reinterpret_cast<PyTensor*>(o);
  PyObject* old = p->name;
  p->name = Py_XNewRef(v);
  Py_XDECREF(old);
  MGE_PY_TRY
  if (Tracer* tracer = active_tracer(); tracer && v && PyUnicode_Check(v)) tracer->on_name(*p->t, text_of(v));
  return 0;
  MGE_PY_CATCH(-1)
}

// The gradient is an attribute of the Python object; a call being recorded has to know what it was and becomes.
PyObject* grad_name() {
  static PyObject* name = PyUnicode_InternFromString("_grad");
  return name;
}
PyObject* get_grad(PyObject* o, void*) {
  PyObject* g = PyObject_GetAttr(o, grad_name());
  if (!g || !notes_grads()) return g;
  MGE_PY_TRY
  note_grad(o, g);
  return g;
  MGE_PY_CATCH(nullptr)
}
int set_grad(PyObject* o, PyObject* v, void*) {
  MGE_PY_TRY
  if (notes_grads()) note_grad(o, check(PyObject_GetAttr(o, grad_name())).get());
  return PyObject_SetAttr(o, grad_name(), v ? v : Py_None);
  MGE_PY_CATCH(-1)
}

// ---- methods

PyObject* numpy(PyObject* o, PyObject*) {
  MGE_PY_TRY
  return to_numpy(*tensor_of(o));
  MGE_PY_CATCH(nullptr)
}

PyObject* reset(PyObject* o, PyObject* other) {
  MGE_PY_TRY
  Tensor* self = tensor_of(o);
  if (is_tensor(other)) {
    assign(*self, *tensor_of(other));
  } else {
    TensorOptions opt;
    opt.has_dtype = true;
    opt.dtype = self->meta().dtype;
    opt.cn = self->meta().cn;
    TensorPtr t = tensor_from_object(other, opt);
    assign(*self, *t);
  }
  Py_RETURN_NONE;
  MGE_PY_CATCH(nullptr)
}

PyObject* detach_method(PyObject* o, PyObject*) {
  MGE_PY_TRY
  return wrap(detach(*tensor_of(o)));
  MGE_PY_CATCH(nullptr)
}

TensorPtr converted(Tensor* t, DType want, const Quant& q) {
  if (!is_quant(want) && !is_quant(t->meta().dtype)) return change_type(t, want);
  EagerEmitter& em = EagerEmitter::get();
  return TensorPtr(EagerEmitter::tensor(quantized(em.val(TensorPtr(t)), {want, q})));
}

PyObject* astype(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (n + named != 1 || (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "dtype") != 0)) {
    PyErr_SetString(PyExc_TypeError, "astype: takes one argument, dtype.");
    return nullptr;
  }
  PyObject* dtype = args[0];
  MGE_PY_TRY
  Tensor* t = tensor_of(o);
  Quant q;
  DType want;
  try {
    want = to_dtype(dtype, &q);
  } catch (const Error& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
    return nullptr;
  }
  if (want == t->meta().dtype && q == t->meta().quant) return Py_NewRef(o);
  return wrap(converted(t, want, q));
  MGE_PY_CATCH(nullptr)
}

PyObject* reshape(PyObject* o, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  ShapeAttrs a;
  SizeList sizes;
  if (n == 1 && !PyLong_Check(args[0])) {
    a.shape = to_ints(args[0], &sizes);
  } else {
    for (Py_ssize_t i = 0; i < n; ++i) {
      const size_t before = sizes.size();
      a.shape.push_back(to_ints(args[i], &sizes)[0]);
      if (sizes.size() > before) sizes.back().element = static_cast<int>(i);
    }
  }
  if (PyErr_Occurred()) return nullptr;
  return wrap(apply1(*ops().reshape, make_attrs(std::move(a), std::move(sizes)), {tensor_of(o)}));
  MGE_PY_CATCH_AS(nullptr, "reshape")
}

PyObject* floor_method(PyObject* o, PyObject*) { return unary<&Ops::floor>(o); }
PyObject* ceil_method(PyObject* o, PyObject*) { return unary<&Ops::ceil>(o); }

PyObject* as_scalar(PyObject* o, const char* what, const char* way_out) {
  MGE_PY_TRY
  const Shape& s = tensor_of(o)->meta().shape;
  MGE_CHECK(s.numel() == 1, Value, "{} needs one element; got {} of a tensor of shape {}. {}", what, s.numel(), s.str(),
            way_out);
  Obj a = check(numpy(o, nullptr));
  return PyObject_CallMethod(a.get(), "item", nullptr);
  MGE_PY_CATCH(nullptr)
}
int to_bool(PyObject* o) {
  Obj v(as_scalar(o, "if (the truth of a tensor)",
                  "Say which is meant: x.numpy().any() or x.numpy().all(); & and | join masks."));
  return v ? PyObject_IsTrue(v.get()) : -1;
}
PyObject* to_int(PyObject* o) {
  Obj v(as_scalar(o, "int(x)", "x.astype('int32') converts all, x.numpy() gives an array."));
  return v ? PyNumber_Long(v.get()) : nullptr;
}
PyObject* to_float(PyObject* o) {
  Obj v(as_scalar(o, "float(x)", "x.astype('float32') converts all, x.numpy() gives an array."));
  return v ? PyNumber_Float(v.get()) : nullptr;
}
PyObject* to_index(PyObject* o) {
  Obj v(as_scalar(o, "a tensor used as an integer", "Take one with x[i]."));
  if (v && !PyIndex_Check(v.get())) {
    return PyErr_Format(
        PyExc_TypeError,
        "a %s tensor cannot be used as an integer (in range, as an index or a size). int(x) converts it.",
        std::string(dtype_name(tensor_of(o)->meta().dtype)).c_str());
  }
  return v ? PyNumber_Index(v.get()) : nullptr;
}
// len(x) is a number: a traced call is then for tensors of this length.
void fix_first_size(Tensor& t) {
  if (!active_tracer()->any_size(t)) return;
  static const Attrs first = make_attrs(SliceAttrs{{0}, {0}, {1}, {1}});
  TensorPtr length = apply1(OpRegistry::global().get("slice"), first, {active_tracer()->sizes_of(t).get()});
  active_tracer()->on_read(*length);
}
Py_ssize_t length(PyObject* o) {
  const Shape& s = tensor_of(o)->meta().shape;
  if (s.rank == 0) {
    PyErr_SetString(PyExc_TypeError, "len: a 0-d tensor has no length (its ndim is 0, its size 1).");
    return -1;
  }
  if (mode::t_word & mode::kTrace) fix_first_size(*tensor_of(o));
  return s[0];
}

// The text before "--" is what inspect.signature and editors show.
PyMethodDef methods[] = {
    {"numpy", numpy, METH_NOARGS,
     "numpy($self)\n--\n\nThe value as a read-only NumPy array; waits until it is computed."},
    {"_reset", reset, METH_O, "_reset($self, other, /)\n--\n\nPoints this tensor at another value."},
    {"detach", detach_method, METH_NOARGS, "detach($self)\n--\n\nThe same value, cut from gradient recording."},
    {"astype", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(astype)), METH_FASTCALL | METH_KEYWORDS,
     "astype($self, dtype)\n--\n\nThe value converted to another dtype; the tensor itself when it has that dtype."},
    {"reshape", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(reshape)), METH_FASTCALL,
     "reshape($self, *shape)\n--\n\nThe same elements in another shape; one dimension may be -1."},
    {"__floor__", floor_method, METH_NOARGS, "__floor__($self)\n--\n\nThe integers at or below."},
    {"__ceil__", ceil_method, METH_NOARGS, "__ceil__($self)\n--\n\nThe integers at or above."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef getset[] = {{"shape", get_shape, nullptr, "Sizes of the axes, a tuple.", nullptr},
                        {"_tuple_shape", get_tuple_shape, nullptr, "Sizes of the axes, always a tuple.", nullptr},
                        {"ndim", get_ndim, nullptr, "Number of axes.", nullptr},
                        {"dtype", get_dtype, nullptr, "Element type as a NumPy dtype.", nullptr},
                        {"device", get_device, nullptr, "Where the value lives.", nullptr},
                        {"grad", get_grad, set_grad, "What GradManager.backward has found; None before.", nullptr},
                        {"format", get_format, set_format,
                         "The memory format asked for; the logical order of axes is NCHW in any case.", nullptr},
                        {"name", get_name, set_name, "Name of the tensor; empty by default.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

#define SLOT(id, fn) \
  { id, reinterpret_cast<void*>(fn) }
// tensor_new has done it all. A subclass may call super().__init__ with what it was made from.
int tensor_init(PyObject*, PyObject*, PyObject*) { return 0; }

PyType_Slot slots[] = {SLOT(Py_tp_new, tensor_new),
                       SLOT(Py_tp_init, tensor_init),
                       SLOT(Py_tp_dealloc, tensor_free),
                       SLOT(Py_tp_methods, methods),
                       SLOT(Py_tp_getset, getset),
                       SLOT(Py_tp_richcompare, compare),
                       SLOT(Py_tp_hash, hash),
                       SLOT(Py_nb_add, binary<&Ops::add>),
                       SLOT(Py_nb_subtract, binary<&Ops::sub>),
                       SLOT(Py_nb_multiply, binary<&Ops::mul>),
                       SLOT(Py_nb_true_divide, binary<&Ops::div>),
                       SLOT(Py_nb_floor_divide, binary<&Ops::floor_div>),
                       SLOT(Py_nb_remainder, binary<&Ops::mod>),
                       SLOT(Py_nb_power, power),
                       SLOT(Py_nb_lshift, binary<&Ops::lshift>),
                       SLOT(Py_nb_rshift, binary<&Ops::rshift>),
                       SLOT(Py_nb_and, logic<&Ops::land>),
                       SLOT(Py_nb_or, logic<&Ops::lor>),
                       SLOT(Py_nb_xor, logic<&Ops::lxor>),
                       SLOT(Py_nb_matrix_multiply, matmul),
                       SLOT(Py_nb_inplace_add, inplace<&binary<&Ops::add>>),
                       SLOT(Py_nb_inplace_subtract, inplace<&binary<&Ops::sub>>),
                       SLOT(Py_nb_inplace_multiply, inplace<&binary<&Ops::mul>>),
                       SLOT(Py_nb_inplace_true_divide, inplace<&binary<&Ops::div>>),
                       SLOT(Py_nb_inplace_floor_divide, inplace<&binary<&Ops::floor_div>>),
                       SLOT(Py_nb_inplace_remainder, inplace<&binary<&Ops::mod>>),
                       SLOT(Py_nb_inplace_power, inplace_power),
                       SLOT(Py_nb_inplace_lshift, inplace<&binary<&Ops::lshift>>),
                       SLOT(Py_nb_inplace_rshift, inplace<&binary<&Ops::rshift>>),
                       SLOT(Py_nb_inplace_and, inplace<&logic<&Ops::land>>),
                       SLOT(Py_nb_inplace_or, inplace<&logic<&Ops::lor>>),
                       SLOT(Py_nb_inplace_xor, inplace<&logic<&Ops::lxor>>),
                       SLOT(Py_nb_inplace_matrix_multiply, inplace<&matmul>),
                       SLOT(Py_nb_negative, unary<&Ops::neg>),
                       SLOT(Py_nb_positive, positive),
                       SLOT(Py_nb_absolute, unary<&Ops::abs>),
                       SLOT(Py_nb_invert, unary<&Ops::lnot>),
                       SLOT(Py_nb_bool, to_bool),
                       SLOT(Py_nb_int, to_int),
                       SLOT(Py_nb_float, to_float),
                       SLOT(Py_nb_index, to_index),
                       SLOT(Py_mp_length, length),
                       SLOT(Py_mp_subscript, get_index),
                       SLOT(Py_mp_ass_subscript, set_index),
                       SLOT(Py_tp_doc, const_cast<char*>("TensorBase(data, dtype=None, device=None, is_const=False, "
                                                         "no_cache=False, name=None, format='default')\n--\n\n"
                                                         "The compiled part of Tensor.")),
                       {0, nullptr}};
PyType_Spec spec = {"megengine.core._core.TensorBase", sizeof(PyTensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                    slots};

}  // namespace

bool add_tensor_type(PyObject* module) {
  g_base_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!g_base_type) return false;
  g_tensor_type = g_base_type;
  return PyModule_AddObjectRef(module, "TensorBase", reinterpret_cast<PyObject*>(g_base_type)) == 0;
}

}  // namespace mge::py
