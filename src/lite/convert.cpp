#include "lite/convert.h"

#include "base/error.h"

namespace lite {
namespace {

using mge::DType;

struct Row {
  LiteDataType lite;
  DType dtype;
  const char* name;
  size_t bytes;
};
constexpr Row kRows[] = {
    {LITE_FLOAT, DType::F32, "float32", 4},      {LITE_HALF, DType::F16, "float16", 2},
    {LITE_INT, DType::I32, "int32", 4},          {LITE_INT16, DType::I16, "int16", 2},
    {LITE_INT8, DType::I8, "int8", 1},           {LITE_UINT8, DType::U8, "uint8", 1},
    {LITE_UINT16, DType::U16, "uint16", 2},      {LITE_INT64, DType::I64, "int64", 8},
    {LITE_FLOAT64, DType::F64, "float64", 8},    {LITE_BOOL, DType::Bool, "bool", 1},
    {LITE_BFLOAT16, DType::BF16, "bfloat16", 2}, {LITE_COMPLEX64, DType::C64, "complex64", 8},
    {LITE_UINT8, DType::QU8, "uint8", 1},        {LITE_INT8, DType::QI8, "int8", 1},
    {LITE_INT16, DType::QI16, "int16", 2},       {LITE_INT, DType::QI32, "int32", 4},
};
constexpr Row kUInt = {LITE_UINT, DType::I32, "uint32", 4};  // memory only: no graph has it

const Row* find(LiteDataType t) {
  for (const Row& r : kRows)
    if (r.lite == t) return &r;
  return t == LITE_UINT ? &kUInt : nullptr;
}

}  // namespace

LiteDataType to_lite_dtype(DType t, const std::string& who) {
  for (const Row& r : kRows)
    if (r.dtype == t) return r.lite;
  mge::fail(mge::ErrorKind::Type, "lite: {} is {}, which Lite has no data type for. Cast it in the model.", who,
            mge::dtype_name(t));
}

bool same_storage(LiteDataType l, DType t) {
  for (const Row& r : kRows)
    if (r.lite == l && r.dtype == t) return true;
  return false;
}

const char* dtype_text(LiteDataType t) {
  const Row* r = find(t);
  return r ? r->name : "an unknown data type";
}
size_t dtype_bytes(LiteDataType t) {
  const Row* r = find(t);
  return r ? r->bytes : 0;
}

Layout to_lite(const mge::Meta& m, const std::string& who) {
  Layout l;
  l.data_type = to_lite_dtype(m.dtype, who);
  MGE_CHECK(m.shape.rank <= Layout::MAXDIM, Value, "lite: {} has rank {}; Lite's layouts have at most {} dimensions.",
            who, m.shape.rank, Layout::MAXDIM);
  for (int64_t d : m.shape) l.shapes[l.ndim++] = static_cast<size_t>(d);
  if (l.ndim == 0) l.shapes[l.ndim++] = 1;
  return l;
}

bool is_layout_of(const Layout& l, const mge::Meta& m) {
  if (l.ndim != std::max<size_t>(m.shape.rank, 1) || !same_storage(l.data_type, m.dtype)) return false;
  if (m.shape.rank == 0) return l.shapes[0] == 1;
  for (size_t i = 0; i < l.ndim; ++i)
    if (l.shapes[i] != static_cast<size_t>(m.shape[i])) return false;
  return true;
}

mge::Shape to_shape(const Layout& l, int graph_rank) {
  mge::Shape s;
  if (graph_rank == 0 && l.ndim == 1 && l.shapes[0] == 1) return s;
  for (size_t i = 0; i < l.ndim; ++i) s.push_back(static_cast<int64_t>(l.shapes[i]));
  return s;
}

std::string layout_text(const Layout& l) {
  std::string s = dtype_text(l.data_type);
  s += "[";
  for (size_t i = 0; i < l.ndim && i < Layout::MAXDIM; ++i) s += (i ? "," : "") + std::to_string(l.shapes[i]);
  return s + "]";
}

void check_layout(const Layout& l) {
  MGE_CHECK(dtype_bytes(l.data_type), Value, "lite: {} is no LiteDataType.", static_cast<int>(l.data_type));
  MGE_CHECK(l.ndim <= Layout::MAXDIM, Value, "lite: a layout has at most {} dimensions; got {}.", Layout::MAXDIM,
            l.ndim);
  size_t bytes = dtype_bytes(l.data_type);
  for (size_t i = 0; i < l.ndim; ++i) {
    bool fits = !__builtin_mul_overflow(bytes, l.shapes[i] ? l.shapes[i] : 1, &bytes) && bytes <= PTRDIFF_MAX / 2;
    MGE_CHECK(fits, Value, "lite: a tensor {} is too large for this machine.", layout_text(l));
  }
}

size_t layout_elements(const Layout& l) {
  if (l.ndim == 0) return 0;
  size_t n = 1;
  for (size_t i = 0; i < l.ndim; ++i) n *= l.shapes[i];
  return n;
}
size_t layout_bytes(const Layout& l) { return layout_elements(l) * dtype_bytes(l.data_type); }

size_t Layout::get_elem_size() const { return lite::dtype_bytes(data_type); }

bool Layout::operator==(const Layout& o) const {
  if (ndim != o.ndim || data_type != o.data_type) return false;
  for (size_t i = 0; i < ndim && i < MAXDIM; ++i)
    if (shapes[i] != o.shapes[i]) return false;
  return true;
}

}  // namespace lite
