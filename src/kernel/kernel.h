// Kernels: per op and kind of device one list, fastest first, ref last. A kernel may refuse (it cannot) or ask to be
// avoided (it can, and another one is expected to be faster), each with a named reason. Eager execution, planned
// programs and Lite all call choose(), so the same inputs give the same kernel and the same bits everywhere.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend.h"
#include "op/opdef.h"

namespace mge {

struct Kernel;

/// One tensor as a kernel sees it. `ptr` already includes layout.offset; strides are in elements.
struct TensorArg {
  void* ptr = nullptr;
  DType dtype = DType::F32;
  Shape shape;
  Layout layout;
  Quant quant;  // of quantised dtypes

  template <class T>
  T* data() const {
    return static_cast<T*>(ptr);
  }
  int64_t numel() const { return shape.numel(); }
  bool contiguous() const { return layout.is_contiguous(shape); }
};

struct KernelArgs {
  const OpDef* op = nullptr;
  const AttrsBase* attrs = nullptr;
  std::span<const TensorArg> in;
  std::span<const TensorArg> out;
  void* workspace = nullptr;
  DeviceKind device = DeviceKind::Cpu;  // where it runs
  Work* work = nullptr;                 // what it enqueues belongs to this; null: it is done when run() returns
  const Kernel* kernel = nullptr;       // itself
  const void* prepared = nullptr;       // what Kernel::prepare made of its operand; null: nothing was

  template <class T>
  const T& as() const {
    return attrs_as<T>(attrs);
  }
};

enum class KernelTier : uint8_t { Library, Simd, Ref };  // MGB_USE_MEGDNN_DBG = 0, 1, 2 starts the search here

enum KernelFlags : uint32_t {
  kStridedInputs = 1,    // takes any input strides; without it the caller hands over contiguous copies
  kInPlace0 = 2,         // out[0] may be the same memory as in[0] when dtype, shape and layout agree
  kInPlaceAny = 4,       // out[0] may be the same memory as any such input
  kInPlaceAll = 8,       // every output may be, each with another one
  kStridedOutputs = 16,  // writes a result of any strides, whatever its inputs' are, in one pass; `layouts` is what it
                         // would choose. Of ops that may be views: where the result is a view of the input's shape
};

struct Kernel {
  const char* name;                                    // "simd_add_f32"
  const char* (*refuse)(const KernelArgs&) = nullptr;  // cannot; null function or null result = can; pointers not set
  void (*run)(const KernelArgs&) = nullptr;
  size_t (*workspace)(const KernelArgs&) = nullptr;  // bytes, 64-aligned; null = none
  uint32_t flags = 0;
  /// Memory order is ours (docs/adr/0007-physical-layout.md). Called after the choice: `in` has the layouts inputs come
  /// in, `out` is row-major. The kernel may give outputs another dense layout and, without kStridedInputs, ask for
  /// inputs in one: those laid out otherwise are copied first. It looks at shapes and layouts only, and the kernel's
  /// bits must not depend on what it answers. Null: outputs, and without kStridedInputs inputs too, are row-major.
  void (*layouts)(const KernelArgs& a, TensorArg* in, TensorArg* out) = nullptr;
  /// out[i] may be the same memory as in[alias[i]] when dtype, shape and layout agree; -1 = never. For several outputs.
  std::array<int8_t, 4> alias = {-1, -1, -1, -1};
  /// Should not: some later kernel of the list is expected to be faster. Fast-run measures it all the same. Like
  /// `refuse` it sees shapes, dtypes and whether inputs are contiguous.
  const char* (*avoid)(const KernelArgs&) = nullptr;
  /// An operand that never changes, a weight of inference, can be brought into the kernel's own order once, when a
  /// program is compiled (CompileOptions::weight_preprocess). run() then takes args.prepared instead of reading it, and
  /// gives the same bits.
  struct Prepare {
    int operand = -1;
    size_t (*bytes)(const KernelArgs&) = nullptr;        // 0: nothing to gain for these arguments
    void (*run)(const KernelArgs&, void* to) = nullptr;  // `to` is 64-byte aligned; of pointers that operand's is set
  };
  Prepare prepare = {};
  KernelTier tier = KernelTier::Ref;  // set by the registry

  /// Whether output `o` may be written over input `i`.
  bool in_place(size_t o, size_t i) const {
    if (flags & kInPlaceAll) return true;
    if (o == 0 && ((flags & kInPlaceAny) || ((flags & kInPlace0) && i == 0))) return true;
    return o < alias.size() && alias[o] == static_cast<int>(i);
  }
};

/// What choose() found: a kernel; or none, with the reasons, and then the op may still have a decomposition.
struct Choice {
  const Kernel* kernel = nullptr;
  std::string refusals;  // "a (why), b (why)"; only without a kernel
};

class KernelRegistry {
 public:
  static KernelRegistry& global();
  /// Kernels of one op are tried by tier, then in the order they were added. They stay where they are for good.
  /// Inlined, so that a kernel of an op that is not in this build is dropped (op/in_build.h).
  template <class Name = OpName>
  MGE_INLINED void add(std::type_identity_t<Name> op, KernelTier tier, const Kernel& k,
                       DeviceKind device = DeviceKind::Cpu) {
    if (op.here) put(op.text, tier, k, device);
  }
  /// In the order they are tried.
  std::span<const std::unique_ptr<Kernel>> list(OpId op, DeviceKind device = DeviceKind::Cpu) const;
  /// The fastest kernel that accepts, cached by device, op, attrs, metas and layout class; a NotImplemented error that
  /// lists every refusal when there is none.
  const Kernel& choose(const KernelArgs& a);
  /// The same, null when there is none; then `none` (may be null) has the reasons, and the op may run as its parts.
  const Kernel* choose(const KernelArgs& a, Choice* none);
  /// Like choose, without the cache and starting at `tier`: the first that neither refuses nor asks to be avoided, else
  /// the first that does not refuse.
  Choice find(const KernelArgs& a, KernelTier tier) const;

 private:
  void put(const char* op, KernelTier tier, const Kernel& k, DeviceKind device);

  std::vector<std::vector<std::unique_ptr<Kernel>>> by_op_[kDeviceKinds];
};
[[noreturn]] void fail_no_kernel(const KernelArgs& a, const Choice& c);

/// Calls the kernel, or enqueues the call where the stream runs host kernels. `rethrow`, called inside a catch block,
/// adds to an error of the enqueued call what the kernel could not know.
void launch(const Kernel& k, KernelArgs& a, std::function<void()> rethrow = {});

// Each backend registers its kernels in one function, called by KernelRegistry::global().
void register_ref_kernels(KernelRegistry& r);
void register_simd_kernels(KernelRegistry& r);
void register_onednn_kernels(KernelRegistry& r);
/// Null, or why oneDNN computes nothing in this process.
const char* onednn_unused();

/// 0 all kernels, 1 from simd on, 2 ref only (env MGB_USE_MEGDNN_DBG). Clears the choice cache.
void set_kernel_tier(int level);
int kernel_tier();
/// Makes choose() choose anew, after something it depends on has changed.
void forget_kernel_choices();

}  // namespace mge
