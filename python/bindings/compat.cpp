// The original's op classes for Python: what the table of src/compat says of them, and one call that runs a rule.
#include "compat/op_class.h"

#include <optional>

#include "common.h"
#include "eager/modes.h"

namespace mge::py {
namespace {

using compat::Field;
using compat::Kind;
using compat::OpClass;
using compat::ParamValue;

Obj text(std::string_view s) { return check(PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()))); }

PyObject* default_object(const Field& f) {
  const ParamValue& v = f.value;
  switch (f.kind) {
    case Kind::Bool:
      return PyBool_FromLong(std::get<bool>(v));
    case Kind::Int:
    case Kind::Enum:
      return PyLong_FromLongLong(std::get<int64_t>(v));
    case Kind::Unsigned:
      return PyLong_FromUnsignedLongLong(static_cast<uint64_t>(std::get<int64_t>(v)));
    case Kind::Float:
      return PyFloat_FromDouble(std::get<double>(v));
    case Kind::Text:
      return text(std::get<std::string>(v)).release();
    case Kind::Bytes:
      return PyBytes_FromStringAndSize("", 0);
    case Kind::Ints:
    case Kind::Rows:
      return PyList_New(0);
    case Kind::Type: {
      auto& t = std::get<compat::TypeParam>(v);
      return t.dtype ? text(dtype_name(*t.dtype)).release() : Py_NewRef(Py_None);
    }
    case Kind::Node:
      return Py_NewRef(Py_None);
  }
  return nullptr;
}

// (owner, name, bits, members)
Obj enum_object(const compat::EnumInfo& e) {
  Obj members = check(PyTuple_New(static_cast<Py_ssize_t>(e.members.size())));
  for (size_t i = 0; i < e.members.size(); ++i)
    PyTuple_SET_ITEM(members.get(), static_cast<Py_ssize_t>(i), text(e.members[i]).release());
  Obj owner = text(e.owner), name = text(e.name);
  return check(PyTuple_Pack(4, owner.get(), name.get(), e.bits ? Py_True : Py_False, members.get()));
}

PyObject* op_class_names(PyObject*, PyObject*) {
  MGE_PY_TRY
  Obj list = check(PyList_New(0));
  for (auto& c : compat::op_classes())
    if (c.in_python && PyList_Append(list.get(), text(c.name).get()) != 0) throw PythonError{};
  return list.release();
  MGE_PY_CATCH(nullptr)
}

PyObject* op_class_info(PyObject*, PyObject* name) {
  MGE_PY_TRY
  if (!PyUnicode_Check(name)) {
    PyErr_SetString(PyExc_TypeError, "op_class_info: expected a name");
    return nullptr;
  }
  const OpClass& c = compat::get(text_of(name));
  Obj fields = check(PyList_New(0));
  for (auto& f : c.fields) {
    Obj field = text(f.name), value = check(default_object(f));
    Obj members = f.members ? enum_object(*f.members) : Obj(Py_NewRef(Py_None));
    Obj row = check(PyTuple_Pack(3, field.get(), value.get(), members.get()));
    if (PyList_Append(fields.get(), row.get()) != 0) throw PythonError{};
  }
  static const char* const kEffects[] = {"", "generator", "replace"};
  Obj files = check(PyList_New(0));
  for (auto& t : c.files) {
    Obj file = text(t.name);
    Obj row = check(Py_BuildValue("(Oi)", file.get(), t.version));
    if (PyList_Append(files.get(), row.get()) != 0) throw PythonError{};
  }
  Obj absent = text(c.absent);
  return Py_BuildValue("{s:n,s:O,s:O,s:s,s:O}", "index", &c - compat::op_classes().data(), "fields", fields.get(),
                       "absent", absent.get(), "effect", kEffects[static_cast<int>(c.effect)], "files", files.get());
  MGE_PY_CATCH(nullptr)
}

compat::Rows to_rows(PyObject* o) {
  Obj seq = check(PySequence_Fast(o, "rows of integers are needed"));
  compat::Rows rows;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(seq.get()); ++i)
    rows.push_back(to_ints(PySequence_Fast_GET_ITEM(seq.get(), i)));
  return rows;
}

ParamValue param(const Field& f, PyObject* o) {
  switch (f.kind) {
    case Kind::Bool: {
      int truth = PyObject_IsTrue(o);
      if (truth < 0) throw PythonError{};
      return truth == 1;
    }
    case Kind::Int:
    case Kind::Unsigned: {
      Obj i = check(PyNumber_Index(o));
      int64_t v =
          f.kind == Kind::Int ? PyLong_AsLongLong(i.get()) : static_cast<int64_t>(PyLong_AsUnsignedLongLong(i.get()));
      if (v == -1 && PyErr_Occurred()) throw PythonError{};
      return v;
    }
    case Kind::Float: {
      double v = PyFloat_AsDouble(o);
      if (v == -1 && PyErr_Occurred()) throw PythonError{};
      return v;
    }
    case Kind::Text: {
      Obj s = check(PyObject_Str(o));
      return text_of(s.get());
    }
    case Kind::Bytes:
      return compat::Bytes{};  // only classes without a rule have them
    case Kind::Ints:
      return to_ints(o);
    case Kind::Rows:
      return to_rows(o);
    case Kind::Type: {
      compat::TypeParam t;
      if (o != Py_None) t.dtype = to_dtype(o, &t.quant);
      return t;
    }
    case Kind::Node: {
      if (o == Py_None) return compat::NodeParam{};
      Obj s = check(PyObject_Str(o));
      return compat::NodeParam{text_of(s.get())};
    }
    case Kind::Enum: {
      Obj v = check(PyObject_GetAttrString(o, "_value"));
      return static_cast<int64_t>(PyLong_AsLongLong(v.get()));
    }
  }
  return {};
}

std::shared_ptr<const void> params_of(const OpClass& c, PyObject* op) {
  std::vector<ParamValue> values;
  for (auto& f : c.fields) {
    Obj v = check(PyObject_GetAttr(op, text(f.name).get()));
    values.push_back(param(f, v.get()));
  }
  return c.build_in_order(values);
}

}  // namespace

std::vector<Val> emit_op_class(Emitter& em, PyObject* op, std::span<const Val> in) {
  Obj at = check(PyObject_GetAttrString(op, "_index"));
  const OpClass& c = compat::op_classes()[PyLong_AsSize_t(at.get())];
  MGE_CHECK(c.rule, NotImplemented, "apply: {} is not there: {}.", c.name, c.absent);
  std::optional<mode::Scope> uncast;
  if (c.uncast) uncast.emplace(mode::kAutocast, 0);
  return compat::run(em, c, params_of(c, op).get(), in);
}

namespace {

// run_op_class(op, *tensors) -> tuple; None for an output that was not asked for.
PyObject* run_op_class(PyObject*, PyObject* const* args, Py_ssize_t n) {
  MGE_PY_TRY
  if (n < 1) {
    PyErr_SetString(PyExc_TypeError, "run_op_class: expected an op");
    return nullptr;
  }
  EagerEmitter& em = EagerEmitter::get();
  std::vector<Val> in;
  for (Py_ssize_t i = 1; i < n; ++i) {
    MGE_CHECK(is_tensor(args[i]), Type, "py_apply expects tensor as inputs; {} got {}.", Py_TYPE(args[0])->tp_name,
              Py_TYPE(args[i])->tp_name);
    in.push_back(em.val(TensorPtr(tensor_of(args[i]))));
  }
  std::vector<Val> out = emit_op_class(em, args[0], in);
  Obj tuple = check(PyTuple_New(static_cast<Py_ssize_t>(out.size())));
  for (size_t i = 0; i < out.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i),
                     out[i] ? wrap(TensorPtr(EagerEmitter::tensor(out[i]))) : Py_NewRef(Py_None));
  return tuple.release();
  MGE_PY_CATCH(nullptr)
}

PyMethodDef functions[] = {
    {"op_class_names", op_class_names, METH_NOARGS, "The original's op classes."},
    {"op_class_info", op_class_info, METH_O, "Fields, enums, effect and file types of an op class."},
    {"run_op_class", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(run_op_class)), METH_FASTCALL,
     "run_op_class(op, *tensors): what the op class means."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_op_classes(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace mge::py
