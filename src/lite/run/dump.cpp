#include "lite/run/dump.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/write_file.h"
#include "core/quant.h"

namespace lite {
namespace {

using mge::DType;

double half_to_double(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double v = exponent == 0    ? std::ldexp(fraction, -24)
             : exponent == 31 ? (fraction ? NAN : INFINITY)
                              : std::ldexp(1024 + fraction, exponent - 25);
  return h & 0x8000 ? -v : v;
}

template <class T>
T load(const void* p, int64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(p) + static_cast<size_t>(i) * sizeof(T), sizeof v);
  return v;
}

// Numbers of the original's runtime dtype enum, which the offline compare tool reads.
uint32_t dump_dtype(DType t) {
  switch (t) {
    case DType::F32:
      return 0;
    case DType::U8:
      return 1;
    case DType::I8:
      return 2;
    case DType::I16:
      return 3;
    case DType::I32:
      return 4;
    case DType::F16:
      return 9;
    case DType::BF16:
      return 11;
    case DType::Bool:
      return 12;
    case DType::U16:
      return 13;
    case DType::C64:
      return 14;
    case DType::QU8:
      return 100000;
    case DType::QI32:
      return 100001;
    case DType::QI8:
      return 100002;
    case DType::QI16:
      return 100005;
    case DType::F64:  // the original has no such types; tools here know these numbers
      return 200000;
    case DType::I64:
      return 200001;
    default:
      return 8;  // plain bytes
  }
}

const char* npy_descr(DType t) {
  switch (t) {
    case DType::Bool:
      return "|b1";
    case DType::U8:
    case DType::QU8:
      return "|u1";
    case DType::I8:
    case DType::QI8:
      return "|i1";
    case DType::U16:
    case DType::BF16:
      return "<u2";
    case DType::I16:
    case DType::QI16:
      return "<i2";
    case DType::I32:
    case DType::QI32:
      return "<i4";
    case DType::I64:
      return "<i8";
    case DType::F16:
      return "<f2";
    case DType::F32:
      return "<f4";
    case DType::F64:
      return "<f8";
    case DType::C64:
      return "<c8";
    default:
      mge::fail(mge::ErrorKind::Type, "npy: {} cannot be written.", mge::dtype_name(t));
  }
}

std::string number(double d) {
  char buf[32];
  std::snprintf(buf, sizeof buf, "%.4g", d);
  return buf;
}

void put_u32(std::string* s, uint32_t v) { s->append(reinterpret_cast<const char*>(&v), 4); }

}  // namespace

double element_value(DType t, const void* p, int64_t i) {
  switch (t) {
    case DType::F32:
      return load<float>(p, i);
    case DType::F64:
      return load<double>(p, i);
    case DType::F16:
      return half_to_double(load<uint16_t>(p, i));
    case DType::BF16: {
      uint32_t u = static_cast<uint32_t>(load<uint16_t>(p, i)) << 16;
      float f;
      std::memcpy(&f, &u, 4);
      return f;
    }
    case DType::I64:
      return static_cast<double>(load<int64_t>(p, i));
    case DType::I32:
    case DType::QI32:
      return load<int32_t>(p, i);
    case DType::I16:
    case DType::QI16:
      return load<int16_t>(p, i);
    case DType::U16:
      return load<uint16_t>(p, i);
    case DType::I8:
    case DType::QI8:
    case DType::QI1:
      return load<int8_t>(p, i);
    case DType::C64:
      return load<float>(p, 2 * i);  // the real part
    case DType::QI4:
    case DType::QU4: {
      int8_t two[2];
      mge::unpack4(t, static_cast<const char*>(p) + i / 2, two, 2);
      return two[i & 1];
    }
    default:
      return load<uint8_t>(p, i);
  }
}

void make_folder(const std::string& dir) {
  for (size_t i = 1; i <= dir.size(); ++i) {
    if (i < dir.size() && dir[i] != '/') continue;
    std::string part = dir.substr(0, i);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST)
      MGE_FAIL_ENV("{}: cannot make this folder: {}.", part, std::strerror(errno));
  }
}

std::string first_values(const mge::Meta& m, const void* data, size_t max_values) {
  std::string s = "[";
  const auto n = static_cast<size_t>(m.shape.numel());
  for (size_t i = 0; i < n && i < max_values; ++i)
    s += (i ? ", " : "") + number(element_value(m.dtype, data, static_cast<int64_t>(i)));
  return s + (n > max_values ? ", ...]" : "]");
}

std::string value_text(const mge::Meta& m, const void* data, size_t max_values) {
  int64_t n = m.shape.numel();
  std::string s = first_values(m, data, max_values);
  double lo = INFINITY, hi = -INFINITY, sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    double v = element_value(m.dtype, data, i);
    lo = std::min(lo, v);
    hi = std::max(hi, v);
    sum += v;
    squares += v * v;
  }
  if (n == 0) return s;
  auto count = static_cast<double>(n);
  double mean = sum / count;
  double sd = n > 1 ? std::sqrt(std::max(0.0, (squares - sum * mean) / (count - 1))) : 0;
  return s + "min=" + number(lo) + " max=" + number(hi) + " mean=" + number(mean) +
         " l2=" + number(std::sqrt(squares / count)) + " sd=" + number(sd);
}

void write_text_dump(const std::string& path, const std::vector<DumpedValue>& values, bool append) {
  std::string s = append ? "\n==== next run\n" : "";
  for (const DumpedValue& v : values) {
    s += mge::format("var{} produced: name={} layout={} owner_opr={}{{{}}} opr{}", v.id, v.name, v.meta.str(), v.name,
                     v.op, v.opr);
    if (!v.location.empty()) s += " loc=" + v.location;
    s += v.inputs.empty() ? "\n" : "\n deps:\n";
    for (size_t i = 0; i < v.inputs.size(); ++i) {
      const DumpedValue& from = values[static_cast<size_t>(v.inputs[i].first)];
      s += mge::format("  [i{}]var{}: {}\n", i, from.id, first_values(from.meta, from.data, 4));
    }
    s += mge::format(" val: {}{}\n", value_text(v.meta, v.data, 8), v.moves ? " d" : " s");
  }
  append ? mge::append_file(path, s) : mge::replace_file(path, s);
}

void write_binary_value(const std::string& path, const DumpedValue& v) {
  // The form that tools of the original parse: numbers of the value and of what its op reads.
  std::string sizes = v.meta.shape.str(), head;
  std::string name =
      mge::format("var={{id:{},shape:{{{}}},{},owner:{}({}),name:{}}} owner_opr_inputs=[", v.id,
                  sizes.substr(1, sizes.size() - 2), mge::dtype_name(v.meta.dtype), v.name, v.op, v.name);
  for (auto& [id, input] : v.inputs) name += mge::format("{{id:{},name:{}}}, ", id, input);
  name += "]";
  put_u32(&head, static_cast<uint32_t>(name.size()));
  put_u32(&head, dump_dtype(v.meta.dtype));
  put_u32(&head, 7);
  for (int i = 0; i < 7; ++i) put_u32(&head, i < v.meta.shape.rank ? static_cast<uint32_t>(v.meta.shape[i]) : 0);
  mge::replace_file(path, head + name, v.data, v.meta.bytes());
}

void write_binary_dump(const std::string& dir, const std::vector<DumpedValue>& values) {
  make_folder(dir);
  for (const DumpedValue& v : values) write_binary_value(mge::format("{}/{:06x}", dir, v.id), v);
}

void write_npy(const std::string& path, const mge::Meta& m, const void* data) {
  std::string shape;
  for (int64_t d : m.shape) shape += std::to_string(d) + ",";
  std::string head =
      mge::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", npy_descr(m.dtype), shape);
  head.append(63 - (10 + head.size()) % 64, ' ');
  head += '\n';
  std::string start("\x93NUMPY\x01\x00", 8);
  start += static_cast<char>(head.size() & 255);
  start += static_cast<char>(head.size() >> 8);
  mge::replace_file(path, start + head, data, m.bytes());
}

}  // namespace lite
