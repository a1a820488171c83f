#include "lite/info.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "base/features.h"
#include "lite/error.h"
#include "lite/log.h"
#include "lite/run/json.h"
#include "megengine/version.h"

namespace lite {
namespace {

// One object of the text, with errors that name the member.
class Members {
 public:
  Members(const Json& json, std::string path) : path_(std::move(path)) {
    object_ = json.object();
    MGE_CHECK(object_, Value, "model info: {} must be an object.", path_.empty() ? "the text" : path_);
  }
  const Json* find(const char* name) const {
    auto it = object_->find(name);
    return it == object_->end() ? nullptr : &it->second;
  }
  template <class T>
  void read(const char* name, T* out) const {
    const Json* j = find(name);
    if (!j) return;
    if constexpr (std::is_same_v<T, bool>) {
      const bool* b = std::get_if<bool>(&j->value);
      const double* d = j->number();  // 0 and 1 are written by some
      MGE_CHECK(b || (d && (*d == 0 || *d == 1)), Value, "model info: {} must be true or false.", at(name));
      *out = b ? *b : *d != 0;
    } else if constexpr (std::is_same_v<T, std::string>) {
      MGE_CHECK(j->text(), Value, "model info: {} must be a text.", at(name));
      *out = *j->text();
    } else {
      const double* d = j->number();
      const double most = static_cast<double>(std::numeric_limits<T>::max());
      // The largest of 64 bits is no double: the next one, which `most` is then, is too much.
      MGE_CHECK(d && *d == std::floor(*d) && *d >= static_cast<double>(std::numeric_limits<T>::min()) &&
                    (sizeof(T) < 8 ? *d <= most : *d < most),
                Value, "model info: {} must be an integer, at most {}.", at(name), most);
      *out = static_cast<T>(*d);
    }
  }
  template <class T>
  T one_of(const char* name, T otherwise, std::initializer_list<std::pair<const char*, T>> known) const {
    std::string text, names;
    read(name, &text);
    if (text.empty()) return otherwise;
    for (auto& [word, value] : known) {
      if (text == word) return value;
      names += (names.empty() ? "" : ", ") + std::string(word);
    }
    mge::fail(mge::ErrorKind::Value, "model info: {} is '{}'; it must be one of {}.", at(name), text, names);
  }
  std::string at(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

 private:
  const Json::Object* object_;
  std::string path_;
};

void read_options(const Members& m, Options* o) {
  m.read("weight_preprocess", &o->weight_preprocess);
  m.read("fuse_preprocess", &o->fuse_preprocess);
  m.read("fake_next_exec", &o->fake_next_exec);
  m.read("var_sanity_check_first_run", &o->var_sanity_check_first_run);
  m.read("const_shape", &o->const_shape);
  m.read("force_dynamic_alloc", &o->force_dynamic_alloc);
  m.read("force_output_dynamic_alloc", &o->force_output_dynamic_alloc);
  m.read("force_output_use_user_specified_memory", &o->force_output_use_user_specified_memory);
  m.read("no_profiling_on_shape_change", &o->no_profiling_on_shape_change);
  m.read("jit_level", &o->jit_level);
  m.read("comp_node_seq_record_level", &o->comp_node_seq_record_level);
  m.read("graph_opt_level", &o->graph_opt_level);
  m.read("async_exec_level", &o->async_exec_level);
  m.read("enable_nchw44", &o->enable_nchw44);
  m.read("enable_nchw44_dot", &o->enable_nchw44_dot);
  m.read("enable_nchw88", &o->enable_nchw88);
  m.read("enable_nhwcd4", &o->enable_nhwcd4);
  m.read("enable_nchw4", &o->enable_nchw4);
  m.read("enable_nchw32", &o->enable_nchw32);
  m.read("enable_nchw64", &o->enable_nchw64);
}

void read_device(const Members& m, ModelInfo* out) {
  out->config.device_type = m.one_of<LiteDeviceType>("type", out->config.device_type,
                                                     {{"CPU", LITE_CPU},
                                                      {"CUDA", LITE_CUDA},
                                                      {"ATLAS", LITE_ATLAS},
                                                      {"CAMBRICON", LITE_CAMBRICON},
                                                      {"NPU", LITE_NPU}});
  if (m.find("device_id")) {
    int32_t id = 0;
    m.read("device_id", &id);
    out->isolated["device_id"] = id;
  }
  if (m.find("number_threads")) {
    uint32_t n = 1;
    m.read("number_threads", &n);
    out->isolated["number_threads"] = n;
  }
  for (const char* name : {"enable_inplace_model", "use_tensorrt"})
    if (m.find(name)) {
      bool on = false;
      m.read(name, &on);
      out->isolated[name] = on;
    }
}

// What the program configured itself stays as it is.
void read_ios(const Members& m, const char* which, std::vector<IO>* out) {
  const Json* list = m.find(which);
  if (!list) return;
  MGE_CHECK(list->array(), Value, "model info: {} must be a list.", m.at(which));
  for (const Json& j : *list->array()) {
    const Members entry(j, m.at(which));
    IO io;
    entry.read("name", &io.name);
    MGE_CHECK(!io.name.empty(), Value, "model info: an entry of {} has no name.", m.at(which));
    entry.read("is_host", &io.is_host);
    io.io_type =
        entry.one_of<LiteIOType>("io_type", LITE_IO_VALUE, {{"value", LITE_IO_VALUE}, {"shape", LITE_IO_SHAPE}});
    io.config_layout.data_type = entry.one_of<LiteDataType>("dtype", LITE_FLOAT,
                                                            {{"float32", LITE_FLOAT},
                                                             {"float16", LITE_HALF},
                                                             {"int32", LITE_INT},
                                                             {"int16", LITE_INT16},
                                                             {"int8", LITE_INT8},
                                                             {"uint8", LITE_UINT8},
                                                             {"uint16", LITE_UINT16},
                                                             {"int64", LITE_INT64}});
    if (const Json* shape = entry.find("shape")) {
      const Members dims(*shape, entry.at("shape"));
      size_t n = 0;
      for (; n < Layout::MAXDIM && dims.find(mge::format("dim{}", n).c_str()); ++n)
        dims.read(mge::format("dim{}", n).c_str(), &io.config_layout.shapes[n]);
      io.config_layout.ndim = n;
    }
    const bool given = std::any_of(out->begin(), out->end(), [&](const IO& x) { return x.name == io.name; });
    if (!given) out->push_back(std::move(io));
  }
}

// Decryption may leave zeros behind the text.
std::string_view without_padding(const void* data, size_t size) {
  std::string_view text(static_cast<const char*>(data), size);
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  return text;
}

void warn_if_newer(const std::string& version) {
  std::array<int, 3> v{};
  const char *at = version.data(), *end = at + version.size();
  for (int& number : v) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error == std::errc::result_out_of_range) number = std::numeric_limits<int>::max();
    at = next;
    if (at == end || *at != '.') break;
    ++at;
  }
  if (v > std::array{MGE_VERSION_MAJOR, MGE_VERSION_MINOR, MGE_VERSION_PATCH})
    log(WARN, mge::format("lite: the packed model was made for version {}; this is {}", version, MGE_VERSION_STRING));
}

bool parse_default(const void* data, size_t size, const std::string& model_name, Config& config, NetworkIO& io,
                   std::unordered_map<std::string, LiteAny>& isolated, std::string& extra_info) {
  const std::string_view text = without_padding(data, size);
  if (text.empty()) return false;
  const Json json = parse_json(text, "model info");
  const Members m(json, "");
  bool valid = true;
  m.read("valid", &valid);
  if (!valid) return false;
  std::string name, version;
  m.read("name", &name);
  MGE_CHECK(name == model_name, Value,
            "model info: is about the model '{}', and the pack holds '{}'. Pack the model with its own info.", name,
            model_name);
  m.read("version", &version);
  warn_if_newer(version);
  ModelInfo out{config, io, {}, {}};
  m.read("has_compression", &out.config.has_compression);
  out.config.backend = m.one_of<LiteBackend>("backend", LITE_DEFAULT, {{"MGE", LITE_DEFAULT}});
  if (const Json* device = m.find("device")) read_device(Members(*device, "device"), &out);
  if (const Json* options = m.find("options")) read_options(Members(*options, "options"), &out.config.options);
  if (const Json* ios = m.find("IO")) {
    read_ios(Members(*ios, "IO"), "inputs", &out.io.inputs);
    read_ios(Members(*ios, "IO"), "outputs", &out.io.outputs);
  }
  if (const Json* extra = m.find("extra_info")) extra_info = json_text(*extra);
  config = out.config;
  io = out.io;
  isolated = out.isolated;
  return true;
}

struct Parsers {
  std::mutex mutex;
  std::map<std::string, ParseInfoFunc, std::less<>> by_name{{"LITE_default", parse_default}};
};
Parsers& parsers() {
  static auto* p = new Parsers;
  return *p;
}

}  // namespace

void parse_info(const std::string& parser, const std::vector<uint8_t>& info, const std::string& model_name,
                const std::string& who, ModelInfo* out) {
  ParseInfoFunc func;
  {
    Parsers& p = parsers();
    std::lock_guard<std::mutex> lock(p.mutex);
    auto it = p.by_name.find(parser);
    std::string names;
    for (auto& [name, f] : p.by_name) names += (names.empty() ? "" : ", ") + name;
    MGE_CHECK(it != p.by_name.end(), Value,
              "{}: its info is for the parser '{}'; there are {}. Register it with register_parse_info_func.", who,
              parser, names);
    func = it->second;
  }
  ModelInfo parsed{out->config, out->io, {}, {}};
  try {
    if (!func(info.data(), info.size(), model_name, parsed.config, parsed.io, parsed.isolated, parsed.extra_info))
      return;
  } catch (const mge::Error& e) {
    mge::fail(e.kind(), "{}: {}", who, e.text());
  }
  *out = std::move(parsed);
}

void add_info_parser(const std::string& name, const ParseInfoFunc& func) {
  mge::require("packs", "lite: register_parse_info_func");
  MGE_CHECK(!name.empty() && func, Value, "lite: register_parse_info_func needs a name and a function.");
  Parsers& p = parsers();
  std::lock_guard<std::mutex> lock(p.mutex);
  MGE_CHECK(p.by_name.emplace(name, func).second, Value, "lite: an info parser '{}' is registered already.", name);
}

std::string info_name(const std::vector<uint8_t>& info, const std::string& who) {
  const std::string_view text = without_padding(info.data(), info.size());
  if (text.empty()) return {};
  const Json json = parse_json(text, who);
  std::string name;
  Members(json, "").read("name", &name);
  return name;
}

}  // namespace lite
