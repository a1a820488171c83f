// matmul by cuBLASLt. float32 is computed in float32 (no TF32), 16-bit floats are summed in float32.
#include <mutex>
#include <unordered_map>

#include "kernel/cuda/api.h"
#include "kernel/cuda/cublaslt_api.h"
#include "kernel/cuda/matmul.h"
#include "kernel/cuda/written.h"

namespace mge::cuda {

const Lt& lt() {
  static const Lt* table = [] {
    auto* t = new Lt;
#define MGE_LT_LOAD(name, arguments) t->name = reinterpret_cast<int(*) arguments>(cublaslt().symbol(#name));
    MGE_CUBLASLT(MGE_LT_LOAD)
#undef MGE_LT_LOAD
    return t;
  }();
  return *table;
}

namespace {

constexpr size_t kWorkspace = 32 << 20;
constexpr int64_t kAlignment = 256;  // of the workspace; less is an invalid value to cuBLASLt

void check_lt(int status, const char* what) {
  MGE_CHECK(status == 0, Env, "cuBLASLt: {} failed with status {}.", what, status);
}
LtHandle handle_of(int device) {
  static std::mutex mutex;
  static LtHandle handles[kMaxDevices] = {};
  std::lock_guard<std::mutex> lock(mutex);
  if (!handles[device]) check_lt(lt().cublasLtCreate(&handles[device]), "cublasLtCreate");
  return handles[device];
}

int type_of(DType t) {
  return t == DType::F32 ? CUDA_R_32F : t == DType::F64 ? CUDA_R_64F : t == DType::F16 ? CUDA_R_16F : CUDA_R_16BF;
}

// All that decides the algorithm.
struct PlanKey {
  int64_t m, n, k, batch, stride_a, stride_b, stride_y;
  int32_t type, device, flags, alignment;
  bool operator==(const PlanKey&) const = default;
};
struct PlanHash {
  size_t operator()(const PlanKey& k) const {
    uint64_t h = 0;
    for (int64_t v : {k.m, k.n, k.k, k.batch, k.stride_a, k.stride_b, k.stride_y})
      h = hash_mix(h, static_cast<uint64_t>(v));
    for (int32_t v : {k.type, k.device, k.flags, k.alignment}) h = hash_mix(h, static_cast<uint64_t>(v));
    return h;
  }
};

struct Plan {
  LtDesc desc = nullptr;
  LtLayout a = nullptr, b = nullptr, y = nullptr;
  LtHeuristic found{};

  // Memory is row-major and cuBLASLt reads columns: y' = b' a'.
  explicit Plan(const PlanKey& k) {
    const bool ta = k.flags & 1, tb = k.flags & 2, bias = k.flags & 4;
    const Lt& f = lt();
    check_lt(f.cublasLtMatmulDescCreate(&desc, k.type == CUDA_R_64F ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        k.type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F),
             "cublasLtMatmulDescCreate");
    const int32_t transpose = CUBLAS_OP_T;
    if (tb) f.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose);
    if (ta) f.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &transpose, sizeof transpose);
    if (bias) {
      const int32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      f.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    }
    auto layout = [&](LtLayout& l, int64_t rows, int64_t cols, int64_t stride) {
      check_lt(f.cublasLtMatrixLayoutCreate(&l, k.type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), rows),
               "cublasLtMatrixLayoutCreate");
      if (k.batch == 1) return;
      const auto count = static_cast<int32_t>(k.batch);
      f.cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
      f.cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    };
    layout(a, ta ? k.m : k.k, ta ? k.k : k.m, k.stride_a);
    layout(b, tb ? k.k : k.n, tb ? k.n : k.k, k.stride_b);
    layout(y, k.n, k.m, k.stride_y);
    LtPreference wish = nullptr;
    check_lt(f.cublasLtMatmulPreferenceCreate(&wish), "cublasLtMatmulPreferenceCreate");
    const size_t most = kWorkspace;
    f.cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    const auto alignment = static_cast<uint32_t>(k.alignment);
    for (int i = 0; i < 4; ++i)
      f.cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &alignment,
                                             sizeof alignment);
    int count = 0;
    const int status = f.cublasLtMatmulAlgoGetHeuristic(handle_of(k.device), desc, b, a, y, y, wish, 1, &found, &count);
    f.cublasLtMatmulPreferenceDestroy(wish);
    MGE_CHECK(status == 0 && count > 0, Env, "cuBLASLt: no algorithm for a product of {}x{} by {}x{} (status {}).", k.m,
              k.k, k.k, k.n, status);
  }
};

Plan& plan_of(const PlanKey& k) {
  static auto* plans = new std::unordered_map<PlanKey, std::unique_ptr<Plan>, PlanHash>;
  auto& p = (*plans)[k];
  if (!p) p = std::make_unique<Plan>(k);
  return *p;
}

void run(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const Product p(a);
  const DType t = a.out[0].dtype;
  const auto size = static_cast<int64_t>(dtype_size(t));
  // The innermost batch axis is cuBLASLt's; it is called for each place of the others.
  const int inner = p.batch.rank - 1;
  const auto at = static_cast<size_t>(inner);
  uintptr_t lowest = address(a.out[0].ptr) | address(a.in[0].ptr) | address(a.in[1].ptr) | 256;
  if (p.bias) lowest |= address(p.bias->ptr);
  int64_t calls = 1;
  for (int i = 0; i < inner; ++i) {
    calls *= p.batch.size[i];
    for (auto& s : p.batch.stride) lowest |= static_cast<uintptr_t>(s[static_cast<size_t>(i)] * size);
  }
  const PlanKey key{p.m,
                    p.n,
                    p.k,
                    p.batch.size[inner],
                    p.batch.stride[1][at],
                    p.batch.stride[2][at],
                    p.batch.stride[0][at],
                    type_of(t),
                    device_of(a),
                    p.ta | p.tb << 1 | (p.bias ? 4 : 0),
                    static_cast<int32_t>(lowest & -lowest)};
  static std::mutex mutex;  // a plan holds the address of the bias
  std::lock_guard<std::mutex> lock(mutex);
  Plan& plan = plan_of(key);
  RefPtr<Storage> room;
  char* workspace = nullptr;
  if (plan.found.workspace) {
    room = scratch(a, plan.found.workspace + static_cast<size_t>(kAlignment));
    workspace = static_cast<char*>(room->ptr) + (-address(room->ptr) & (kAlignment - 1));
  }
  if (p.bias) {
    const void* bias = p.bias->ptr;
    lt().cublasLtMatmulDescSetAttribute(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  }
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool wide = t == DType::F64;
  const void *alpha = wide ? static_cast<const void*>(&one64) : &one,
             *beta = wide ? static_cast<const void*>(&zero64) : &zero;
  for (int64_t c = 0; c < calls; ++c) {
    char* place[3] = {a.out[0].data<char>(), a.in[0].data<char>(), a.in[1].data<char>()};
    int64_t rest = c;
    for (int i = inner - 1; i >= 0; --i) {
      for (size_t o = 0; o < 3; ++o)
        place[o] += rest % p.batch.size[i] * p.batch.stride[o][static_cast<size_t>(i)] * size;
      rest /= p.batch.size[i];
    }
    check_lt(
        lt().cublasLtMatmul(handle_of(key.device), plan.desc, alpha, place[2], plan.b, place[1], plan.a, beta, place[0],
                            plan.y, place[0], plan.y, &plan.found.algo, workspace, plan.found.workspace, stream_of(a)),
        "cublasLtMatmul");
  }
}

const char* refuse(const KernelArgs& a) {
  if (!is_float(a.out[0].dtype)) return "needs floating point";
  for (auto& t : a.in)
    if (t.dtype != a.out[0].dtype) return "operands of several dtypes";
  const MatmulGeom g = matmul_geom(a.as<MatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  if (g.k == 0) return "nothing to add up";
  if (!engine().is_gpu()) return "no GPU";
  return cublaslt().load() ? nullptr : "libcublasLt is not there";
}

}  // namespace

void register_cuda_cublaslt(KernelRegistry& r) {
  add(r, "matmul", {.name = "cublaslt_matmul", .refuse = refuse, .run = run}, KernelTier::Library);
}

}  // namespace mge::cuda
