#include "lite/c_api/handles.h"

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/fork.h"
#include "lite/network_impl.h"

namespace lite {
namespace {

using Strings = std::unordered_set<std::string>;  // nodes never move
struct NetworkEntry {
  std::shared_ptr<Network> network;
  std::unordered_map<const Tensor*, uintptr_t> tensors;
  std::shared_ptr<Strings> strings = std::make_shared<Strings>();
};
struct TensorEntry {
  std::shared_ptr<Tensor> owned;
  std::weak_ptr<Tensor> borrowed;  // of a network
};

struct Table {
  std::mutex mutex;
  uintptr_t next = 0x1000;  // small numbers are likelier to be typed by mistake
  std::unordered_map<uintptr_t, NetworkEntry> networks;
  std::unordered_map<uintptr_t, TensorEntry> tensors;
};
Table& table() {
  static Table* t = [] {  // leaked: a program may destroy its handles from static destructors
    auto* made = new Table;
    mge::fork_takes(made->mutex);
    return made;
  }();
  return *t;
}
uintptr_t key(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }
void* handle(uintptr_t key) { return reinterpret_cast<void*>(key); }  // NOLINT: a number in a pointer's clothes

NetworkEntry& network_entry(Table& t, LiteNetwork h) {
  MGE_CHECK(h, Value, "lite: the network handle is null.");
  auto it = t.networks.find(key(h));
  MGE_CHECK(it != t.networks.end(), Value, "lite: {} is no network; it was destroyed or never made.", h);
  return it->second;
}
TensorEntry& tensor_entry(Table& t, LiteTensor h) {
  MGE_CHECK(h, Value, "lite: the tensor handle is null.");
  auto it = t.tensors.find(key(h));
  MGE_CHECK(it != t.tensors.end(), Value, "lite: {} is no tensor; it, or the network it belonged to, was destroyed.",
            h);
  return it->second;
}

}  // namespace

LiteNetwork add_network(std::shared_ptr<Network> n) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  uintptr_t k = t.next += 16;
  t.networks[k].network = std::move(n);
  return handle(k);
}

std::shared_ptr<Network> find_network(LiteNetwork h) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  return network_entry(t, h).network;
}

void remove_network(LiteNetwork h) {
  // Asked before the table is locked: the network's own lock may be held by a call that wants the table.
  {
    const std::shared_ptr<Network> network = find_network(h);
    Network::Impl& impl = NetworkAccess::impl(*network);
    MGE_CHECK(!impl.inside_callback(), Assertion, "lite: a network cannot be destroyed from its own callback.");
    impl.close();  // or an error, and it stays
  }
  Table& t = table();
  decltype(t.networks)::node_type gone;  // dies after the table is unlocked: a callback may be using handles
  {
    std::lock_guard<std::mutex> lock(t.mutex);
    NetworkEntry& e = network_entry(t, h);
    for (auto& [tensor, k] : e.tensors) t.tensors.erase(k);
    gone = t.networks.extract(key(h));
  }
}

LiteTensor add_tensor(std::shared_ptr<Tensor> tensor) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  uintptr_t k = t.next += 16;
  t.tensors[k].owned = std::move(tensor);
  return handle(k);
}

LiteTensor network_tensor(LiteNetwork network, const std::shared_ptr<Tensor>& tensor) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  auto& known = network_entry(t, network).tensors;
  if (auto it = known.find(tensor.get()); it != known.end()) {
    if (t.tensors[it->second].borrowed.lock() == tensor) return handle(it->second);
    t.tensors.erase(it->second);  // of a model that was replaced: the address is another tensor's now
    known.erase(it);
  }
  const uintptr_t k = t.next += 16;
  t.tensors[k].borrowed = tensor;
  try {
    known.emplace(tensor.get(), k);
  } catch (...) {
    t.tensors.erase(k);
    throw;
  }
  return handle(k);
}

std::shared_ptr<Tensor> find_tensor(LiteTensor h) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  TensorEntry& e = tensor_entry(t, h);
  std::shared_ptr<Tensor> p = e.owned ? e.owned : e.borrowed.lock();
  MGE_CHECK(p, Value, "lite: {} is a tensor of a network that was destroyed.", h);
  return p;
}

void remove_tensor(LiteTensor h) {
  Table& t = table();
  std::shared_ptr<Tensor> gone;  // dies after the table is unlocked
  std::lock_guard<std::mutex> lock(t.mutex);
  TensorEntry& e = tensor_entry(t, h);
  if (!e.owned) return;
  gone = std::move(e.owned);
  t.tensors.erase(key(h));
}

const char* keep_string(LiteNetwork network, const std::string& text) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  return network_entry(t, network).strings->insert(text).first->c_str();
}

std::shared_ptr<const void> hold_strings(LiteNetwork network) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  return network_entry(t, network).strings;
}

Layout to_cpp(const LiteLayout& l) {
  MGE_CHECK(l.ndim <= Layout::MAXDIM, Value, "lite: a layout has at most {} dimensions; got {}.", Layout::MAXDIM,
            l.ndim);
  Layout out;
  out.ndim = l.ndim;
  out.data_type = l.data_type;
  for (size_t i = 0; i < l.ndim; ++i) out.shapes[i] = l.shapes[i];
  return out;
}

LiteLayout to_c(const Layout& l) {
  LiteLayout out{};
  out.ndim = l.ndim;
  out.data_type = l.data_type;
  for (size_t i = 0; i < l.ndim; ++i) out.shapes[i] = l.shapes[i];
  return out;
}

Config to_cpp(const LiteConfig& c) {
  Config out;
  out.has_compression = c.has_compression;
  out.device_id = c.device_id == -1 ? 0 : c.device_id;
  out.device_type = c.device_type;
  out.backend = c.backend;
  if (c.bare_model_cryption_name) out.bare_model_cryption_name = c.bare_model_cryption_name;
  out.auto_optimize_inference = c.auto_optimize_inference;
  if (c.discrete_input_name) out.discrete_input_name = c.discrete_input_name;
  const LiteOptions& o = c.options;
  const std::pair<const char*, int> levels[] = {{"jit_level", o.jit_level},
                                                {"comp_node_seq_record_level", o.comp_node_seq_record_level},
                                                {"graph_opt_level", o.graph_opt_level},
                                                {"async_exec_level", o.async_exec_level}};
  for (auto& [name, value] : levels)  // load_model knows what each may be; here they are cut to the fields of C++
    MGE_CHECK(value >= 0 && value <= 255, Value, "lite: LiteOptions.{} is a small number; got {}.", name, value);
  out.options = {.weight_preprocess = o.weight_preprocess != 0,
                 .fuse_preprocess = o.fuse_preprocess != 0,
                 .fake_next_exec = o.fake_next_exec != 0,
                 .var_sanity_check_first_run = o.var_sanity_check_first_run != 0,
                 .const_shape = o.const_shape != 0,
                 .force_dynamic_alloc = o.force_dynamic_alloc != 0,
                 .force_output_dynamic_alloc = o.force_output_dynamic_alloc != 0,
                 .force_output_use_user_specified_memory = o.force_output_use_user_specified_memory != 0,
                 .no_profiling_on_shape_change = o.no_profiling_on_shape_change != 0,
                 .jit_level = static_cast<uint8_t>(o.jit_level),
                 .comp_node_seq_record_level = static_cast<uint8_t>(o.comp_node_seq_record_level),
                 .graph_opt_level = static_cast<uint8_t>(o.graph_opt_level),
                 .async_exec_level = static_cast<uint16_t>(o.async_exec_level),
                 .enable_nchw44 = o.enable_nchw44 != 0,
                 .enable_nchw44_dot = o.enable_nchw44_dot != 0,
                 .enable_nchw88 = o.enable_nchw88 != 0,
                 .enable_nhwcd4 = o.enable_nhwcd4 != 0,
                 .enable_nchw4 = o.enable_nchw4 != 0,
                 .enable_nchw32 = o.enable_nchw32 != 0,
                 .enable_nchw64 = o.enable_nchw64 != 0,
                 .enable_f16_io_comp = false};
  return out;
}

LiteConfig to_c(const Config& c) {
  const Options& o = c.options;
  return {c.has_compression,
          c.device_id,
          c.device_type,
          c.backend,
          c.bare_model_cryption_name.c_str(),
          {o.weight_preprocess,
           o.fuse_preprocess,
           o.fake_next_exec,
           o.var_sanity_check_first_run,
           o.const_shape,
           o.force_dynamic_alloc,
           o.force_output_dynamic_alloc,
           o.force_output_use_user_specified_memory,
           o.no_profiling_on_shape_change,
           o.jit_level,
           o.comp_node_seq_record_level,
           o.graph_opt_level,
           o.async_exec_level,
           o.enable_nchw44,
           o.enable_nchw44_dot,
           o.enable_nchw88,
           o.enable_nhwcd4,
           o.enable_nchw4,
           o.enable_nchw32,
           o.enable_nchw64},
          c.auto_optimize_inference,
          c.discrete_input_name.c_str()};
}

std::vector<LiteIO> to_c(const std::vector<IO>& ios) {
  std::vector<LiteIO> out;
  for (const IO& io : ios) out.push_back({io.name.c_str(), io.is_host, io.io_type, to_c(io.config_layout)});
  return out;
}

NetworkIO to_cpp(const LiteNetworkIO& io) {
  auto convert = [](const LiteIO* list, size_t n, const char* what) {
    MGE_CHECK(list || n == 0, Value, "lite: LiteNetworkIO says {} {} and gives a null pointer.", n, what);
    std::vector<IO> out;
    for (size_t i = 0; i < n; ++i)
      out.push_back({not_null(list[i].name, "the name of a LiteIO"), list[i].is_host != 0, list[i].io_type,
                     to_cpp(list[i].config_layout)});
    return out;
  };
  return {convert(io.inputs, io.input_size, "inputs"), convert(io.outputs, io.output_size, "outputs")};
}

}  // namespace lite
