// A convolution as an execution plan of cuDNN's graph API.
#pragma once
#include <memory>
#include <vector>

#include "kernel/cuda/cudnn_api.h"
#include "op/conv/conv.h"

namespace mge::cuda {

/// One descriptor; dies with it.
class Descriptor {
 public:
  explicit Descriptor(int kind);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  void set(int attribute, int type, int64_t count, const void* values);
  void set(int attribute, const Descriptor& d) { set(attribute, 15 /* CUDNN_TYPE_BACKEND_DESCRIPTOR */, 1, &d.raw); }
  void set(int attribute, int type, int64_t value) { set(attribute, type, 1, &value); }
  void set(int attribute, int type, int value) { set(attribute, type, 1, &value); }
  void finalize();
  DnnDescriptor raw = nullptr;
};

/// All that decides the plan.
struct ConvKey {
  ConvGeom g;
  ConvRole role = ConvRole::Forward;
  DType dtype = DType::F32;
  int device = 0;
  bool channels_last = false;
  int64_t alignment = 16;
  bool operator==(const ConvKey&) const = default;
};

struct ConvPlan {
  explicit ConvPlan(const ConvKey& k, DnnHandle handle);
  std::unique_ptr<Descriptor> plan;  // null: cuDNN has no engine for it
  int64_t workspace = 0;
  std::vector<std::unique_ptr<Descriptor>> parts;  // what the plan is made of
};

}  // namespace mge::cuda
