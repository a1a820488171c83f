#include "lite/network.h"

#include <algorithm>
#include <mutex>
#include <span>

#include "lite/error.h"
#include "lite/network_impl.h"

namespace lite {
namespace {

std::vector<std::string> names(const std::vector<IoSlot>& slots) {
  std::vector<std::string> out;
  for (const IoSlot& s : slots) out.push_back(s.io.name);
  return out;
}

// Every function of Network: one thread at a time, and errors as lite::Error.
template <class Impl, class F>
auto locked(Impl& impl, F&& body) -> decltype(body()) {
  return guarded([&] {
    std::lock_guard lock(impl.mutex);
    return body();
  });
}

}  // namespace

Network::Network(const Config& config, const NetworkIO& io) : impl_(std::make_shared<Impl>(config, io)) {}
Network::Network(const NetworkIO& io, const Config& config) : Network(config, io) {}
// A run under way uses memory of the caller, so its end is waited for; not where it is what destroys the network, or
// waits for who does.
Network::~Network() {
  try {
    if (!impl_->inside_callback()) impl_->drain();
  } catch (...) {  // NOLINT: what runs holds all it needs
  }
}

void Network::load_model(void* mem, size_t size) {
  guarded([&] { impl_->load([&] { return bytes_in_memory(mem, size); }); });
}
void Network::load_model(std::string path) {
  guarded([&] { impl_->load([&] { return bytes_of_file(path); }); });
}
void Network::compute_only_configured_output() {
  locked(*impl_, [&] {
    impl_->check_not_loaded("compute_only_configured_output");
    impl_->only_configured_outputs = true;
  });
}

std::shared_ptr<Tensor> Network::get_io_tensor(std::string name, LiteTensorPhase phase) {
  return locked(*impl_, [&] { return impl_->tensor_of(impl_->find_io(name, phase)); });
}
std::vector<std::shared_ptr<Tensor>> Network::get_discrete_tensors(std::string name, LiteTensorPhase phase) {
  return locked(*impl_, [&] { return impl_->discrete_tensors(impl_->find_io(name, phase)); });
}
std::shared_ptr<Tensor> Network::get_input_tensor(size_t index) {
  return locked(*impl_, [&] { return impl_->tensor_of(impl_->at(impl_->inputs, index, "input")); });
}
std::vector<std::shared_ptr<Tensor>> Network::get_input_tensors(size_t index) {
  return locked(*impl_, [&] { return impl_->discrete_tensors(impl_->at(impl_->inputs, index, "input")); });
}
std::shared_ptr<Tensor> Network::get_output_tensor(size_t index) {
  return locked(*impl_, [&] { return impl_->at(impl_->outputs, index, "output").tensor; });
}

Network& Network::set_async_callback(const AsyncCallback& callback) {
  guarded([impl = impl_, &callback] { impl->set_async_callback(callback); });
  return *this;
}
Network& Network::set_start_callback(const StartCallback& callback) {
  locked(*impl_, [&] { impl_->start_callback = callback; });
  return *this;
}
Network& Network::set_finish_callback(const FinishCallback& callback) {
  locked(*impl_, [&] { impl_->finish_callback = callback; });
  return *this;
}

// A callback may destroy the network.
void Network::forward() {
  guarded([impl = impl_] { impl->forward(); });
}
void Network::wait() {
  guarded([impl = impl_] { impl->wait(); });
}

std::string Network::get_input_name(size_t index) const {
  return locked(*impl_, [&] { return impl_->at(impl_->inputs, index, "input").io.name; });
}
std::string Network::get_output_name(size_t index) const {
  return locked(*impl_, [&] { return impl_->at(impl_->outputs, index, "output").io.name; });
}
std::vector<std::string> Network::get_all_input_name() const {
  return locked(*impl_, [&] {
    impl_->check_loaded("get_all_input_name");
    return names(impl_->inputs);
  });
}
std::vector<std::string> Network::get_all_output_name() const {
  return locked(*impl_, [&] {
    impl_->check_loaded("get_all_output_name");
    // Those that the program named come first, in its order; numbers are the dump's.
    std::vector<std::string> all = names(impl_->outputs);
    auto behind = all.begin();
    for (const IO& io : impl_->network_io.outputs)
      if (auto at = std::find(behind, all.end(), io.name); at != all.end()) {
        std::rotate(behind, at, at + 1);
        ++behind;
      }
    return all;
  });
}

Network& Network::set_device_id(int id) {
  locked(*impl_, [&] {
    impl_->check_not_loaded("set_device_id");
    impl_->config.device_id = id;
  });
  return *this;
}
int Network::get_device_id() const {
  return locked(*impl_, [&] { return impl_->config.device_id; });
}
Network& Network::set_stream_id(int id) {
  locked(*impl_, [&] {
    impl_->check_not_loaded("set_stream_id");
    impl_->stream_id = id;
  });
  return *this;
}
int Network::get_stream_id() const {
  return locked(*impl_, [&] { return impl_->stream_id; });
}
LiteDeviceType Network::get_device_type() const {
  return locked(*impl_, [&] { return impl_->config.device_type; });
}

void Network::enable_profile_performance(std::string path) {
  locked(*impl_, [&] { impl_->enable_profile(std::move(path)); });
}
const std::string& Network::get_model_extra_info() {
  locked(*impl_, [&] { impl_->check_loaded("get_model_extra_info"); });
  return impl_->extra_info;
}
void Network::get_static_memory_alloc_info(const std::string& folder) const {
  locked(*impl_, [&] { impl_->write_memory_info(folder); });
}
void Network::extra_configure(const ExtraConfig& extra) {
  locked(*impl_, [&] { impl_->extra = extra; });
}

}  // namespace lite
