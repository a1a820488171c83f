#include "serial/mgb/decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "serial/mgb/decode_impl.h"
#include "serial/mgb/mgb2_generated.h"

namespace mge::serial::mgb {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kWrapper = "mgbtest0";

bool starts(Bytes b, size_t at, std::string_view text) {
  return b.size() >= at + text.size() && std::memcmp(b.data() + at, text.data(), text.size()) == 0;
}
bool is_v1(Bytes b) { return starts(b, 0, "MGBS\0\0\0\0"sv) || starts(b, 0, "MGBC\0\0\0\0"sv); }
bool is_v2(Bytes b) { return starts(b, 8, "mgv2"); }

template <class T>
T load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace

void Damage::operator()(const std::string& what) const {
  MGE_FAIL_ENV("{}: damaged: {}. Copy the file again, or dump the model again.", who, what);
}

// FlatBuffers verifies tables whose kind it knows. Those of a union of the file's choice are checked here.
void check_table(const Span& s, const void* table) {
  const auto* t = static_cast<const char*>(table);
  const auto inside = [&](int64_t at, int64_t bytes) { return at >= 0 && at + bytes <= s.end - s.begin; };
  const int64_t at = t - s.begin;
  if (!inside(at, 4)) s.damaged("a table outside of the file");
  const int64_t vtable = at - load<int32_t>(reinterpret_cast<const uint8_t*>(t));
  if (!inside(vtable, 4) || !inside(vtable, load<uint16_t>(reinterpret_cast<const uint8_t*>(s.begin + vtable))))
    s.damaged("a table without fields in the file");
}

const char* field_at(const Span& s, const void* table, int slot, size_t size) {
  const auto* t = static_cast<const char*>(table);
  const auto* vtable = t - load<int32_t>(reinterpret_cast<const uint8_t*>(t));
  const auto* entry = vtable + 4 + 2 * slot;
  if (4 + 2 * slot + 2 > load<uint16_t>(reinterpret_cast<const uint8_t*>(vtable))) return nullptr;
  const uint16_t offset = load<uint16_t>(reinterpret_cast<const uint8_t*>(entry));
  if (!offset) return nullptr;
  const char* p = t + offset;
  if (p > s.end || static_cast<size_t>(s.end - p) < size) s.damaged("a parameter lies outside of the file");
  return p;
}

namespace {

template <class T>
T scalar(const Span& s, const void* table, int slot, T otherwise) {
  const char* p = field_at(s, table, slot, sizeof(T));
  return p ? load<T>(reinterpret_cast<const uint8_t*>(p)) : otherwise;
}

struct List {
  const uint8_t* begin = nullptr;
  size_t count = 0;
};
List list_at(const Span& s, const void* table, int slot, size_t size) {
  const char* p = field_at(s, table, slot, 4);
  if (!p) return {};
  const uint32_t offset = load<uint32_t>(reinterpret_cast<const uint8_t*>(p));
  if (static_cast<size_t>(s.end - p) < size_t{offset} + 4) s.damaged("a list of a parameter lies outside of the file");
  const auto* v = reinterpret_cast<const uint8_t*>(p + offset);
  const size_t count = load<uint32_t>(v);
  if (static_cast<size_t>(reinterpret_cast<const uint8_t*>(s.end) - v - 4) / size < count)
    s.damaged("a list of a parameter is cut off");
  if (count > 64) s.damaged(format("a parameter lists {} entries", count));
  return {v + 4, count};
}

compat::ParamValue field_value(const Span& s, const void* table, int slot, const ParamField& f) {
  switch (f.slot) {
    case Slot::U32:
      return int64_t{scalar<uint32_t>(s, table, slot, static_cast<uint32_t>(f.value))};
    case Slot::I32:
      return int64_t{scalar<int32_t>(s, table, slot, static_cast<int32_t>(f.value))};
    case Slot::U64:
      return static_cast<int64_t>(
          scalar<uint64_t>(s, table, slot, f.value >= 0x1p63 ? UINT64_MAX : static_cast<uint64_t>(f.value)));
    case Slot::F32:
      return double{scalar<float>(s, table, slot, static_cast<float>(f.value))};
    case Slot::F64:
      return scalar<double>(s, table, slot, f.value);
    case Slot::Bool:
      return scalar<uint8_t>(s, table, slot, f.value != 0) != 0;
    case Slot::Type: {
      const int n = scalar<int8_t>(s, table, slot, static_cast<int8_t>(f.value));
      compat::TypeParam t{DType::U8, {}};
      if (!dtype_from_number(n, &*t.dtype)) s.damaged(format("dtype {}", n));
      return t;
    }
    case Slot::Ints: {
      Ints v;
      const List l = list_at(s, table, slot, 4);
      for (size_t i = 0; i < l.count; ++i) v.push_back(load<int32_t>(l.begin + 4 * i));
      return v;
    }
    case Slot::Steps: {
      compat::Rows rows;
      const List l = list_at(s, table, slot, 8);
      for (size_t i = 0; i < l.count; ++i)
        rows.push_back({load<int8_t>(l.begin + 8 * i), load<int32_t>(l.begin + 8 * i + 4)});
      return rows;
    }
    case Slot::Items: {
      compat::Rows rows;
      const List l = list_at(s, table, slot, 5);
      for (size_t i = 0; i < l.count; ++i) {
        const uint8_t* p = l.begin + 5 * i;
        rows.push_back({load<int8_t>(p), p[1] != 0, p[2] != 0, p[3] != 0, p[4] != 0});
      }
      return rows;
    }
    case Slot::DType:
      break;
  }
  s.damaged("a parameter of no kind");
}

/// type:byte, param_type:ubyte, param: table {scale:f32, zero_point:ubyte}
compat::TypeParam dtype_table(const Span& s, const void* table) {
  check_table(s, table);
  const int n = scalar<int8_t>(s, table, 0, 0);
  compat::TypeParam t{DType::U8, {}};
  if (!dtype_from_number(n, &*t.dtype)) s.damaged(format("dtype {}", n));
  if (!is_quant(*t.dtype)) return t;
  const char* p = field_at(s, table, 2, 4);
  if (!p) s.damaged(format("{} without a scale", dtype_name(*t.dtype)));
  const uint32_t offset = load<uint32_t>(reinterpret_cast<const uint8_t*>(p));
  if (static_cast<size_t>(s.end - p) < size_t{offset} + 4) s.damaged("a scale outside of the file");
  const char* q = p + offset;
  check_table(s, q);
  t.quant.scale = scalar<float>(s, q, 0, 0);
  t.quant.zero_point = scalar<uint8_t>(s, q, 1, 0);
  if (!(t.quant.scale > 0) || !std::isfinite(t.quant.scale)) s.damaged(format("scale {}", t.quant.scale));
  return t;
}

}  // namespace

Param read_param(const Span& s, int number, const void* table) {
  const ParamTable* t = table_at(number);
  if (!t) s.damaged(format("parameters of kind {}, which this version does not know", number));
  Param out{t, {}};
  if (!table) s.damaged(format("the parameters {} are missing", t->name));
  check_table(s, table);
  for (size_t i = 0; i < t->fields.size(); ++i) {
    const ParamField& f = t->fields[i];
    if (f.slot == Slot::DType)
      out.fields.push_back({f.name, dtype_table(s, table)});
    else
      out.fields.push_back({f.name, field_value(s, table, static_cast<int>(i), f)});
  }
  return out;
}

compat::TypeParam read_type(const Span& s, const void* table) {
  return table ? dtype_table(s, table) : compat::TypeParam();
}

Meta read_meta(const Span& s, const flatbuffers::Vector<uint32_t>* shape, const void* dtype) {
  Meta m;
  const compat::TypeParam t = dtype_table(s, dtype);
  m.dtype = *t.dtype;
  m.quant = t.quant;
  if (shape && shape->size() > kMaxRank) s.damaged(format("a tensor of {} dimensions", shape->size()));
  for (uint32_t i = 0; shape && i < shape->size(); ++i) {
    if (shape->Get(i) > kMaxInteger) s.damaged(format("a dimension of {}", shape->Get(i)));
    m.shape.push_back(shape->Get(i));
  }
  check_shape("model", m.shape);
  return m;
}

size_t stored_bytes(const Meta& m) {
  const size_t bits = dtype_info(m.dtype).bits;
  if (bits >= 8 || m.shape.rank == 0) return m.bytes();
  const auto inner = static_cast<size_t>(m.shape.back());
  return inner ? static_cast<size_t>(m.shape.numel()) / inner * ((inner * bits + 7) / 8) : 0;
}

void count_entries(const Span& s, size_t* total, size_t n) {
  *total += n;
  if (*total > static_cast<size_t>(s.end - s.begin)) s.damaged("lists overlap");
}

Bytes value_bytes(const Span& s, const Meta& m, Bytes stored) {
  if (!s.owner || !s.owner->compressed) return stored;
  if (stored.empty() || stored[0] > 2) s.damaged("has_compression is on and a value is not stored so");
  const int method = stored[0];
  stored = stored.subspan(1);
  if (method == 0) return stored;
  const auto n = static_cast<size_t>(m.shape.numel());
  if (m.dtype != DType::F32 || stored.size() != 8 + n * static_cast<size_t>(method))
    s.damaged(format("a value of {} compressed by method {} has {} bytes", m.str(), method, stored.size()));
  const float stride = load<float>(stored.data()), base = load<float>(stored.data() + 4);
  uint8_t* out = s.owner->room(n * 4);
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* p = stored.data() + 8 + i * static_cast<size_t>(method);
    const float v = stride * static_cast<float>(method == 1 ? *p : load<uint16_t>(p)) + base;
    std::memcpy(out + 4 * i, &v, 4);
  }
  return {out, n * 4};
}

namespace {

std::string text(const flatbuffers::String* s) { return s ? s->str() : std::string(); }

void read_tensor(const Span& s, const v2::Tensor& f, Tensor* t) {
  t->name = text(f.name());
  if (f.comp_node()) t->comp_node = text(f.comp_node()->logical_locator());
  if (!f.dtype()) s.damaged("a tensor without dtype");
  t->meta = read_meta(s, f.shape(), f.dtype());
  if (f.format_type() > 3) s.damaged(format("a tensor of format {}", f.format_type()));
  if (f.format_type()) t->layout = static_cast<Layout>(f.format_type());
  if (f.format()) {
    t->layout_args[0] = f.format()->first();
    t->layout_args[1] = f.format()->second();
  }
  if (!f.data()) return;
  t->has_data = true;
  t->data = value_bytes(s, t->meta, {f.data()->data(), f.data()->size()});
  if (t->layout == Layout::Default && t->data.size() != stored_bytes(t->meta))
    s.damaged(format("tensor '{}' {} has {} bytes", t->name, t->meta.str(), t->data.size()));
}

void read_opr(const Span& s, const v2::Operator& f, Opr* o, uint32_t* next, size_t* total) {
  o->type = text(f.type());
  o->version = static_cast<int>(f.opr_version());
  o->name = text(f.name());
  o->priority = f.priority();
  if (f.param_type()) o->params.push_back(read_param(s, f.param_type(), f.param()));
  const size_t extra = f.additional_params_type() ? f.additional_params_type()->size() : 0;
  if (extra != (f.additional_params() ? f.additional_params()->size() : 0)) s.damaged("parameters without their kinds");
  count_entries(s, total, extra);
  for (uint32_t i = 0; i < extra; ++i)
    o->params.push_back(read_param(s, f.additional_params_type()->Get(i), f.additional_params()->Get(i)));
  count_entries(s, total, (f.inputs() ? f.inputs()->size() : 0) + (f.outputs() ? f.outputs()->size() : 0));
  if (f.inputs()) o->inputs.assign(f.inputs()->begin(), f.inputs()->end());
  for (uint32_t v : o->inputs)
    if (v >= *next) s.damaged(format("{} '{}' reads var {}, which is not there yet", o->type, o->name, v));
  if (f.outputs()) o->outputs.assign(f.outputs()->begin(), f.outputs()->end());
  for (uint32_t v : o->outputs)
    if (v != (*next)++) s.damaged(format("{} '{}' makes var {}; var {} is the next", o->type, o->name, v, *next - 1));
  if (f.comp_node() && f.comp_node()->size()) o->comp_node = text(f.comp_node()->Get(0)->logical_locator());
  o->output_dtype = read_type(s, f.output_dtype());
  count_entries(s, total, f.tensors() ? f.tensors()->size() : 0);
  for (uint32_t i = 0; f.tensors() && i < f.tensors()->size(); ++i) {
    read_tensor(s, *f.tensors()->Get(i), &o->tensors.emplace_back());
  }
  count_entries(s, total, f.custom_data() ? f.custom_data()->size() : 0);
  for (uint32_t i = 0; f.custom_data() && i < f.custom_data()->size(); ++i) {
    auto* d = f.custom_data()->Get(i)->data();
    o->blobs.push_back(d ? Bytes(d->data(), d->size()) : Bytes());
  }
}

File decode2(Decoded& owner, Bytes bytes, const Damage& damaged) {
  if (bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) damaged(format("a file of {} bytes", bytes.size()));
  flatbuffers::Verifier v(bytes.data(), bytes.size(), 16, 10'000'000);
  if (!v2::VerifySizePrefixedModelBuffer(v)) damaged("the buffer does not verify");
  const v2::Model& f = *v2::GetSizePrefixedModel(bytes.data());
  const Span s{reinterpret_cast<const char*>(bytes.data()), reinterpret_cast<const char*>(bytes.data() + bytes.size()),
               damaged, &owner};
  File out;
  out.version = f.mge_version();
  uint32_t next = 0;
  size_t total = 0;
  for (uint32_t i = 0; f.oprs() && i < f.oprs()->size(); ++i)
    read_opr(s, *f.oprs()->Get(i), &out.oprs.emplace_back(), &next, &total);
  out.vars.resize(next);
  for (uint32_t i = 0; f.middle_tensors() && i < f.middle_tensors()->size() && i < next; ++i) {
    const v2::MiddleTensor& m = *f.middle_tensors()->Get(i);
    VarInfo& var = out.vars[i];
    var.name = text(m.name());
    if (!m.shape() || m.shape()->size() > kMaxRank) continue;
    var.has_shape = true;
    for (uint32_t k = 0; k < m.shape()->size(); ++k) var.shape.push_back(m.shape()->Get(k));
  }
  for (uint32_t i = 0; f.output_vars_idx() && i < f.output_vars_idx()->size(); ++i) {
    auto& o = *f.output_vars_idx()->Get(i);
    if (o.compact_id() >= next) damaged(format("output {} is var {} of {}", i, o.compact_id(), next));
    out.outputs.push_back({o.compact_id(), o.original_id(), {}});
  }
  if (f.output_alias() && f.output_alias()->size()) {
    std::map<uint32_t, uint32_t> by_original;
    for (auto& o : out.outputs) by_original[o.original] = o.var;
    out.outputs.clear();
    for (uint32_t i = 0; i < f.output_alias()->size(); ++i) {
      auto& a = *f.output_alias()->Get(i);
      auto at = by_original.find(a.id());
      if (at == by_original.end()) damaged(format("output '{}' is no var", text(a.name())));
      out.outputs.push_back({at->second, a.id(), text(a.name())});
    }
  }
  if (auto* m = f.metadata()) {
    out.has_metadata = m->is_valid();
    out.graph_modified = m->graph_modified();
    out.user_info = text(m->user_info());
    out.optimize_options = m->optimize_options();
  }
  return out;
}

}  // namespace

Decoded decode(Bytes bytes, const std::string& who, bool compressed) {
  const Damage damaged{who};
  Decoded out;
  out.compressed = compressed;
  uint32_t cases = 0;
  if (starts(bytes, 0, kWrapper)) {
    if (bytes.size() < 12) damaged("cut off after the first bytes");
    out.wrapped = true;
    cases = load<uint32_t>(bytes.data() + 8);
    bytes = bytes.subspan(12);
    if (cases > bytes.size()) damaged(format("{} test cases in {} bytes", cases, bytes.size()));
  }
  for (uint32_t i = 0; i <= cases; ++i) {
    File* file = i ? &out.cases.emplace_back() : &out.main;
    if (is_v2(bytes)) {
      const size_t size = size_t{load<uint32_t>(bytes.data())} + 4;
      if (size > bytes.size()) damaged(format("cut off: {} of {} bytes are there", bytes.size(), size));
      *file = decode2(out, out.aligned(bytes.first(size)), damaged);
      bytes = bytes.subspan(size);
    } else if (is_v1(bytes)) {
      *file = decode1(out, &bytes, damaged);
    } else {
      damaged(i ? format("test case {} of {} is not there", i, cases) : "there is no graph in the wrapper");
    }
  }
  return out;
}

Bytes Decoded::aligned(Bytes b) {
  if (reinterpret_cast<uintptr_t>(b.data()) % 8 == 0) return b;
  uint8_t* copy = room(b.size());
  std::memcpy(copy, b.data(), b.size());
  return {copy, b.size()};
}
uint8_t* Decoded::room(size_t bytes) { return reinterpret_cast<uint8_t*>(copies.emplace_back(bytes / 8 + 1).data()); }

}  // namespace mge::serial::mgb
