// One callable per registered op: ops.conv2d(x, w, b, stride=(1, 1)). Positional arguments are inputs, keywords are
// attrs; names, kinds and defaults come from the registry.
#include "common.h"

#include <structmember.h>

#include "kernel/kernel.h"
#include "op/elementwise/scalar_body.h"
#include "op/promote.h"

namespace mge::py {
namespace {

struct OpFn {
  PyObject_HEAD vectorcallfunc call;
  const OpDef* op;
  Attrs defaults;
};

// Finds the dtype and device that non-tensor operands follow. Sizes stand for numbers: others come first.
const Meta* first_tensor(PyObject* const* args, Py_ssize_t n, bool sizes = true) {
  const Meta* size = nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!is_tensor(args[i])) continue;
    const Meta* m = &tensor_of(args[i])->meta();
    if (!is_size(args[i])) return m;
    if (!size && sizes) size = m;
  }
  return size;
}

// The same for the inputs of an op: numbers beside the condition of a select follow what is selected.
const Meta* leader(const OpDef& op, PyObject* const* args, Py_ssize_t n, bool sizes = true) {
  if (op.scalar && op.scalar->selects && n > 1)
    if (const Meta* m = first_tensor(args + 1, n - 1, sizes)) return m;
  return first_tensor(args, n, sizes);
}

// An unknown name is refused when the attributes are built.
int field_of(const OpDef& op, std::string_view name) {
  const auto& known = op.schema.defaults;
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i].name == name) return static_cast<int>(i);
  return 0;
}

// Sizes of a traced call are tensors, but stand for numbers: beside a tensor they take a dtype as numbers do.
TensorPtr size_beside(Tensor& size, const Meta& like) {
  const DType t = number_beside(size.meta().dtype, like.dtype);
  if (t == size.meta().dtype) return TensorPtr(&size);
  static const OpDef& typecvt = OpRegistry::global().get("typecvt");
  NamedAttr a{"dtype", t};
  return apply1(typecvt, typecvt.schema.build("typecvt", {&a, 1}), {&size});
}

Attrs build_attrs(const OpFn* f, PyObject* const* values, PyObject* names) {
  if (!f->op->has_attrs) {
    if (names && PyTuple_GET_SIZE(names))
      fail(ErrorKind::Type, "{}: takes no keyword '{}'.", f->op->name, text_of(PyTuple_GET_ITEM(names, 0)));
    return nullptr;
  }
  if (!names || PyTuple_GET_SIZE(names) == 0) return f->defaults;
  SmallVec<NamedAttr, 6> given;
  const char* name = "";
  SizeList sizes;
  try {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
      if (!name) throw PythonError{};
      const size_t before = sizes.size();
      given.push_back({name, to_attr(values[i], &sizes)});
      for (size_t k = before; k < sizes.size(); ++k) sizes[k].field = field_of(*f->op, name);
    }
  } catch (const PythonError&) {  // what Python says of the value, but not which argument of which op it is
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Obj t(type), v(value), tb(trace), text(v ? PyObject_Str(v.get()) : nullptr);
    if (!PyErr_GivenExceptionMatches(type, PyExc_TypeError) &&
        !PyErr_GivenExceptionMatches(type, PyExc_OverflowError)) {
      PyErr_Restore(t.release(), v.release(), tb.release());
      throw;
    }
    fail(ErrorKind::Type, "{}: attribute '{}': {}.", f->op->name, name, text ? text_of(text.get()) : "?");
  }
  try {
    Attrs a = f->op->schema.build(f->op->name, {given.data(), given.size()});
    if (!sizes.empty()) const_cast<AttrsBase*>(a.get())->set_sizes(std::move(sizes));  // not shared yet
    return a;
  } catch (const Error& e) {
    if (e.text().starts_with(f->op->name)) throw;
    throw Error(e.kind(), f->op->name + ": " + e.text());
  }
}

struct Inputs {
  SmallVec<TensorPtr, 4> owned;  // operands made from numbers and arrays
  SmallVec<Tensor*, 6> in;
  void parse(const OpDef& op, PyObject* const* args, Py_ssize_t n, bool cast = false) {
    while (n > 0 && args[n - 1] == Py_None && n > op.required) --n;  // trailing optional inputs
    const Meta* like = nullptr;
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* a = args[i];
      if (is_tensor(a)) {
        in.push_back(tensor_of(a));
        if (__builtin_expect(is_size(a), 0) && op.scalar) {
          if (const Meta* other = leader(op, args, n, false)) {
            owned.push_back(size_beside(*tensor_of(a), *other));
            in[in.size() - 1] = owned[owned.size() - 1].get();
          }
        }
        continue;
      }
      if (!like) like = leader(op, args, n);
      TensorPtr t;
      if (like) {
        t = operand(a, cast ? cast_dtype(op, like->dtype) : like->dtype, like->cn, op.scalar);
      } else {
        if (a == Py_None) {
          PyErr_SetString(PyExc_TypeError, "the operand is None and is not supported.");
          throw PythonError{};
        }
        t = tensor_from_object(a, {});
      }
      in.push_back(t.get());
      owned.push_back(std::move(t));
    }
  }
};

PyObject* wrap_all(SmallVec<TensorPtr, 3>& out) {
  if (out.size() == 1) return wrap(std::move(out[0]));
  Obj tuple = check(PyTuple_New(static_cast<Py_ssize_t>(out.size())));
  for (size_t i = 0; i < out.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), wrap(std::move(out[i])));
  return tuple.release();
}

PyObject* op_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  MGE_PY_TRY
  auto* f = reinterpret_cast<OpFn*>(self);
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  Attrs attrs = build_attrs(f, args + n, names);
  Inputs inputs;
  inputs.parse(*f->op, args, n, true);
  SmallVec<TensorPtr, 3> out(f->op->n_out(attrs.get()));
  dispatch(*f->op, attrs, {inputs.in.data(), inputs.in.size()}, {out.data(), out.size()});
  return wrap_all(out);
  MGE_PY_CATCH_AS(nullptr, reinterpret_cast<OpFn*>(self)->op->name.c_str())
}

PyObject* op_repr(PyObject* self) {
  return PyUnicode_FromFormat("<op %s>", reinterpret_cast<OpFn*>(self)->op->name.c_str());
}
PyObject* op_name(PyObject* self, void*) {
  return PyUnicode_FromString(reinterpret_cast<OpFn*>(self)->op->name.c_str());
}
PyObject* op_doc(PyObject* self, void*) { return PyUnicode_FromString(reinterpret_cast<OpFn*>(self)->op->doc.c_str()); }

PyObject* op_uncast(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  MGE_PY_TRY
  auto* f = reinterpret_cast<OpFn*>(self);
  Attrs attrs = build_attrs(f, args + n, names);
  Inputs inputs;
  inputs.parse(*f->op, args, n);
  SmallVec<TensorPtr, 3> out(f->op->n_out(attrs.get()));
  dispatch_uncast(*f->op, attrs, {inputs.in.data(), inputs.in.size()}, {out.data(), out.size()});
  return wrap_all(out);
  MGE_PY_CATCH(nullptr)
}

// update(cells, *inputs, **attrs): see dispatch_update.
PyObject* op_update(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  MGE_PY_TRY
  auto* f = reinterpret_cast<OpFn*>(self);
  if (n < 1 || !PyTuple_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "update(cells, *inputs, **attrs): cells must be a tuple of tensors");
    return nullptr;
  }
  Attrs attrs = build_attrs(f, args + n, names);
  Inputs inputs;
  inputs.parse(*f->op, args + 1, n - 1);
  SmallVec<Tensor*, 4> cells;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[0]); ++i) {
    PyObject* c = PyTuple_GET_ITEM(args[0], i);
    if (!is_tensor(c)) {
      PyErr_SetString(PyExc_TypeError, "update: cells must be tensors");
      return nullptr;
    }
    cells.push_back(tensor_of(c));
  }
  dispatch_update(*f->op, attrs, {inputs.in.data(), inputs.in.size()}, {cells.data(), cells.size()});
  Py_RETURN_NONE;
  MGE_PY_CATCH(nullptr)
}

PyMethodDef op_methods[] = {
    {"uncast", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(op_uncast)), METH_FASTCALL | METH_KEYWORDS,
     "The op without the casts of autocast, for functions made of it that autocast does not name."},
    {"update", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(op_update)), METH_FASTCALL | METH_KEYWORDS,
     "update(cells, *inputs, **attrs): the first outputs replace the values of the cells, in place when nobody looks."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef op_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(OpFn, call), READONLY, nullptr},
                            {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef op_getset[] = {{"__name__", op_name, nullptr, nullptr, nullptr},
                           {"__doc__", op_doc, nullptr, nullptr, nullptr},
                           {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot op_slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                          {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
                          {Py_tp_methods, op_methods},
                          {Py_tp_members, op_members},
                          {Py_tp_getset, op_getset},
                          {0, nullptr}};
PyType_Spec op_spec = {"megengine.core._core.Op", sizeof(OpFn), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                       op_slots};

PyObject* op_info(PyObject*, PyObject* name) {
  MGE_PY_TRY
  if (!PyUnicode_Check(name)) {
    PyErr_SetString(PyExc_TypeError, "op_info: expected a name");
    return nullptr;
  }
  const OpDef& op = OpRegistry::global().get(text_of(name));
  auto strings = [](const auto& v) {
    Obj l = check(PyList_New(0));
    for (auto& s : v) PyList_Append(l.get(), Obj(PyUnicode_FromString(std::string(s).c_str())).get());
    return l;
  };
  Obj attrs = check(PyDict_New());
  for (auto& a : op.schema.defaults) PyDict_SetItemString(attrs.get(), a.name.c_str(), Obj(attr_object(a.value)).get());
  std::vector<std::string> kernels, traits;
  for (auto& k : KernelRegistry::global().list(op.id)) kernels.push_back(k->name);
  static const std::pair<Trait, const char*> kTraits[] = {
      {kElementwise, "elementwise"}, {kView, "view"},     {kReduction, "reduction"}, {kComputeBound, "compute_bound"},
      {kEffect, "effect"},           {kRandom, "random"}, {kNoGrad, "no_grad"},      {kCommutative, "commutative"}};
  for (auto& [t, n] : kTraits)
    if (op.is(t)) traits.push_back(n);
  Obj ins = strings(op.inputs), outs = strings(op.outputs), ks = strings(kernels), ts = strings(traits);
  static const char *const kAmp[] = {"none", "low", "high", "norm"}, *const kKeeps[] = {"no", "any", "first"};
  return Py_BuildValue("{s:s,s:O,s:i,s:O,s:O,s:O,s:s,s:O,s:O,s:O,s:O,s:i,s:s,s:s}", "name", op.name.c_str(), "inputs",
                       ins.get(), "required", int{op.required}, "variadic", op.variadic ? Py_True : Py_False, "outputs",
                       outs.get(), "attrs", attrs.get(), "doc", op.doc.c_str(), "traits", ts.get(), "kernels", ks.get(),
                       "has_vjp", op.vjp ? Py_True : Py_False, "has_decompose", op.decompose ? Py_True : Py_False,
                       "version", op.version, "amp", kAmp[static_cast<int>(op.amp)], "keeps_format",
                       kKeeps[static_cast<int>(op.keeps_format)]);
  MGE_PY_CATCH(nullptr)
}

PyObject* op_names(PyObject*, PyObject*) {
  auto& r = OpRegistry::global();
  PyObject* l = PyList_New(static_cast<Py_ssize_t>(r.size()));
  for (size_t i = 0; l && i < r.size(); ++i)
    PyList_SET_ITEM(l, static_cast<Py_ssize_t>(i), PyUnicode_FromString(r.at(static_cast<OpId>(i)).name.c_str()));
  return l;
}

PyMethodDef functions[] = {{"op_info", op_info, METH_O, "What the registry knows of an op."},
                           {"op_names", op_names, METH_NOARGS, "All registered ops."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_ops(PyObject* module) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&op_spec));
  if (!type || PyModule_AddFunctions(module, functions) != 0) return false;
  Obj ns(PyImport_AddModule("megengine.core._core.ops"));
  PyObject* ops = ns.release();  // borrowed from sys.modules
  auto& r = OpRegistry::global();
  for (size_t i = 0; i < r.size(); ++i) {
    const OpDef& op = r.at(static_cast<OpId>(i));
    auto* f = reinterpret_cast<OpFn*>(type->tp_alloc(type, 0));
    if (!f) return false;
    f->call = op_call;
    f->op = &op;
    new (&f->defaults) Attrs(op.has_attrs ? op.schema.build(op.name, {}) : Attrs());
    if (PyModule_AddObject(ops, op.name.c_str(), reinterpret_cast<PyObject*>(f)) != 0) return false;
  }
  return PyModule_AddObjectRef(module, "ops", ops) == 0;
}

}  // namespace mge::py
