// Operators of your own, in C++14:
//
//   #include "megbrain/custom/custom.h"
//   CUSTOM_OP_REG_BEGIN(Scale)
//   void compute(const std::vector<Tensor>& in, const Param& params, std::vector<Tensor>& out) {
//     const float s = params["scale"].as<float>();
//     for (size_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = in[0].data<float>()[i] * s;
//   }
//   CUSTOM_OP_REG(Scale).add_inputs(1).add_outputs(1).add_param("scale", 1.0f).set_compute(compute);
//   CUSTOM_OP_REG_END(Scale)
//
// Compile it to a shared library (megengine.utils.custom_op_tools.build) and load it (megengine.core.ops.custom.load).
// The header is all there is: the library links to nothing of the engine, and everything here is hidden in it, so two
// libraries do not see each other's registries. docs/custom-ops.md has more.
#pragma once
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <locale>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "megbrain/custom/abi.h"

#define CUSTOM_OP_MAJOR 0
#define CUSTOM_OP_MINOR 1
#define CUSTOM_OP_PATCH 0
#define CUSTOM_OP_VERSION (CUSTOM_OP_MAJOR * 10000 + CUSTOM_OP_MINOR * 100 + CUSTOM_OP_PATCH)

#pragma GCC visibility push(hidden)
namespace custom {

// ---- errors

inline std::string format_text(const char* format, ...) __attribute__((format(printf, 1, 2)));
inline std::string format_text(const char* format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int n = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(n > 0 ? static_cast<size_t>(n) : 0, '\0');
  if (n > 0) std::vsnprintf(&text[0], text.size() + 1, format, again);
  va_end(again);
  return text;
}
inline std::string format_text() { return {}; }

[[noreturn]] inline void fail_at(const char* file, int line, const std::string& text) {
  throw std::runtime_error(text + " (" + file + ":" + std::to_string(line) + ")");
}

/// A condition that must hold: otherwise the call fails with the text, and the file and line of this assertion.
#define custom_assert(expr, ...)                                                                          \
  do {                                                                                                    \
    if (!(expr)) {                                                                                        \
      const std::string custom_text_ = ::custom::format_text(__VA_ARGS__);                                \
      ::custom::fail_at(__FILE__, __LINE__, custom_text_.empty() ? "'" #expr "' does not hold" : custom_text_); \
    }                                                                                                     \
  } while (0)
/// A condition that should hold: otherwise a line on stderr.
#define custom_expect(expr, ...)                                                                                    \
  do {                                                                                                              \
    if (!(expr))                                                                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, (::custom::format_text(__VA_ARGS__) + " [" #expr "]").c_str()); \
  } while (0)

// ---- devices, shapes, dtypes, formats

class Device {
 public:
  Device() = default;
  Device(const char* name) : Device(std::string(name)) {}
  Device(const std::string& name) : name_(name) {
    custom_assert(is_legal(name), "a device is x86 or cuda; got '%s'", name.c_str());
  }
  static bool is_legal(const std::string& name) { return name == "x86" || name == "cuda"; }
  static std::vector<std::string> legal_devices() { return {"x86", "cuda"}; }
  const std::string& str() const { return name_; }
  bool operator==(const Device& o) const { return name_ == o.name_; }
  bool operator!=(const Device& o) const { return name_ != o.name_; }

 private:
  std::string name_ = "x86";
};
inline bool operator==(const std::string& a, const Device& b) { return a == b.str(); }

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<size_t> sizes) : sizes_(sizes) { check(); }
  Shape(const std::vector<size_t>& sizes) : sizes_(sizes) { check(); }
  size_t& operator[](size_t i) {
    custom_assert(i < MGE_CUSTOM_MAX_NDIM, "a shape has at most %d sizes; asked for number %zu", MGE_CUSTOM_MAX_NDIM, i);
    if (i >= sizes_.size()) sizes_.resize(i + 1, 0);
    return sizes_[i];
  }
  size_t operator[](size_t i) const {
    custom_assert(i < sizes_.size(), "the shape %s has %zu sizes; asked for number %zu", str().c_str(), ndim(), i);
    return sizes_[i];
  }
  size_t ndim() const { return sizes_.size(); }
  void ndim(size_t n) { sizes_.resize(n, 0), check(); }
  size_t total() const {
    size_t n = 1;
    for (size_t s : sizes_) n *= s;
    return n;
  }
  bool operator==(const Shape& o) const { return sizes_ == o.sizes_; }
  bool operator!=(const Shape& o) const { return sizes_ != o.sizes_; }
  std::string str() const {
    std::string text = "{";
    for (size_t i = 0; i < sizes_.size(); ++i) text += (i ? "," : "") + std::to_string(sizes_[i]);
    return text + "}";
  }

 private:
  void check() const {
    custom_assert(sizes_.size() <= MGE_CUSTOM_MAX_NDIM, "a shape has at most %d sizes; got %zu", MGE_CUSTOM_MAX_NDIM,
                  sizes_.size());
  }
  std::vector<size_t> sizes_;
};

/// Halves: kept in 16 bits, computed with as float.
struct float16_t {
  uint16_t bits = 0;
  float16_t() = default;
  float16_t(float value) {
    uint32_t x;
    std::memcpy(&x, &value, 4);
    const uint32_t sign = x >> 16 & 0x8000u;
    x &= 0x7fffffffu;
    if (x >= 0x7f800000u) {
      bits = static_cast<uint16_t>(sign | 0x7c00u | (x > 0x7f800000u ? 0x200u : 0u));
    } else if (x >= 0x477ff000u) {
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (x < 0x38800000u) {  // subnormal: the addition rounds at 2^-24
      float r;
      std::memcpy(&r, &x, 4);
      r += 0.5f;
      std::memcpy(&x, &r, 4);
      bits = static_cast<uint16_t>(sign | (x - 0x3f000000u));
    } else {
      bits = static_cast<uint16_t>(sign | ((x - 0x38000000u + 0xfffu + (x >> 13 & 1u)) >> 13));
    }
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, e = bits >> 10 & 31u, m = bits & 0x3ffu;
    uint32_t x;
    if (e == 31u) {
      x = sign | 0x7f800000u | m << 13;
    } else if (e) {
      x = sign | (e + 112u) << 23 | m << 13;
    } else {
      const float tiny = static_cast<float>(m) * 5.9604644775390625e-08f;  // 2^-24
      std::memcpy(&x, &tiny, 4);
      x |= sign;
    }
    float f;
    std::memcpy(&f, &x, 4);
    return f;
  }
  float16_t& operator+=(float v) { return *this = float16_t(float(*this) + v); }
  float16_t& operator-=(float v) { return *this = float16_t(float(*this) - v); }
  float16_t& operator*=(float v) { return *this = float16_t(float(*this) * v); }
  float16_t& operator/=(float v) { return *this = float16_t(float(*this) / v); }
};
struct bfloat16_t {
  uint16_t bits = 0;
  bfloat16_t() = default;
  bfloat16_t(float value) {
    uint32_t x;
    std::memcpy(&x, &value, 4);
    if ((x & 0x7fffffffu) > 0x7f800000u)
      bits = static_cast<uint16_t>(x >> 16 | 0x40u);
    else
      bits = static_cast<uint16_t>((x + 0x7fffu + (x >> 16 & 1u)) >> 16);
  }
  operator float() const {
    const uint32_t x = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &x, 4);
    return f;
  }
  bfloat16_t& operator+=(float v) { return *this = bfloat16_t(float(*this) + v); }
  bfloat16_t& operator-=(float v) { return *this = bfloat16_t(float(*this) - v); }
  bfloat16_t& operator*=(float v) { return *this = bfloat16_t(float(*this) * v); }
  bfloat16_t& operator/=(float v) { return *this = bfloat16_t(float(*this) / v); }
};

enum class DTypeEnum { float32, uint8, int8, int16, int32, float16, bfloat16, uint16, quint8, qint32, qint8, qint16, bool8 };

class DType {
 public:
  DType() = default;
  DType(const char* name) : DType(std::string(name)) {}
  DType(const std::string& name, float scale = 0, int32_t zero_point = 0)
      : at_(find(name)), scale_(scale), zero_point_(zero_point) {
    custom_assert(at_ >= 0, "there is no dtype '%s' for custom operators", name.c_str());
    custom_assert(quantised() == (scale > 0), "dtype '%s' %s a scale", name.c_str(), quantised() ? "needs" : "has no");
  }
  static bool is_legal(const std::string& name) { return find(name) >= 0; }
  static std::vector<std::string> legal_dtypes() {
    std::vector<std::string> names;
    for (int i = 0; i < kCount; ++i) names.push_back(row(i).name);
    return names;
  }
  std::string str() const { return row(at_).name; }
  DTypeEnum enumv() const { return static_cast<DTypeEnum>(at_); }
  size_t size() const { return row(at_).bytes; }
  bool quantised() const { return row(at_).quantised; }
  float scale() const {
    custom_assert(quantised(), "%s has no scale", str().c_str());
    return scale_;
  }
  uint8_t zero_point() const {
    custom_assert(enumv() == DTypeEnum::quint8, "%s has no zero point", str().c_str());
    return static_cast<uint8_t>(zero_point_);
  }
  /// Whether an element is a T.
  template <class T>
  bool is_compatible() const;
  bool operator==(const DType& o) const {
    return at_ == o.at_ && scale_ == o.scale_ && zero_point_ == o.zero_point_;
  }
  bool operator!=(const DType& o) const { return !(*this == o); }
  bool operator==(const std::string& name) const { return str() == name; }
  bool operator!=(const std::string& name) const { return str() != name; }
  bool operator==(const char* name) const { return str() == name; }
  bool operator!=(const char* name) const { return str() != name; }

 private:
  friend class Tensor;
  struct Row {
    const char* name;
    size_t bytes;
    bool quantised;
  };
  static constexpr int kCount = 13;
  static const Row& row(int i) {
    static const Row rows[kCount] = {{"float32", 4, false}, {"uint8", 1, false},    {"int8", 1, false},
                                     {"int16", 2, false},   {"int32", 4, false},    {"float16", 2, false},
                                     {"bfloat16", 2, false}, {"uint16", 2, false},  {"quint8", 1, true},
                                     {"qint32", 4, true},   {"qint8", 1, true},     {"qint16", 2, true},
                                     {"bool", 1, false}};
    return rows[i];
  }
  static int find(const std::string& name) {
    for (int i = 0; i < kCount; ++i)
      if (name == row(i).name) return i;
    return -1;
  }
  int at_ = 0;
  float scale_ = 0;
  int32_t zero_point_ = 0;
};

namespace detail {
template <class T>
struct Holds;  // a type that no dtype has is an error here
#define MGE_CUSTOM_HOLDS(type, ...)                       \
  template <>                                             \
  struct Holds<type> {                                    \
    static bool in(DTypeEnum e) {                         \
      for (DTypeEnum have : {__VA_ARGS__})                \
        if (have == e) return true;                       \
      return false;                                       \
    }                                                     \
    static const char* name() { return #type; }           \
  };
MGE_CUSTOM_HOLDS(float, DTypeEnum::float32)
MGE_CUSTOM_HOLDS(float16_t, DTypeEnum::float16)
MGE_CUSTOM_HOLDS(bfloat16_t, DTypeEnum::bfloat16)
MGE_CUSTOM_HOLDS(uint8_t, DTypeEnum::uint8, DTypeEnum::quint8, DTypeEnum::bool8)
MGE_CUSTOM_HOLDS(int8_t, DTypeEnum::int8, DTypeEnum::qint8)
MGE_CUSTOM_HOLDS(uint16_t, DTypeEnum::uint16)
MGE_CUSTOM_HOLDS(int16_t, DTypeEnum::int16, DTypeEnum::qint16)
MGE_CUSTOM_HOLDS(int32_t, DTypeEnum::int32, DTypeEnum::qint32)
MGE_CUSTOM_HOLDS(bool, DTypeEnum::bool8)
#undef MGE_CUSTOM_HOLDS
}  // namespace detail

template <class T>
bool DType::is_compatible() const {
  return detail::Holds<typename std::remove_cv<T>::type>::in(enumv());
}

/// Only the default layout: row-major without gaps.
class Format {
 public:
  Format() = default;
  Format(const char* name) : Format(std::string(name)) {}
  Format(const std::string& name) {
    custom_assert(name == "default", "a tensor has the default format; got '%s'", name.c_str());
  }
  bool is_default() const { return true; }
  std::string str() const { return "default"; }
  bool operator==(const Format&) const { return true; }
};

// ---- tensors

template <class T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const size_t* sizes, const ptrdiff_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  TensorAccessor<T, N - 1> operator[](size_t i) const { return {data_ + static_cast<ptrdiff_t>(i) * strides_[0], sizes_ + 1, strides_ + 1}; }
  size_t size(size_t axis = 0) const { return sizes_[axis]; }
  ptrdiff_t stride(size_t axis = 0) const { return strides_[axis]; }
  T* data() const { return data_; }

 private:
  T* data_;
  const size_t* sizes_;
  const ptrdiff_t* strides_;
};
template <class T>
class TensorAccessor<T, 1> {
 public:
  TensorAccessor(T* data, const size_t* sizes, const ptrdiff_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  T& operator[](size_t i) const { return data_[static_cast<ptrdiff_t>(i) * strides_[0]]; }
  size_t size(size_t axis = 0) const { return sizes_[axis]; }
  ptrdiff_t stride(size_t axis = 0) const { return strides_[axis]; }
  T* data() const { return data_; }

 private:
  T* data_;
  const size_t* sizes_;
  const ptrdiff_t* strides_;
};

/// Memory of the engine, valid during the call.
class Tensor {
 public:
  const Shape& shape() const { return shape_; }
  const DType& dtype() const { return dtype_; }
  Format format() const { return {}; }
  const Device& device() const { return device_; }
  /// The number of elements.
  size_t size() const { return shape_.total(); }
  size_t ndim() const { return shape_.ndim(); }
  std::vector<ptrdiff_t> stride() const { return strides_; }
  ptrdiff_t stride(size_t axis) const { return strides_.at(axis); }
  float scale() const { return dtype_.scale(); }
  uint8_t zero_point() const { return dtype_.zero_point(); }
  bool is_contiguous() const { return true; }
  bool is_empty() const { return size() == 0; }
  std::string str() const { return dtype_.str() + shape_.str(); }

  void* data() { return data_; }
  const void* data() const { return data_; }
  template <class T>
  T* data() {
    check_type<T>();
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* data() const {
    check_type<T>();
    return static_cast<const T*>(data_);
  }
  /// accessor<float, 2>()[i][j]
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() {
    check_rank(N);
    return {data<T>(), sizes_.data(), strides_.data()};
  }
  template <class T, size_t N>
  TensorAccessor<const T, N> accessor() const {
    check_rank(N);
    return {data<T>(), sizes_.data(), strides_.data()};
  }

  explicit Tensor(const MgeCustomTensor& t) : data_(t.data), device_(t.device), dtype_(t.dtype, t.scale, t.zero_point) {
    for (int32_t i = 0; i < t.ndim; ++i) sizes_.push_back(static_cast<size_t>(t.shape[i]));
    shape_ = Shape(sizes_);
    strides_.assign(sizes_.size(), 1);
    for (size_t i = sizes_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * static_cast<ptrdiff_t>(sizes_[i]);
  }

 private:
  template <class T>
  void check_type() const {
    using Plain = typename std::remove_cv<T>::type;
    custom_assert(dtype_.is_compatible<Plain>(), "a tensor of %s has no elements of type %s", dtype_.str().c_str(),
                  detail::Holds<Plain>::name());
  }
  void check_rank(size_t n) const {
    custom_assert(n == shape_.ndim(), "an accessor of %zu axes for a tensor of shape %s", n, shape_.str().c_str());
  }
  void* data_;
  Device device_;
  DType dtype_;
  Shape shape_;
  std::vector<size_t> sizes_;
  std::vector<ptrdiff_t> strides_;
};

// ---- parameters

/// A value of one of int32, int64, uint32, uint64, float, double, bool, string, Device, or a vector of these.
class ParamVal {
 public:
  ParamVal() : ParamVal(int32_t{0}) {}
#define MGE_CUSTOM_PARAM(type, code, make)                                                     \
  ParamVal(const type& v) : kind_(code) { items_.push_back(make(v)); }                         \
  ParamVal(const std::vector<type>& v) : kind_(code), list_(true) {                            \
    for (const auto& one : v) items_.push_back(make(one));                                     \
  }                                                                                            \
  ParamVal(std::initializer_list<type> v) : ParamVal(std::vector<type>(v)) {}
  MGE_CUSTOM_PARAM(int32_t, "i32", number)
  MGE_CUSTOM_PARAM(int64_t, "i64", number)
  MGE_CUSTOM_PARAM(uint32_t, "u32", number)
  MGE_CUSTOM_PARAM(uint64_t, "u64", number)
  MGE_CUSTOM_PARAM(float, "f32", number)
  MGE_CUSTOM_PARAM(double, "f64", number)
  MGE_CUSTOM_PARAM(bool, "bool", number)
  MGE_CUSTOM_PARAM(std::string, "str", text)
  MGE_CUSTOM_PARAM(Device, "dev", text_of)
#undef MGE_CUSTOM_PARAM
  ParamVal(const char* v) : ParamVal(std::string(v)) {}
  ParamVal(std::initializer_list<const char*> v) : ParamVal(std::vector<std::string>(v.begin(), v.end())) {}

  /// "f32", and "[]f32" for a vector.
  std::string kind() const { return (list_ ? "[]" : "") + std::string(kind_); }
  size_t size() const { return items_.size(); }
  std::string str() const {
    std::string out;
    for (const Item& i : items_) out += (out.empty() ? "" : ", ") + shown(i);
    return list_ ? "{" + out + "}" : out;
  }

  template <class T>
  T as() const {
    return get(static_cast<T*>(nullptr));
  }

  // Numbers compare and calculate as numbers, strings as strings; anything else is refused.
  friend bool operator==(const ParamVal& a, const ParamVal& b) { return a.compare(b) == 0; }
  friend bool operator!=(const ParamVal& a, const ParamVal& b) { return a.compare(b) != 0; }
  friend bool operator<(const ParamVal& a, const ParamVal& b) { return a.compare(b) < 0; }
  friend bool operator>(const ParamVal& a, const ParamVal& b) { return a.compare(b) > 0; }
  friend bool operator<=(const ParamVal& a, const ParamVal& b) { return a.compare(b) <= 0; }
  friend bool operator>=(const ParamVal& a, const ParamVal& b) { return a.compare(b) >= 0; }
  friend ParamVal operator+(const ParamVal& a, const ParamVal& b) {
    if (a.is_text() && b.is_text()) return ParamVal(a.items_[0].text + b.items_[0].text);
    return calculate(a, b, '+');
  }
  friend ParamVal operator-(const ParamVal& a, const ParamVal& b) { return calculate(a, b, '-'); }
  friend ParamVal operator*(const ParamVal& a, const ParamVal& b) { return calculate(a, b, '*'); }
  friend ParamVal operator/(const ParamVal& a, const ParamVal& b) { return calculate(a, b, '/'); }

  /// "f32:0.5", "[]i32:1,2"; what encoded() gives.
  static ParamVal decode(const std::string& text);
  std::string encoded() const;

 private:
  struct Item {
    double real = 0;
    int64_t whole = 0;
    uint64_t natural = 0;
    std::string text;
  };
  template <class T>
  static Item number(const T& v) {
    Item i;
    i.real = static_cast<double>(v);
    i.whole = static_cast<int64_t>(v);
    i.natural = static_cast<uint64_t>(v);
    return i;
  }
  static Item text(const std::string& v) {
    Item i;
    i.text = v;
    return i;
  }
  static Item text_of(const Device& v) { return text(v.str()); }
  bool is(const char* code) const { return std::strcmp(kind_, code) == 0; }
  bool is_text() const { return !list_ && (is("str") || is("dev")); }
  bool is_real() const { return is("f32") || is("f64"); }
  std::string shown(const Item& i) const {
    if (is("str") || is("dev")) return i.text;
    std::ostringstream s;
    s.imbue(std::locale::classic());
    s.precision(17);
    if (is_real())
      s << i.real;
    else if (is("u32") || is("u64"))
      s << i.natural;
    else
      s << i.whole;
    return s.str();
  }
  void want(const char* code, bool list) const {
    custom_assert(is(code) && list_ == list, "a parameter of type %s is asked for as %s%s", kind().c_str(),
                  list ? "[]" : "", code);
  }
#define MGE_CUSTOM_GET(type, code, expr)                        \
  type get(type*) const {                                       \
    want(code, false);                                          \
    const Item& i = items_[0];                                  \
    return expr;                                                \
  }                                                             \
  std::vector<type> get(std::vector<type>*) const {             \
    want(code, true);                                           \
    std::vector<type> out;                                      \
    for (const Item& i : items_) out.push_back(expr);           \
    return out;                                                 \
  }
  MGE_CUSTOM_GET(int32_t, "i32", static_cast<int32_t>(i.whole))
  MGE_CUSTOM_GET(int64_t, "i64", i.whole)
  MGE_CUSTOM_GET(uint32_t, "u32", static_cast<uint32_t>(i.natural))
  MGE_CUSTOM_GET(uint64_t, "u64", i.natural)
  MGE_CUSTOM_GET(float, "f32", static_cast<float>(i.real))
  MGE_CUSTOM_GET(double, "f64", i.real)
  MGE_CUSTOM_GET(bool, "bool", i.whole != 0)
  MGE_CUSTOM_GET(std::string, "str", i.text)
  MGE_CUSTOM_GET(Device, "dev", Device(i.text))
#undef MGE_CUSTOM_GET
  void one_number(const char* what) const {
    custom_assert(!list_ && !is("str") && !is("dev"), "parameters of type %s cannot be %s", kind().c_str(), what);
  }
  int compare(const ParamVal& b) const {
    if (is_text() && b.is_text()) return items_[0].text.compare(b.items_[0].text);
    one_number("compared with these");
    b.one_number("compared with these");
    const Item &x = items_[0], &y = b.items_[0];
    if (is_real() || b.is_real()) return x.real < y.real ? -1 : x.real > y.real;
    return x.whole < y.whole ? -1 : x.whole > y.whole;
  }
  static ParamVal calculate(const ParamVal& a, const ParamVal& b, char op) {
    a.one_number("calculated with");
    b.one_number("calculated with");
    if (a.is_real() || b.is_real()) {
      const double x = a.items_[0].real, y = b.items_[0].real;
      const double z = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
      if (a.is("f64") || b.is("f64")) return ParamVal(z);
      return ParamVal(static_cast<float>(z));
    }
    const int64_t x = a.items_[0].whole, y = b.items_[0].whole;
    custom_assert(op != '/' || y != 0, "a parameter is divided by 0");
    const int64_t z = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
    if (a.is("i64") || b.is("i64") || a.is("u64") || b.is("u64")) return ParamVal(z);
    return ParamVal(static_cast<int32_t>(z));
  }
  const char* kind_ = "i32";
  bool list_ = false;
  std::vector<Item> items_;
};

namespace detail {
inline std::string encode(const std::string& text) {
  std::string out;
  for (unsigned char c : text) {
    if (c > 32 && c < 127 && !std::strchr("%;=:,", c)) {
      out += static_cast<char>(c);
    } else {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02X", c);
      out += hex;
    }
  }
  return out;
}
inline std::string decode(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}
inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  if (text.empty()) return out;
  size_t from = 0;
  for (size_t to; (to = text.find(at, from)) != std::string::npos; from = to + 1) out.push_back(text.substr(from, to - from));
  out.push_back(text.substr(from));
  return out;
}
template <class T>
T read(const std::string& text) {
  std::istringstream s(text);
  s.imbue(std::locale::classic());
  T v{};
  custom_assert(static_cast<bool>(s >> v) || text == "inf" || text == "-inf" || text == "nan", "'%s' is not a number",
                text.c_str());
  return v;
}
template <>
inline double read<double>(const std::string& text) {
  if (text == "inf") return HUGE_VAL;
  if (text == "-inf") return -HUGE_VAL;
  if (text == "nan") return std::strtod("nan", nullptr);
  std::istringstream s(text);
  s.imbue(std::locale::classic());
  double v = 0;
  custom_assert(static_cast<bool>(s >> v), "'%s' is not a number", text.c_str());
  return v;
}
}  // namespace detail

inline std::string ParamVal::encoded() const {
  std::string out = kind() + ":";
  for (size_t i = 0; i < items_.size(); ++i) out += (i ? "," : "") + detail::encode(shown(items_[i]));
  return out;
}

inline ParamVal ParamVal::decode(const std::string& text) {
  const size_t colon = text.find(':');
  custom_assert(colon != std::string::npos, "'%s' is no parameter", text.c_str());
  std::string kind = text.substr(0, colon);
  ParamVal v;
  v.items_.clear();
  v.list_ = kind.compare(0, 2, "[]") == 0;
  if (v.list_) kind = kind.substr(2);
  static const char* const kinds[] = {"i32", "i64", "u32", "u64", "f32", "f64", "bool", "str", "dev"};
  v.kind_ = nullptr;
  for (const char* k : kinds)
    if (kind == k) v.kind_ = k;
  custom_assert(v.kind_, "there is no parameter type '%s'", kind.c_str());
  for (const std::string& one : detail::split(text.substr(colon + 1), ',')) {
    const std::string plain = detail::decode(one);
    if (v.is("str") || v.is("dev"))
      v.items_.push_back(ParamVal::text(plain));
    else if (v.is_real())
      v.items_.push_back(number(detail::read<double>(plain)));
    else if (v.is("u64"))
      v.items_.push_back(number(detail::read<uint64_t>(plain)));
    else
      v.items_.push_back(number(detail::read<int64_t>(plain)));
  }
  if (!v.list_ && v.items_.empty()) v.items_.push_back(Item());  // the empty string
  return v;
}

class Param {
 public:
  const ParamVal& operator[](const std::string& name) const {
    const auto found = values_.find(name);
    custom_assert(found != values_.end(), "there is no parameter '%s'", name.c_str());
    return found->second;
  }
  ParamVal& operator[](const std::string& name) { return values_[name]; }
  bool exist(const std::string& name) const { return values_.count(name) != 0; }
  const std::map<std::string, ParamVal>& raw() const { return values_; }

 private:
  std::map<std::string, ParamVal> values_;
};

/// Where a computation runs.
class RuntimeArgs {
 public:
  explicit RuntimeArgs(const Device& device) : device_(device) {}
  const Device& device() const { return device_; }

 private:
  Device device_;
};

// ---- operators

class ParamSchema {
 public:
  std::string name, desc;
  ParamVal default_val;
};
class ArgInfo {
 public:
  const std::string& name() const { return name_; }
  const std::string& desc() const { return desc_; }
  const std::vector<std::string>& dtypes() const { return dtypes_; }
  int ndim() const { return ndim_; }
  const std::string& mem_strategy() const { return strategy_; }
  std::string name_, desc_;
  std::vector<std::string> dtypes_;
  int ndim_ = -1;
  std::string strategy_ = "default";
};

class CustomOp {
 public:
  template <class T>
  using Infer = void (*)(const std::vector<T>&, const Param&, std::vector<T>&);
  using Compute = void (*)(const std::vector<Tensor>&, const Param&, std::vector<Tensor>&);
  using ComputeWithArgs = void (*)(const std::vector<Tensor>&, const Param&, std::vector<Tensor>&, const RuntimeArgs&);
  using Run = std::function<void(const std::vector<Tensor>&, const Param&, std::vector<Tensor>&, const RuntimeArgs&)>;
  using Dtypes = std::initializer_list<const char*>;

  CustomOp(const std::string& type, uint32_t version) : type_(type), version_(version) {}

  CustomOp& set_description(const std::string& text) { return desc_ = text, *this; }
  CustomOp& add_input(const std::string& name, const std::string& desc, Dtypes dtypes = {"float32"}, int dims = -1,
                      const std::string& mem_stgy = "default") {
    return add_arg(inputs_, name, desc, dtypes, dims, mem_stgy);
  }
  CustomOp& add_input(const std::string& name, Dtypes dtypes = {"float32"}, int dims = -1,
                      const std::string& mem_stgy = "default") {
    return add_arg(inputs_, name, name, dtypes, dims, mem_stgy);
  }
  CustomOp& add_output(const std::string& name, const std::string& desc, Dtypes dtypes = {"float32"}, int dims = -1,
                       const std::string& mem_stgy = "default") {
    return add_arg(outputs_, name, desc, dtypes, dims, mem_stgy);
  }
  CustomOp& add_output(const std::string& name, Dtypes dtypes = {"float32"}, int dims = -1,
                       const std::string& mem_stgy = "default") {
    return add_arg(outputs_, name, name, dtypes, dims, mem_stgy);
  }
  CustomOp& add_inputs(size_t n) {
    for (size_t i = 0; i < n; ++i) add_input(type_ + "_Input_" + std::to_string(inputs_.size()));
    return *this;
  }
  CustomOp& add_outputs(size_t n) {
    for (size_t i = 0; i < n; ++i) add_output(type_ + "_Output_" + std::to_string(outputs_.size()));
    return *this;
  }
  CustomOp& add_param(const std::string& name, const std::string& desc, const ParamVal& value) {
    for (const auto& p : params_)
      if (p.name == name) fault("two parameters are named '" + name + "'");
    ParamSchema p;
    p.name = name, p.desc = desc, p.default_val = value;
    params_.push_back(p);
    return *this;
  }
  CustomOp& add_param(const std::string& name, const ParamVal& value) { return add_param(name, name, value); }

  CustomOp& set_device_infer(Infer<Device> f) { return device_infer_ = f, *this; }
  CustomOp& set_shape_infer(Infer<Shape> f) { return shape_infer_ = f, *this; }
  CustomOp& set_dtype_infer(Infer<DType> f) { return dtype_infer_ = f, *this; }
  CustomOp& set_format_infer(Infer<Format> f) { return format_infer_ = f, *this; }
#define MGE_CUSTOM_SET(what)                                                                                       \
  CustomOp& set_##what(const std::string& device, Compute f) { return set(what##_, device, plain(f)); }            \
  CustomOp& set_##what(const std::string& device, ComputeWithArgs f) { return set(what##_, device, Run(f)); }      \
  CustomOp& set_##what(Compute f) { return set(what##_, "x86", plain(f)); }                                        \
  CustomOp& set_##what(ComputeWithArgs f) { return set(what##_, "x86", Run(f)); }
  MGE_CUSTOM_SET(preprocess)
  MGE_CUSTOM_SET(compute)
  MGE_CUSTOM_SET(postprocess)
#undef MGE_CUSTOM_SET

  const std::string& op_type() const { return type_; }
  const std::string& op_desc() const { return desc_; }
  uint32_t version() const { return version_; }
  size_t input_num() const { return inputs_.size(); }
  size_t output_num() const { return outputs_.size(); }
  const std::vector<ParamSchema>& param_info() const { return params_; }
  const std::vector<ArgInfo>& inputs_info() const { return inputs_; }
  const std::vector<ArgInfo>& outputs_info() const { return outputs_; }
  std::string str() const {
    std::string text = type_ + "(";
    for (size_t i = 0; i < inputs_.size(); ++i) text += (i ? ", " : "") + inputs_[i].name();
    for (const auto& p : params_) text += "; " + p.name + "=" + p.default_val.str();
    text += ") -> ";
    for (size_t i = 0; i < outputs_.size(); ++i) text += (i ? ", " : "") + outputs_[i].name();
    return text;
  }

  // ---- the library's side of abi.h

  const std::string& fault() const { return fault_; }
  std::string description() const {
    using detail::encode;
    std::string text = "op\t" + encode(type_) + "\t" + encode(desc_) + "\ninfer\t" +
                       (device_infer_ ? "device," : "") + (shape_infer_ ? "shape," : "") +
                       (dtype_infer_ ? "dtype," : "") + (format_infer_ ? "format" : "") + "\ncompute\t";
    for (const auto& c : compute_) text += c.first + ",";
    auto args = [&](const char* kind, const std::vector<ArgInfo>& list) {
      for (const auto& a : list) {
        text += std::string("\n") + kind + "\t" + encode(a.name()) + "\t" + encode(a.desc()) + "\t";
        for (const auto& d : a.dtypes()) text += d + ",";
        text += "\t" + std::to_string(a.ndim());
      }
    };
    args("in", inputs_);
    args("out", outputs_);
    for (const auto& p : params_)
      text += "\nparam\t" + encode(p.name) + "\t" + encode(p.desc) + "\t" + p.default_val.encoded();
    return text;
  }
  Param params(const std::string& text) const {
    Param out;
    for (const auto& p : params_) out[p.name] = p.default_val;
    for (const std::string& one : detail::split(text, ';')) {
      const size_t eq = one.find('=');
      custom_assert(eq != std::string::npos, "'%s' is no parameter", one.c_str());
      const std::string name = detail::decode(one.substr(0, eq));
      custom_assert(out.exist(name), "there is no parameter '%s'", name.c_str());
      const ParamVal v = ParamVal::decode(one.substr(eq + 1));
      custom_assert(v.kind() == out[name].kind(), "parameter '%s' is a %s; got a %s", name.c_str(),
                    out[name].kind().c_str(), v.kind().c_str());
      out[name] = v;
    }
    return out;
  }
  void infer(const Param& p, const MgeCustomTensor* in, size_t n_in, MgeCustomTensor* out, size_t n_out) const {
    custom_assert(n_in == inputs_.size(), "needs %zu inputs; got %zu", inputs_.size(), n_in);
    custom_assert(n_out == outputs_.size(), "gives %zu results; asked for %zu", outputs_.size(), n_out);
    std::vector<Device> devices;
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    for (size_t i = 0; i < n_in; ++i) {
      const Tensor t(in[i]);
      check_arg("input", inputs_[i], t.dtype(), t.shape());
      devices.push_back(t.device()), shapes.push_back(t.shape()), dtypes.push_back(t.dtype());
    }
    const auto device = inferred(device_infer_, devices, p, n_out, Device("x86"));
    const auto shape = inferred(shape_infer_, shapes, p, n_out, Shape({1}));
    const auto dtype = inferred(dtype_infer_, dtypes, p, n_out, DType("float32"));
    inferred(format_infer_, std::vector<Format>(n_in), p, n_out, Format());
    for (size_t i = 0; i < n_out; ++i) {
      check_arg("result", outputs_[i], dtype[i], shape[i]);
      MgeCustomTensor& t = out[i];
      std::memset(&t, 0, sizeof t);
      std::snprintf(t.dtype, sizeof t.dtype, "%s", dtype[i].str().c_str());
      std::snprintf(t.device, sizeof t.device, "%s", device[i].str().c_str());
      t.ndim = static_cast<int32_t>(shape[i].ndim());
      for (size_t k = 0; k < shape[i].ndim(); ++k) t.shape[k] = static_cast<int64_t>(shape[i][k]);
      if (dtype[i].quantised()) t.scale = dtype[i].scale();
      if (dtype[i].enumv() == DTypeEnum::quint8) t.zero_point = dtype[i].zero_point();
    }
  }
  void run(const Param& p, const MgeCustomTensor* in, size_t n_in, MgeCustomTensor* out, size_t n_out) const {
    std::vector<Tensor> inputs, outputs;
    for (size_t i = 0; i < n_in; ++i) inputs.push_back(Tensor(in[i]));
    for (size_t i = 0; i < n_out; ++i) outputs.push_back(Tensor(out[i]));
    const Device device = !inputs.empty() ? inputs[0].device() : !outputs.empty() ? outputs[0].device() : Device("x86");
    const auto found = compute_.find(device.str());
    custom_assert(found != compute_.end(), "there is no computation for device %s; set_compute gives one",
                  device.str().c_str());
    const RuntimeArgs args(device);
    const auto before = preprocess_.find(device.str()), after = postprocess_.find(device.str());
    if (before != preprocess_.end()) before->second(inputs, p, outputs, args);
    found->second(inputs, p, outputs, args);
    if (after != postprocess_.end()) after->second(outputs, p, outputs, args);
  }

 private:
  using Runs = std::map<std::string, Run>;
  static Run plain(Compute f) {
    return [f](const std::vector<Tensor>& in, const Param& p, std::vector<Tensor>& out, const RuntimeArgs&) { f(in, p, out); };
  }
  CustomOp& set(Runs& runs, const std::string& device, Run f) {
    if (!Device::is_legal(device)) fault("a device is x86 or cuda; got '" + device + "'");
    runs[device] = std::move(f);
    return *this;
  }
  void fault(const std::string& text) {
    if (fault_.empty()) fault_ = text;
  }
  // Nothing is thrown here: this runs while the library is loaded, where nobody could catch it.
  CustomOp& add_arg(std::vector<ArgInfo>& list, const std::string& name, const std::string& desc, Dtypes dtypes,
                    int dims, const std::string& strategy) {
    for (const auto& a : list)
      if (a.name() == name) fault("two inputs or two outputs are named '" + name + "'");
    ArgInfo a;
    a.name_ = name, a.desc_ = desc, a.ndim_ = dims, a.strategy_ = strategy;
    for (const char* d : dtypes) {
      a.dtypes_.push_back(d);
      if (!DType::is_legal(d)) fault("'" + name + "' has the dtype '" + d + "', which does not exist");
    }
    if (a.dtypes_.empty()) fault("'" + name + "' has no dtypes");
    if (dims < -1 || dims > MGE_CUSTOM_MAX_NDIM) fault("'" + name + "' has " + std::to_string(dims) + " dimensions");
    if (strategy != "default") fault("'" + name + "' has the memory strategy '" + strategy + "'; there is only default");
    list.push_back(a);
    return *this;
  }
  static void check_arg(const char* what, const ArgInfo& a, const DType& dtype, const Shape& shape) {
    bool legal = false;
    std::string names;
    for (const auto& d : a.dtypes()) {
      legal = legal || d == dtype.str();
      names += (names.empty() ? "" : " or ") + d;
    }
    custom_assert(legal, "%s '%s' must be %s; got %s", what, a.name().c_str(), names.c_str(), dtype.str().c_str());
    custom_assert(a.ndim() < 0 || static_cast<size_t>(a.ndim()) == shape.ndim(),
                  "%s '%s' must have %d dimensions; got the shape %s", what, a.name().c_str(), a.ndim(),
                  shape.str().c_str());
  }
  template <class T>
  static std::vector<T> inferred(Infer<T> f, const std::vector<T>& in, const Param& p, size_t n, const T& without) {
    std::vector<T> out(n, in.empty() ? without : in[0]);
    if (!f) return out;
    f(in, p, out);
    custom_assert(out.size() == n, "inference gave %zu results instead of %zu", out.size(), n);
    return out;
  }

  std::string type_, desc_, fault_;
  uint32_t version_;
  std::vector<ArgInfo> inputs_, outputs_;
  std::vector<ParamSchema> params_;
  Infer<Device> device_infer_ = nullptr;
  Infer<Shape> shape_infer_ = nullptr;
  Infer<DType> dtype_infer_ = nullptr;
  Infer<Format> format_infer_ = nullptr;
  Runs preprocess_, compute_, postprocess_;
};

class CustomOpManager {
 public:
  static CustomOpManager* inst() {
    static CustomOpManager manager;
    return &manager;
  }
  CustomOp& insert(const std::string& type, uint32_t version) {
    ops_.push_back(std::unique_ptr<CustomOp>(new CustomOp(type, version)));
    return *ops_.back();
  }
  size_t size() const { return ops_.size(); }
  const CustomOp& at(size_t i) const { return *ops_.at(i); }

 private:
  std::vector<std::unique_ptr<CustomOp>> ops_;
};

namespace detail {
inline const char* kept(int32_t op, int which) {
  static std::map<std::pair<int32_t, int>, std::string> texts;  // asked for while one thread loads the library
  std::string& text = texts[std::make_pair(op, which)];
  const CustomOp& o = CustomOpManager::inst()->at(static_cast<size_t>(op));
  text = which == 0 ? o.op_type() : which == 1 ? o.description() : o.fault();
  return text.c_str();
}
inline const char* name_of(int32_t op) { return kept(op, 0); }
inline const char* description_of(int32_t op) { return kept(op, 1); }
inline const char* fault_of(int32_t op) { return kept(op, 2); }

template <class F>
int32_t guarded(char* error, size_t bytes, F f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(error, bytes, "%s", e.what());
  } catch (...) {
    std::snprintf(error, bytes, "an exception that is no std::exception was thrown");
  }
  return 1;
}
inline int32_t infer(int32_t op, const char* params, const MgeCustomTensor* in, int32_t n_in, MgeCustomTensor* out,
                     int32_t n_out, char* error, size_t bytes) {
  return guarded(error, bytes, [&] {
    const CustomOp& o = CustomOpManager::inst()->at(static_cast<size_t>(op));
    o.infer(o.params(params), in, static_cast<size_t>(n_in), out, static_cast<size_t>(n_out));
  });
}
inline int32_t compute(int32_t op, const char* params, const MgeCustomTensor* in, int32_t n_in, MgeCustomTensor* out,
                       int32_t n_out, char* error, size_t bytes) {
  return guarded(error, bytes, [&] {
    const CustomOp& o = CustomOpManager::inst()->at(static_cast<size_t>(op));
    o.run(o.params(params), in, static_cast<size_t>(n_in), out, static_cast<size_t>(n_out));
  });
}
}  // namespace detail
}  // namespace custom
#pragma GCC visibility pop

/// The one symbol of the library that the engine looks for.
extern "C" __attribute__((weak, used, visibility("default"))) const MgeCustomLibrary* mge_custom_library_v1() {
  static MgeCustomLibrary table;
  table.abi = MGE_CUSTOM_ABI;
  table.op_version = CUSTOM_OP_VERSION;
  table.n_ops = static_cast<int32_t>(custom::CustomOpManager::inst()->size());
  table.name = custom::detail::name_of;
  table.describe = custom::detail::description_of;
  table.fault = custom::detail::fault_of;
  table.infer = custom::detail::infer;
  table.compute = custom::detail::compute;
  return &table;
}

// ---- registration and dispatch on dtypes

#define CUSTOM_OP_REG_BEGIN(Name) \
  namespace custom {              \
  namespace Name {
#define CUSTOM_OP_REG_END(Name) \
  }                             \
  }
#define CUSTOM_OP_REG(OpName)                                                     \
  static ::custom::CustomOp& custom_op_##OpName##_ __attribute__((unused)) = \
      ::custom::CustomOpManager::inst()->insert(#OpName, CUSTOM_OP_VERSION)

#define MGE_CUSTOM_CASE(name, type, ...)          \
  case ::custom::DTypeEnum::name: {               \
    using scalar_t = type;                        \
    return __VA_ARGS__();                         \
  }
#define MGE_CUSTOM_SWITCH(dtype_, what, cases)                                                              \
  [&]() {                                                                                                   \
    const ::custom::DType custom_dtype_(dtype_);                                                            \
    switch (custom_dtype_.enumv()) {                                                                        \
      cases default : ::custom::fail_at(__FILE__, __LINE__,                                                 \
                                        std::string(what) + " is not implemented for " + custom_dtype_.str()); \
    }                                                                                                       \
  }()
#define MGE_CUSTOM_FLOATS(...)                                      \
  MGE_CUSTOM_CASE(float32, float, __VA_ARGS__)                      \
  MGE_CUSTOM_CASE(float16, ::custom::float16_t, __VA_ARGS__)        \
  MGE_CUSTOM_CASE(bfloat16, ::custom::bfloat16_t, __VA_ARGS__)
#define MGE_CUSTOM_SIGNED(...)                   \
  MGE_CUSTOM_CASE(int8, int8_t, __VA_ARGS__)     \
  MGE_CUSTOM_CASE(int16, int16_t, __VA_ARGS__)   \
  MGE_CUSTOM_CASE(int32, int32_t, __VA_ARGS__)
#define MGE_CUSTOM_INTS(...)                     \
  MGE_CUSTOM_SIGNED(__VA_ARGS__)                 \
  MGE_CUSTOM_CASE(uint8, uint8_t, __VA_ARGS__)   \
  MGE_CUSTOM_CASE(uint16, uint16_t, __VA_ARGS__)
/// DISPATCH_FLOAT_TYPES(x.dtype(), "relu", [&]() { relu<scalar_t>(x, y); });
#define DISPATCH_FLOAT_TYPES(dtype, what, ...) MGE_CUSTOM_SWITCH(dtype, what, MGE_CUSTOM_FLOATS(__VA_ARGS__))
#define DISPATCH_INT_TYPES(dtype, what, ...) MGE_CUSTOM_SWITCH(dtype, what, MGE_CUSTOM_INTS(__VA_ARGS__))
#define DISPATCH_SIGN_INT_TYPES(dtype, what, ...) MGE_CUSTOM_SWITCH(dtype, what, MGE_CUSTOM_SIGNED(__VA_ARGS__))
#define DISPATCH_INT_AND_FLOAT_TYPES(dtype, what, ...) \
  MGE_CUSTOM_SWITCH(dtype, what, MGE_CUSTOM_INTS(__VA_ARGS__) MGE_CUSTOM_FLOATS(__VA_ARGS__))
#define DISPATCH_SIGN_INT_AND_FLOAT_TYPES(dtype, what, ...) \
  MGE_CUSTOM_SWITCH(dtype, what, MGE_CUSTOM_SIGNED(__VA_ARGS__) MGE_CUSTOM_FLOATS(__VA_ARGS__))
