// conv2d and its adjoints by cuDNN. float32 is computed in float32 (no TF32), 16-bit floats are summed in float32 and
// lie channels-last, as tensor cores want them. Plans are kept by shape.
#include <mutex>
#include <unordered_map>

#include "kernel/conv.h"
#include "kernel/cuda/api.h"
#include "kernel/cuda/conv.h"
#include "kernel/cuda/cudnn_plan.h"
#include "kernel/cuda/region.h"
#include "kernel/cuda/written.h"
#include "kernel/layouts.h"
#include "op/conv/conv2d.h"

namespace mge::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // of the workspace

DnnHandle handle_of(int device) {
  static DnnHandle handles[kMaxDevices] = {};
  if (!handles[device]) {
    const int status = dnn().cudnnCreate(&handles[device]);
    MGE_CHECK(status == 0, Env, "cuDNN: cudnnCreate failed with status {}.", status);
  }
  return handles[device];
}

struct KeyHash {
  size_t operator()(const ConvKey& k) const {
    const ConvGeom& g = k.g;
    uint64_t h = 0;
    for (int64_t v : {g.n, g.c, g.h, g.w, g.o, g.kh, g.kw, g.sh, g.sw, g.ph, g.pw, g.dh, g.dw, g.groups,
                      static_cast<int64_t>(k.role), static_cast<int64_t>(k.dtype), k.alignment})
      h = hash_mix(h, static_cast<uint64_t>(v));
    return h;
  }
};

// Channels-last memory of a weight is that of a matrix per output; with groups it has an axis more and stays as it is.
template <class A>
bool lies_last(const KernelArgs& a) {
  const DType t = a.out[0].dtype;
  return (t == DType::F16 || t == DType::BF16) && a.as<A>().groups == 1;
}
template <class A>
void layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const bool last = lies_last<A>(a);
  for (int i = 0; i < 2; ++i) last ? ask_channels_last(in[i]) : ask_row_major(in[i]);
  if (a.in.size() > 2) ask_row_major(in[2]);
  if (last) ask_channels_last(out[0]);
}

// The plain kernel reads row-major memory.
template <class A>
void run_plain(const KernelArgs& a) {
  if (!lies_last<A>(a)) return run_plain_conv<A>(a);
  SmallVec<RefPtr<Storage>, 4> rooms;
  auto plain = [&](const TensorArg& t) {
    rooms.push_back(engine().scratch(a, static_cast<size_t>(t.numel()) * dtype_size(t.dtype)));
    TensorArg p = t;
    p.ptr = rooms.back()->ptr;
    p.layout = Layout::contiguous(t.shape);
    return p;
  };
  SmallVec<TensorArg, 3> in;
  for (auto& t : a.in) {
    in.push_back(plain(t));
    copy_on_device(a, t, in.back());
  }
  const TensorArg out = plain(a.out[0]);
  KernelArgs c = a;
  c.in = {in.data(), in.size()};
  c.out = {&out, 1};
  run_plain_conv<A>(c);
  copy_on_device(a, out, a.out[0]);
}

// out = out + bias, rounded.
void add_bias(const KernelArgs& a) {
  static const OpDef& op = OpRegistry::global().get("add");
  const TensorArg in[] = {a.out[0], a.in[2]};
  const KernelArgs c{&op, nullptr, in, a.out, nullptr, a.device, a.work};
  run_elementwise(c);
}

template <class A>
void run(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const bool forward = A::kRole == ConvRole::Forward, to_x = A::kRole == ConvRole::InputGrad;
  const Word all = address(a.in[0].ptr) | address(a.in[1].ptr) | address(a.out[0].ptr) | 16;
  const ConvKey key{conv_geom_of<A>(a), A::kRole, a.out[0].dtype, device_of(a), lies_last<A>(a), all & -all};
  if (key.g.empty()) return run_plain<A>(a);  // nothing to add up: zeros
  static std::mutex mutex;                    // a handle has one stream at a time
  std::unique_lock<std::mutex> lock(mutex);
  static auto* plans = new std::unordered_map<ConvKey, std::unique_ptr<ConvPlan>, KeyHash>;
  auto& plan = (*plans)[key];
  DnnHandle handle = handle_of(key.device);
  if (!plan) plan = std::make_unique<ConvPlan>(key, handle);
  if (!plan->plan) {
    lock.unlock();
    return run_plain<A>(a);
  }
  RefPtr<Storage> room;
  char* workspace = nullptr;
  if (plan->workspace > 0) {
    room = scratch(a, static_cast<size_t>(plan->workspace + kAlignment));
    workspace = static_cast<char*>(room->ptr) + (-address(room->ptr) & (kAlignment - 1));
  }
  // x, weight and y by their numbers in the plan
  const int64_t ids[] = {1, 2, 3};
  void *first = a.in[0].ptr, *second = a.in[1].ptr, *result = a.out[0].ptr;
  void* places[] = {forward ? first
                    : to_x  ? result
                            : first,
                    forward || to_x ? second : result,
                    forward ? result
                    : to_x  ? first
                            : second};
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, places);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  dnn().cudnnSetStream(handle, stream_of(a));
  const int status = dnn().cudnnBackendExecute(handle, plan->plan->raw, pack.raw);
  MGE_CHECK(status == 0, Env, "cuDNN: {} failed with status {}.", a.op->name, status);
  lock.unlock();
  if (forward && a.in.size() > 2) add_bias(a);
}

const char* refuse(const KernelArgs& a) {
  if (const char* why = refuse_plain_conv(a)) return why;
  if (!engine().is_gpu()) return "no GPU";
  return cudnn().load() ? nullptr : "libcudnn is not there";
}
template <class A>
void add_role(KernelRegistry& r) {
  add(r, A::kOp, {.name = "cudnn_conv", .refuse = refuse, .run = run<A>, .layouts = layouts<A>}, KernelTier::Library);
}

}  // namespace

void register_cuda_cudnn(KernelRegistry& r) {
  add_role<Conv2dAttrs>(r), add_role<Conv2dDxAttrs>(r), add_role<Conv2dDwAttrs>(r);
}

}  // namespace mge::cuda
