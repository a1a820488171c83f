// Models for the Lite tests. net_v1.mge (tests/data/lite) has inputs data f32[2,1,8,8] and bias f32[1,5], outputs
// logits and prob.
#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/text.h"
#include "lite/network.h"
#include "serial/model.h"

namespace lite::test {

inline constexpr const char* kAffine = R"(
graph affine(%x: f32[2,3], %b: f32[3]) {
  %y = add %x, %b   loc model.py:7 in forward
} returns(%y)
)";

inline std::string net_path() { return MGE_TEST_DATA "/lite/net_v1.mge"; }
inline std::vector<uint8_t> model_of(const std::string& text, const mge::serial::ModelInfo& info = {}) {
  return mge::serial::write_model(mge::ir::parse(text), info);
}
inline std::shared_ptr<Network> load(const std::string& text, const Config& config = {}, const NetworkIO& io = {}) {
  auto net = std::make_shared<Network>(config, io);
  auto bytes = model_of(text);
  net->load_model(bytes.data(), bytes.size());
  return net;
}
inline std::shared_ptr<Network> load_net(const Config& config = {}, const NetworkIO& io = {}) {
  auto net = std::make_shared<Network>(config, io);
  net->load_model(net_path());
  return net;
}

inline std::vector<float> floats(const Tensor& t) {
  std::vector<float> v(t.get_tensor_total_size_in_byte() / 4);
  if (!v.empty()) std::memcpy(v.data(), t.get_memory_ptr(), v.size() * 4);
  return v;
}
inline void fill(Tensor& t, const std::function<float(size_t)>& f) {
  auto* p = static_cast<float*>(t.get_memory_ptr());
  for (size_t i = 0; i < t.get_tensor_total_size_in_byte() / 4; ++i) p[i] = f(i);
}
inline std::vector<float> run(Network& net) {
  net.forward();
  net.wait();
  return floats(*net.get_output_tensor(0));
}

/// The text of the exception, or "no error".
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace lite::test
