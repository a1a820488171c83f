#include "lite/run/input_data.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include "base/error.h"
#include "lite/convert.h"
#include "lite/run/json.h"
#include "serial/file.h"

namespace lite {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 34;

std::string_view text_of(const mge::serial::File& f) {
  return {reinterpret_cast<const char*>(f.bytes.data()), f.bytes.size()};
}

std::string names(const std::vector<IO>& model) {
  std::string s;
  for (const IO& io : model) s += (s.empty() ? "" : ", ") + io.name;
  return s.empty() ? "none" : s;
}

void set_bytes(InputData* d, const void* data, size_t have, const std::string& who) {
  check_layout(d->layout);
  size_t need = layout_bytes(d->layout);
  MGE_CHECK(have >= need, Value, "{}: {} needs {} bytes of data; the file has {}.", who, layout_text(d->layout), need,
            have);
  auto* p = static_cast<const unsigned char*>(data);
  d->bytes.assign(p, p + need);
}

void push_dim(Layout* l, size_t d, const std::string& who) {
  MGE_CHECK(l->ndim < Layout::MAXDIM, Value, "{}: more than {} dimensions.", who, Layout::MAXDIM);
  l->shapes[l->ndim++] = d;
}

template <class T>
void put(std::vector<unsigned char>* out, double v) {
  if constexpr (std::is_integral_v<T>) {
    bool fits = v > static_cast<double>(std::numeric_limits<T>::min()) - 1 &&
                v < static_cast<double>(std::numeric_limits<T>::max()) + 1;
    MGE_CHECK(fits, Value, "input: {} does not fit the input's type.", v);
  }
  T t = static_cast<T>(v);
  auto* p = reinterpret_cast<unsigned char*>(&t);
  out->insert(out->end(), p, p + sizeof t);
}

uint16_t to_half(double d) {
  auto f = static_cast<float>(d);
  uint32_t u;
  std::memcpy(&u, &f, 4);
  uint32_t sign = u >> 16 & 0x8000;
  double a = std::fabs(d);
  if (std::isnan(d)) return static_cast<uint16_t>(sign | 0x7e00);
  if (a >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  if (a < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(a * 0x1p24)));
  int e;
  double m = std::frexp(a, &e);                                     // a = m * 2^e, 0.5 <= m < 1
  auto fraction = static_cast<uint32_t>(std::nearbyint(m * 2048));  // 1024..2048; a carry moves into the exponent
  return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(e + 14) << 10) + fraction - 1024));
}

void append(std::vector<unsigned char>* out, LiteDataType t, double v) {
  switch (t) {
    case LITE_FLOAT:
      return put<float>(out, v);
    case LITE_FLOAT64:
      return put<double>(out, v);
    case LITE_INT:
      return put<int32_t>(out, v);
    case LITE_INT16:
      return put<int16_t>(out, v);
    case LITE_INT8:
      return put<int8_t>(out, v);
    case LITE_UINT8:
      return put<uint8_t>(out, v);
    case LITE_UINT:
      return put<uint32_t>(out, v);
    case LITE_UINT16:
      return put<uint16_t>(out, v);
    case LITE_INT64:
      return put<int64_t>(out, v);
    case LITE_BOOL:
      return put<uint8_t>(out, v != 0);
    case LITE_HALF:
      return put<uint16_t>(out, to_half(v));
    default:
      mge::fail(mge::ErrorKind::Type, "input: numbers cannot be written as {}. Use an .npy file.", dtype_text(t));
  }
}

LiteDataType dtype_named(const std::string& s, const std::string& who) {
  static const std::pair<const char*, LiteDataType> kNames[] = {
      {"float32", LITE_FLOAT}, {"float", LITE_FLOAT}, {"int32", LITE_INT},       {"int", LITE_INT},
      {"int8", LITE_INT8},     {"uint8", LITE_UINT8}, {"int16", LITE_INT16},     {"uint16", LITE_UINT16},
      {"float16", LITE_HALF},  {"int64", LITE_INT64}, {"float64", LITE_FLOAT64}, {"bool", LITE_BOOL}};
  for (auto& [name, t] : kNames)
    if (s == name) return t;
  mge::fail(mge::ErrorKind::Value,
            "{}: '{}' is no type; use float32, int32, int8, uint8, int16, uint16, float16, int64, float64 or bool.",
            who, s);
}

// ---- {1,3,224,224}: a shape; the data is 0x01 in every byte
InputData parse_shape(const std::string& text, LiteDataType type) {
  InputData d;
  d.layout.data_type = type;
  std::string_view body(text.data() + 1, text.size() - 2);
  while (!body.empty()) {
    size_t comma = std::min(body.find(','), body.size());
    size_t v = 0;
    auto r = std::from_chars(body.data(), body.data() + comma, v);
    MGE_CHECK(r.ec == std::errc() && r.ptr == body.data() + comma, Value,
              "input: '{}' is no shape; write {{1,3,224,224}}.", text);
    push_dim(&d.layout, v, "input");
    body.remove_prefix(std::min(comma + 1, body.size()));
  }
  if (d.layout.ndim == 0) push_dim(&d.layout, 1, "input");
  check_layout(d.layout);
  MGE_CHECK(layout_bytes(d.layout) <= kMaxBytes, Value, "input: {} is too large.", layout_text(d.layout));
  d.bytes.assign(layout_bytes(d.layout), 1);
  return d;
}

// ---- [[1,2],[3,4]]: the shape comes from the nesting
class ListParser {
 public:
  ListParser(const std::string& text, LiteDataType type) : text_(text) { out_.layout.data_type = type; }
  InputData parse() {
    value(0);
    if (at_ != text_.size()) fail("something follows the list");
    for (size_t d : shape_) push_dim(&out_.layout, d, "input");
    if (shape_.empty()) push_dim(&out_.layout, 1, "input");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const char* why) {
    mge::fail(mge::ErrorKind::Value, "input: '{}' is neither a file nor a list of numbers: {} at character {}.",
              text_.size() > 60 ? text_.substr(0, 60) + "..." : text_, why, at_ + 1);
  }
  bool take(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void value(size_t depth) {
    if (depth > Layout::MAXDIM) fail("nested too deeply");
    if (!take('[')) return number(depth);
    if (deepest_ && depth >= *deepest_) fail("lists and numbers are mixed");
    size_t n = 0;
    if (!take(']')) {
      do {
        value(depth + 1);
        ++n;
      } while (take(','));
      if (!take(']')) fail("expected , or ]");
    }
    if (shape_.size() <= depth) shape_.resize(depth + 1, kUnset);
    if (shape_[depth] != kUnset && shape_[depth] != n) fail("rows differ in length");
    shape_[depth] = n;
  }
  void number(size_t depth) {
    double v = 0;
    auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (r.ec != std::errc()) fail("a number was expected");
    if (deepest_ && *deepest_ != depth) fail("lists and numbers are mixed");
    deepest_ = std::make_unique<size_t>(depth);
    at_ = static_cast<size_t>(r.ptr - text_.data());
    append(&out_.bytes, out_.layout.data_type, v);
  }
  static constexpr size_t kUnset = SIZE_MAX;
  const std::string& text_;
  size_t at_ = 0;
  std::vector<size_t> shape_;
  std::unique_ptr<size_t> deepest_;
  InputData out_;
};

std::vector<InputData> read_json_inputs(const std::string& path) {
  mge::serial::File file = mge::serial::open_file(path);
  Json doc = parse_json(text_of(file), path);
  const Json::Object* all = doc.object();
  MGE_CHECK(all, Value, "{}: must be an object with one member per input.", path);
  std::vector<InputData> out;
  for (auto& [name, entry] : *all) {
    std::string who = path + ": " + name;
    const Json::Object* o = entry.object();
    MGE_CHECK(o && o->count("shape") && o->count("type") && o->count("raw"), Value, "{}: needs shape, type and raw.",
              who);
    const Json::Array *shape = o->find("shape")->second.array(), *raw = o->find("raw")->second.array();
    const std::string* type = o->find("type")->second.text();
    MGE_CHECK(shape && raw && type, Value, "{}: shape and raw are lists, type is a text.", who);
    InputData d;
    d.name = name;
    d.layout.data_type = dtype_named(*type, who);
    for (const Json& j : *shape) {
      MGE_CHECK(j.number() && *j.number() >= 0 && *j.number() < 1e12, Value,
                "{}: a dimension is no number of 0 or more.", who);
      push_dim(&d.layout, static_cast<size_t>(*j.number()), who);
    }
    if (d.layout.ndim == 0) push_dim(&d.layout, 1, who);
    check_layout(d.layout);
    MGE_CHECK(raw->size() == layout_elements(d.layout), Value, "{}: {} needs {} numbers in raw; got {}.", who,
              layout_text(d.layout), layout_elements(d.layout), raw->size());
    for (const Json& j : *raw) {
      MGE_CHECK(j.number(), Value, "{}: raw holds something that is no number.", who);
      append(&d.bytes, d.layout.data_type, *j.number());
    }
    out.push_back(std::move(d));
  }
  return out;
}

/// Nothing but numbers: the model says their type and all sizes but the first, which follows from the size of the file.
InputData read_raw(const std::string& path, const Layout& model) {
  mge::serial::File file = mge::serial::open_file(path);
  InputData d;
  d.layout = model;
  const size_t whole = layout_bytes(model);
  const size_t row = model.ndim && model.shapes[0] ? whole / model.shapes[0] : 0;
  MGE_CHECK(row && !file.bytes.empty() && file.bytes.size() % row == 0, Value,
            "{}: {} bytes are no whole number of rows of {} ({} bytes each). Save it as .npy to say another shape.",
            path, file.bytes.size(), layout_text(model), row);
  d.layout.shapes[0] = file.bytes.size() / row;
  set_bytes(&d, file.bytes.data(), file.bytes.size(), path);
  return d;
}

bool ends_with_any(std::string name, std::initializer_list<const char*> endings) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(endings.begin(), endings.end(), [&](const char* e) { return name.ends_with(e); });
}

const IO& find_input(const std::string& name, const std::vector<IO>& model) {
  for (const IO& io : model)
    if (io.name == name) return io;
  mge::fail(mge::ErrorKind::Value, "input: the model has no input '{}'; its inputs are {}.", name, names(model));
}

// Splits [name:]value. A value may hold colons too (paths), so the part before the first one must look like a name.
std::string take_name(std::string* entry, const std::vector<IO>& model) {
  size_t colon = entry->find(':');
  if (colon != std::string::npos && entry->find_first_of("/[{") > colon) {
    std::string name = entry->substr(0, colon);
    entry->erase(0, colon + 1);
    return find_input(name, model).name;
  }
  for (const IO& io : model)
    if (io.name == "data") return io.name;
  MGE_CHECK(model.size() == 1, Value, "input: '{}' names no input and the model has several: {}. Write NAME:VALUE.",
            *entry, names(model));
  return model[0].name;
}

}  // namespace

InputData read_npy(const std::string& path) {
  mge::serial::File file = mge::serial::open_file(path);
  std::string_view f = text_of(file);
  bool v1 = f.size() >= 10 && f.substr(0, 6) == "\x93NUMPY" && f[6] >= 1 && f[6] <= 3;
  MGE_CHECK(v1, Value, "{}: not a NumPy .npy file.", path);
  size_t start = f[6] == 1 ? 10 : 12, length = 0;
  MGE_CHECK(f.size() >= start, Value, "{}: cut off.", path);
  for (size_t i = start; i-- > 8;) length = length << 8 | static_cast<unsigned char>(f[i]);
  MGE_CHECK(length <= f.size() - start, Value, "{}: cut off.", path);
  std::string_view head = f.substr(start, length);

  auto after = [&](std::string_view key) {
    size_t at = head.find(key);
    MGE_CHECK(at != std::string_view::npos, Value, "{}: its header has no {}.", path, key);
    return head.substr(at + key.size());
  };
  std::string_view descr = after("'descr'");
  size_t quote = descr.find('\'');
  size_t end = quote == std::string_view::npos ? quote : descr.find('\'', quote + 1);
  MGE_CHECK(end != std::string_view::npos, Value, "{}: its header is not understood.", path);
  std::string type(descr.substr(quote + 1, end - quote - 1));
  static const std::pair<const char*, LiteDataType> kTypes[] = {
      {"f4", LITE_FLOAT},   {"i4", LITE_INT},   {"i2", LITE_INT16},     {"u2", LITE_UINT16},
      {"i1", LITE_INT8},    {"u1", LITE_UINT8}, {"b1", LITE_BOOL},      {"f2", LITE_HALF},
      {"f8", LITE_FLOAT64}, {"i8", LITE_INT64}, {"c8", LITE_COMPLEX64}, {"u4", LITE_UINT}};
  InputData d;
  bool known = false;
  for (auto& [name, t] : kTypes)
    if (type.size() == 3 && type[0] != '>' && type.substr(1) == name) known = true, d.layout.data_type = t;
  MGE_CHECK(known, Value,
            "{}: NumPy type '{}' cannot be used; save it as float32 or another little-endian number type.", path, type);
  MGE_CHECK(after("'fortran_order'").find("True") > after("'fortran_order'").find(','), Value,
            "{}: is in Fortran order; save np.ascontiguousarray(x).", path);

  std::string_view shape = after("'shape'");
  size_t open = shape.find('('), close = shape.find(')');
  MGE_CHECK(open < close && close != std::string_view::npos, Value, "{}: its header is not understood.", path);
  shape = shape.substr(open + 1, close - open - 1);
  while (!shape.empty()) {
    size_t comma = std::min(shape.find(','), shape.size());
    std::string_view one = shape.substr(0, comma);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    if (!one.empty()) {
      size_t v = 0;
      auto r = std::from_chars(one.data(), one.data() + one.size(), v);
      MGE_CHECK(r.ec == std::errc(), Value, "{}: its shape is not understood.", path);
      push_dim(&d.layout, v, path);
    }
    shape.remove_prefix(std::min(comma + 1, shape.size()));
  }
  if (d.layout.ndim == 0) push_dim(&d.layout, 1, path);
  std::string_view body = f.substr(start + length);
  set_bytes(&d, body.data(), body.size(), path);
  return d;
}

InputData read_image(const std::string& path) {
  mge::serial::File file = mge::serial::open_file(path);
  std::string_view f = text_of(file);
  MGE_CHECK(f.size() > 2 && f[0] == 'P' && (f[1] == '5' || f[1] == '6'), Value,
            "{}: not a binary PPM (P6) or PGM (P5) image.", path);
  size_t channels = f[1] == '6' ? 3 : 1, at = 2, numbers[3];
  for (size_t& n : numbers) {
    while (at < f.size() && (std::isspace(static_cast<unsigned char>(f[at])) || f[at] == '#'))
      at = f[at] == '#' ? std::min(f.find('\n', at), f.size()) : at + 1;
    auto r = std::from_chars(f.data() + at, f.data() + f.size(), n);
    MGE_CHECK(r.ec == std::errc() && n > 0 && n < (1u << 24), Value, "{}: its header is not understood.", path);
    at = static_cast<size_t>(r.ptr - f.data());
  }
  MGE_CHECK(numbers[2] < 256, Value, "{}: has values up to {}; only 8-bit images are read.", path, numbers[2]);
  ++at;  // one blank ends the header
  InputData d;
  d.layout = {{1, numbers[1], numbers[0], channels}, 4, LITE_UINT8};
  set_bytes(&d, f.data() + std::min(at, f.size()), f.size() - std::min(at, f.size()), path);
  return d;
}

std::vector<InputData> parse_inputs(const std::string& spec, const std::vector<IO>& model) {
  std::vector<InputData> out;
  size_t begin = 0;
  while (begin <= spec.size()) {
    size_t end = std::min(spec.find(';', begin), spec.size());
    std::string entry = spec.substr(begin, end - begin);
    begin = end + 1;
    if (entry.empty()) continue;
    if (entry.ends_with(".json")) {
      for (InputData& d : read_json_inputs(entry)) {
        find_input(d.name, model);
        out.push_back(std::move(d));
      }
      continue;
    }
    std::string name = take_name(&entry, model);
    const Layout& wanted = find_input(name, model).config_layout;
    const LiteDataType type = wanted.data_type;
    InputData d;
    if (ends_with_any(entry, {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"}))
      mge::fail(mge::ErrorKind::NotImplemented,
                "input: {}: no library for such images is part of Lite. Convert it once: `convert {} x.ppm`, or with "
                "Python np.save(\"x.npy\", np.asarray(PIL.Image.open({}))[None]).",
                entry, entry, entry);
    if (entry.ends_with(".npy"))
      d = read_npy(entry);
    else if (entry.ends_with(".ppm") || entry.ends_with(".pgm"))
      d = read_image(entry);
    else if (entry.ends_with(".bin") || entry.ends_with(".raw"))
      d = read_raw(entry, wanted);
    else if (entry.size() >= 2 && entry.front() == '{' && entry.back() == '}')
      d = parse_shape(entry, type);
    else
      d = ListParser(entry, type).parse();
    d.name = std::move(name);
    for (const InputData& seen : out) MGE_CHECK(seen.name != d.name, Value, "input: '{}' is given twice.", d.name);
    out.push_back(std::move(d));
  }
  return out;
}

void set_batch(InputData* d, size_t batch) {
  MGE_CHECK(d->layout.shapes[0] > 0, Value, "batch_size: input '{}' {} has nothing to repeat.", d->name,
            layout_text(d->layout));
  size_t row = d->bytes.size() / d->layout.shapes[0];
  d->layout.shapes[0] = batch;
  check_layout(d->layout);
  size_t want = layout_bytes(d->layout), have = d->bytes.size();
  d->bytes.resize(want);
  for (size_t i = have; row && i < want; ++i) d->bytes[i] = d->bytes[i - have];
}

}  // namespace lite
