#include "op/custom/custom.h"
#include "op/in_build.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>

#include "op/opdef.h"

namespace mge {
namespace {

struct Loaded {
  std::shared_ptr<const MgeCustomLibrary> library;
  std::vector<std::string> ops;
};

std::mutex g_mutex;
std::map<std::string, Loaded>& libraries() {  // by path; never destroyed: ops may run while the process ends
  static auto* all = new std::map<std::string, Loaded>();
  return *all;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

const Loaded* owner_of(const std::string& op, std::string* path, int32_t* index) {
  for (auto& [where, lib] : libraries())
    for (size_t i = 0; i < lib.ops.size(); ++i)
      if (lib.ops[i] == op) {
        *path = where;
        *index = static_cast<int32_t>(i);
        return &lib;
      }
  return nullptr;
}

void set_text(char (&to)[16], std::string_view text) {
  std::memset(to, 0, sizeof to);
  std::memcpy(to, text.data(), std::min(text.size(), sizeof to - 1));
}

size_t n_results(const AttrsBase* a) { return static_cast<size_t>(attrs_as<CustomAttrs>(a).n_out); }

MgeCustomTensor described(const CustomAttrs& a, size_t i, const Meta& m) {
  MGE_CHECK(!m.cn || m.cn->device.kind == DeviceKind::Cpu, NotImplemented,
            "{}: custom operators run on CPU devices; input {} is on {}.", a.name, i, m.cn->logical);
  MGE_CHECK(m.quant.per_tensor(), NotImplemented,
            "{}: input {} has a scale per channel; a custom operator sees one scale. Quantise it per tensor.", a.name,
            i);
  MgeCustomTensor t{};
  set_text(t.dtype, dtype_name(m.dtype));
  set_text(t.device, "x86");
  t.ndim = m.shape.rank;
  std::copy(m.shape.begin(), m.shape.end(), t.shape);
  t.scale = static_cast<float>(m.quant.scale);
  t.zero_point = m.quant.zero_point;
  return t;
}

void infer_custom(InferCtx& c) {
  const auto& a = attrs_as<CustomAttrs>(c.attrs);
  const CustomOpEntry op = find_custom_op(a);
  std::vector<MgeCustomTensor> in, out(c.out.size());
  for (size_t i = 0; i < static_cast<size_t>(a.n_in); ++i) in.push_back(described(a, i, c.x(i)));
  char error[1024] = "";
  const int32_t failed = op.library->infer(op.index, a.params.c_str(), in.data(), static_cast<int32_t>(in.size()),
                                           out.data(), static_cast<int32_t>(out.size()), error, sizeof error);
  MGE_CHECK(!failed, Value, "{}: {}", a.name, error);
  for (size_t i = 0; i < out.size(); ++i) {
    const MgeCustomTensor& t = out[i];
    MGE_CHECK(std::strcmp(t.device, "x86") == 0, NotImplemented,
              "{}: result {} is on '{}'; there are only CPU devices.", a.name, i, t.device);
    c.out[i].dtype = parse_dtype(t.dtype);
    c.out[i].shape = Shape(t.shape, static_cast<size_t>(t.ndim));
    if (t.scale != 0) c.out[i].quant = {.scale = t.scale, .zero_point = t.zero_point};
  }
}

}  // namespace

std::vector<std::string> load_custom_library(const std::string& path, bool takes_place) {
  std::lock_guard<std::mutex> lock(g_mutex);
  auto& all = libraries();
  if (auto it = all.find(path); it != all.end()) return it->second.ops;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) MGE_FAIL_ENV("custom.load: cannot load '{}': {}", path, dlerror());
  std::shared_ptr<void> owner(handle, [](void* h) { dlclose(h); });
  auto* entry = reinterpret_cast<const MgeCustomLibrary* (*)()>(dlsym(handle, MGE_CUSTOM_ENTRY));
  if (!entry)
    MGE_FAIL_ENV(
        "custom.load: '{}' is no library of custom operators: it has no function {}. Compile it with this version's "
        "megbrain/custom/custom.h (megengine.utils.custom_op_tools.build).",
        path, MGE_CUSTOM_ENTRY);
  const MgeCustomLibrary* table = entry();
  if (table->abi != MGE_CUSTOM_ABI)
    MGE_FAIL_ENV("custom.load: '{}' was compiled for interface {}; this is {}. Compile it again.", path, table->abi,
                 MGE_CUSTOM_ABI);
  Loaded lib{std::shared_ptr<const MgeCustomLibrary>(owner, table), {}};
  for (int32_t i = 0; i < table->n_ops; ++i) {
    const std::string name = table->name(i);
    const char* fault = table->fault(i);
    MGE_CHECK(!*fault, Value, "custom.load: op '{}' of '{}' is registered wrongly: {}.", name, path, fault);
    std::string where;
    int32_t index;
    while (owner_of(name, &where, &index)) {
      MGE_CHECK(takes_place, Value, "custom.load: '{}' has the op '{}', which '{}' has, too. Unload that one first.",
                path, name, where);
      all.erase(where);
    }
    for (auto& other : lib.ops)
      MGE_CHECK(other != name, Value, "custom.load: '{}' registers the op '{}' twice.", path, name);
    lib.ops.push_back(name);
  }
  MGE_CHECK(!lib.ops.empty(), Value, "custom.load: '{}' registers no op. CUSTOM_OP_REG(Name) does.", path);
  return all.emplace(path, std::move(lib)).first->second.ops;
}

void unload_custom_library(const std::string& path) {
  std::lock_guard<std::mutex> lock(g_mutex);
  MGE_CHECK(libraries().erase(path), Value, "custom.unload: '{}' is not loaded.", path);
}

std::vector<CustomLibraryInfo> custom_libraries() {
  std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<CustomLibraryInfo> out;
  for (auto& [path, lib] : libraries()) out.push_back({path, lib.ops});
  return out;
}

CustomOpEntry find_custom_op(const CustomAttrs& a) {
  std::lock_guard<std::mutex> lock(g_mutex);
  CustomOpEntry e;
  const Loaded* lib = owner_of(a.name, &e.path, &e.index);
  MGE_CHECK(lib, Value,
            "{}: this custom operator is not loaded; it is in the library '{}'. Load it first: "
            "megengine.core.ops.custom.load(path), or lite::set_loader_lib_path(path).",
            a.name, file_name(a.library));
  e.library = lib->library;
  return e;
}

std::string describe_custom_op(const std::string& name) {
  const CustomOpEntry e = find_custom_op({.name = name});
  return e.library->describe(e.index);
}

void register_custom(OpRegistry& r) {
  r.op("custom")
      .attrs<CustomAttrs>()
      .variadic_in("xs")
      .variadic_out("ys", n_results)
      .refuses(0b1)
      .infer(infer_custom)
      .traits(kQuantised | kNoGrad)
      .doc("An operator of a user's library. Wrap it in autodiff.Function to give it a gradient.");
}

}  // namespace mge
