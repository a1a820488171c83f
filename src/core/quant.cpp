#include "core/quant.h"

#include <charconv>
#include <cmath>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/error.h"

namespace mge {
namespace {

struct Table {
  std::mutex mutex;
  std::deque<QuantChannels> lists;  // stay where they are
  std::unordered_multimap<uint64_t, uint32_t> by_hash;
};
Table& table() {
  static Table* t = new Table;
  return *t;
}

uint64_t hash_channels(const QuantChannels& c) {
  uint64_t h = hash_mix(static_cast<uint64_t>(c.axis), static_cast<uint64_t>(c.span));
  for (float s : c.scale) h = hash_mix(h, hash_double(s));
  for (int32_t z : c.zero_point) h = hash_mix(h, static_cast<uint64_t>(z));
  return h;
}

template <class T>
std::string number(T d) {
  char buf[40];
  auto r = std::to_chars(buf, buf + sizeof buf, d);
  std::string s(buf, r.ptr);
  if (s.find_first_of(".eEn") == std::string::npos) s += ".0";
  return s;
}

struct Reader {
  std::string_view t;
  bool ok = true;
  void space() {
    while (!t.empty() && t.front() == ' ') t.remove_prefix(1);
  }
  bool take(char c) {
    space();
    if (t.empty() || t.front() != c) return false;
    t.remove_prefix(1);
    return true;
  }
  void need(char c) { ok = ok && take(c); }
  template <class T>
  T value() {
    space();
    T v{};
    auto r = std::from_chars(t.data(), t.data() + t.size(), v);
    ok = ok && r.ec == std::errc();
    if (ok) t.remove_prefix(static_cast<size_t>(r.ptr - t.data()));
    return v;
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> out;
    need('[');
    while (ok && !take(']')) {
      if (!out.empty()) need(',');
      if (ok) out.push_back(value<T>());
    }
    return out;
  }
};

}  // namespace

const QuantChannels& Quant::channels() const {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return t.lists[list - 1];
}

uint64_t Quant::hash(uint64_t h) const {
  return hash_mix(hash_mix(h, hash_double(scale)),
                  static_cast<uint64_t>(static_cast<uint32_t>(zero_point)) << 32 | list);
}

Quant Quant::per_channel(std::vector<float> scale, std::vector<int32_t> zero_point, int axis, int span) {
  if (zero_point.empty()) zero_point.resize(scale.size());
  MGE_CHECK(!scale.empty() && scale.size() == zero_point.size(), Value,
            "quantised dtype: as many zero points as scales are needed; got {} and {}.", zero_point.size(),
            scale.size());
  MGE_CHECK(axis >= 0 && span >= 1 && axis + span <= kMaxRank, Value,
            "quantised dtype: channels need an axis from 0 to {}; got axis {} and {} of them.", kMaxRank - 1, axis,
            span);
  for (float s : scale)
    MGE_CHECK(s > 0 && std::isfinite(s), Value, "quantised dtype: a scale must be above 0; got {}.", s);
  QuantChannels c{axis, span, std::move(scale), std::move(zero_point)};
  const uint64_t h = hash_channels(c);
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto [at, end] = t.by_hash.equal_range(h);
  while (at != end && !(t.lists[at->second - 1] == c)) ++at;
  uint32_t list = at != end ? at->second : 0;
  if (!list) {
    t.lists.push_back(std::move(c));
    list = static_cast<uint32_t>(t.lists.size());
    t.by_hash.emplace(h, list);
  }
  const QuantChannels& kept = t.lists[list - 1];
  return {kept.scale[0], kept.zero_point[0], list};
}

std::string print_quant(const Quant& q) {
  if (q.per_tensor()) return "(" + number(q.scale) + "," + std::to_string(q.zero_point) + ")";
  const QuantChannels& c = q.channels();
  std::string scales, zeros;
  for (float s : c.scale) scales += (scales.empty() ? "" : ",") + number(s);
  for (int32_t z : c.zero_point) zeros += (zeros.empty() ? "" : ",") + std::to_string(z);
  return "([" + scales + "],[" + zeros + "]," + std::to_string(c.axis) + "," + std::to_string(c.span) + ")";
}

bool parse_quant(std::string_view& text, Quant* out) {
  Reader r{text};
  r.need('(');
  r.space();
  if (r.ok && !r.t.empty() && r.t.front() == '[') {
    std::vector<float> scale = r.list<float>();
    r.need(',');
    std::vector<int32_t> zero = r.list<int32_t>();
    r.need(',');
    const int axis = r.value<int>();
    r.need(',');
    const int span = r.value<int>();
    r.need(')');
    if (!r.ok || scale.size() != zero.size()) return false;
    *out = Quant::per_channel(std::move(scale), std::move(zero), axis, span);
  } else {
    out->scale = r.value<double>();
    r.need(',');
    out->zero_point = r.value<int32_t>();
    r.need(')');
    out->list = 0;
  }
  if (r.ok) text = r.t;
  return r.ok;
}

std::string print_qtype(const QType& t) {
  std::string s(dtype_name(t.dtype));
  return t.quant.scale != 0 ? s + print_quant(t.quant) : s;
}

QType parse_qtype(std::string_view who, std::string_view text) {
  QType t;
  const size_t open = text.find('(');
  t.dtype = parse_dtype(text.substr(0, open));
  if (open == std::string_view::npos) return t;
  std::string_view rest = text.substr(open);
  MGE_CHECK(parse_quant(rest, &t.quant) && rest.empty(), Value, "{}: '{}' is no dtype with its scale, qint8(0.1,0).",
            who, text);
  return t;
}

Quant reshaped(const Quant& q, const Shape& from, const Shape& to) {
  if (q.per_tensor() || from == to) return q;
  const QuantChannels& c = q.channels();
  const auto count = static_cast<int64_t>(c.scale.size());
  int64_t inner = 1;
  for (int i = c.axis + c.span; i < from.rank; ++i) inner *= from[i];
  // The axes of `to` whose index is the channel: behind them `inner` elements, in them `count`.
  int64_t behind = 1;
  int end = to.rank;
  while (end > 0 && behind < inner) behind *= to[--end];
  if (behind == inner) {
    int64_t in = 1;
    int axis = end;
    while (axis > 0 && in < count) in *= to[--axis];
    if (in == count && axis < end) return Quant::per_channel(c.scale, c.zero_point, axis, end - axis);
    if (count == 1 && end > 0 && to[end - 1] == 1) return Quant::per_channel(c.scale, c.zero_point, end - 1, 1);
  }
  fail(ErrorKind::Value,
       "reshape: {} into {} parts the channels of a tensor quantised per channel (axis {}); dequantise it first with "
       "astype(\"float32\").",
       from.str(), to.str(), c.axis);
}

Quant transposed(const Quant& q, const int64_t* perm, int rank) {
  if (q.per_tensor()) return q;
  const QuantChannels& c = q.channels();
  for (int i = 0; i + c.span <= rank; ++i) {
    bool here = true;
    for (int k = 0; k < c.span; ++k) here = here && perm[i + k] == c.axis + k;
    if (here) return Quant::per_channel(c.scale, c.zero_point, i, c.span);
  }
  fail(
      ErrorKind::Value,
      "transpose: the {} channel axes from axis {} on of a tensor quantised per channel must stay together; dequantise "
      "it first with astype(\"float32\").",
      c.span, c.axis);
}

QuantRange quant_range(DType t) {
  switch (t) {
    case DType::QU8:
      return {0, 255};
    case DType::QI8:
      return {-128, 127};
    case DType::QI16:
      return {-32768, 32767};
    case DType::QI32:
      return {-2147483648ll, 2147483647ll};
    case DType::QU4:
      return {0, 15};
    case DType::QI4:
      return {-8, 7};
    default:
      return {0, 1};
  }
}

void unpack4(DType t, const void* packed, void* wide, int64_t n) {
  const auto* p = static_cast<const uint8_t*>(packed);
  auto* w = static_cast<uint8_t*>(wide);
  const bool sign = t == DType::QI4;
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t v = i & 1 ? p[i / 2] >> 4 : p[i / 2] & 15;
    w[i] = sign && (v & 8) ? v | 0xf0 : v;
  }
}

void pack4(const void* wide, void* packed, int64_t n) {
  const auto* w = static_cast<const uint8_t*>(wide);
  auto* p = static_cast<uint8_t*>(packed);
  for (int64_t i = 0; i < n; i += 2)
    p[i / 2] = static_cast<uint8_t>((w[i] & 15) | (i + 1 < n ? (w[i + 1] & 15) << 4 : 0));
}

}  // namespace mge
