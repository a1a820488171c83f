#include "op/custom/custom.h"

#include <cstring>

#include "kernel/kernel.h"
#include "op/in_build.h"

namespace mge {
namespace {

MgeCustomTensor shown(const TensorArg& t) {
  MgeCustomTensor c{};
  c.data = t.ptr;
  const std::string_view name = dtype_name(t.dtype);
  std::memcpy(c.dtype, name.data(), std::min(name.size(), sizeof c.dtype - 1));
  std::memcpy(c.device, "x86", 4);
  c.ndim = t.shape.rank;
  std::copy(t.shape.begin(), t.shape.end(), c.shape);
  c.scale = static_cast<float>(t.quant.scale);
  c.zero_point = t.quant.zero_point;
  return c;
}

void run_custom(const KernelArgs& a) {
  const auto& at = a.as<CustomAttrs>();
  const CustomOpEntry op = find_custom_op(at);
  std::vector<MgeCustomTensor> in, out;
  for (size_t i = 0; i < static_cast<size_t>(at.n_in); ++i) in.push_back(shown(a.in[i]));
  for (auto& t : a.out) out.push_back(shown(t));
  char error[1024] = "";
  const int32_t failed = op.library->compute(op.index, at.params.c_str(), in.data(), static_cast<int32_t>(in.size()),
                                             out.data(), static_cast<int32_t>(out.size()), error, sizeof error);
  MGE_CHECK(!failed, Value, "{}: {}", at.name, error);
}

}  // namespace

void register_ref_custom(KernelRegistry& r) {
  r.add("custom", KernelTier::Ref, Kernel{.name = "ref_custom", .run = run_custom});
}

}  // namespace mge
