// matmul where oneDNN is faster than our GEMM: large products, many small ones, few rows against a large matrix.
#include "op/matmul/matmul.h"
#include "base/parallel.h"
#include "kernel/cost.h"
#include "kernel/onednn/leaf.h"
#include "kernel/simd/matmul/steps.h"
#include "op/in_build.h"

namespace mge::onednn {
namespace {

// The op as a batch of plain products.
struct Plan {
  int64_t batch = 1, a_batch = 1, b_batch = 1, m, n, k;
  const char* refuse = nullptr;
};

Plan plan_of(const KernelArgs& args) {
  const MatmulAttrs& at = matmul_attrs(*args.op, args.attrs);
  const Shape &a = args.in[0].shape, &b = args.in[1].shape;
  MatmulGeom g = matmul_geom(at, a, b);
  Plan p;
  p.m = g.m, p.n = g.n, p.k = g.k;
  auto matrices = [](const Shape& s) { return Shape(s.d, static_cast<size_t>(s.rank - 2)).numel(); };
  p.batch = g.batch.numel(), p.a_batch = matrices(a), p.b_batch = matrices(b);
  bool broadcast = (p.a_batch != p.batch && p.a_batch != 1) || (p.b_batch != p.batch && p.b_batch != 1);
  if (broadcast) p.refuse = "batch broadcasting";
  if (p.b_batch == 1 && p.a_batch == p.batch && !at.ta) {  // rows of all batches lie one after the other
    p.m *= p.batch;
    p.batch = p.a_batch = 1;
  }
  return p;
}

// Those of the product, without the operands of steps.
std::span<const TensorArg> inputs_of(const KernelArgs& args) {
  return args.in.first(matmul_inputs(*args.op, args.attrs, args.in.size()));
}

Gemm* gemm_of(const KernelArgs& args, const Plan& p) {
  const MatmulAttrs& at = matmul_attrs(*args.op, args.attrs);
  return find_gemm(p.batch, p.a_batch, p.b_batch, p.m, p.n, p.k, at.ta, at.tb, inputs_of(args).size() == 3,
                   args.in[0].dtype == DType::BF16);
}

const char* refuse(const KernelArgs& args) {
  const bool bfloat16 = args.in[0].dtype == DType::BF16;
  if (bfloat16 && !has_bfloat16()) return "the CPU has no bfloat16";
  for (auto& t : inputs_of(args)) {
    if (t.dtype != (bfloat16 ? DType::BF16 : DType::F32)) return "needs float32 or bfloat16";
    if (!t.contiguous()) return "strided operand";
  }
  Plan p = plan_of(args);
  if (p.refuse) return p.refuse;
  return gemm_of(args, p) ? nullptr : "no oneDNN kernel with reproducible bits";
}

const char* avoid(const KernelArgs& args) {
  if (args.in[0].dtype == DType::BF16) return nullptr;
  const Plan p = plan_of(args);
  // NOTE(perf): GFLOP/s on 2 cores with AVX-512, simd against oneDNN: 1024x512x2048 211/187, 128x3072x768 197/177,
  // 32x1024x1024 212/186.
  const MatmulAttrs& at = matmul_attrs(*args.op, args.attrs);
  if (at.ta || !at.tb) return "plain b or transposed a; simd is as fast or faster";
  const double flops = 2.0 * static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) *
                       static_cast<double>(p.k);
  return cost::library_pays_for_rows(p.m, flops) ? nullptr : "simd is as fast or faster for this number of rows";
}

void run(const KernelArgs& args) {
  gemm_of(args, plan_of(args))
      ->run(args.in[0].ptr, args.in[1].ptr, inputs_of(args).size() == 3 ? args.in[2].ptr : nullptr, args.out[0].ptr);
}

// The library has no way in for steps whose bits would be those of ours: a pass after it.
const char* refuse_fused(const KernelArgs& args) {
  return args.in[0].dtype == DType::F32 ? refuse(args) : "steps are float32";
}
void run_fused(const KernelArgs& args) {
  run(args);
  simd_nn::MatmulEpilogue(args, matmul_geom(matmul_attrs(*args.op, args.attrs), args.in[0].shape, args.in[1].shape))
      .pass();
}

}  // namespace

Gemm* find_gemm(int64_t batch, int64_t a_batch, int64_t b_batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                bool bias, bool bfloat16) {
  // A transposed a with a long k makes oneDNN split k between threads, and the sum then depends on their number.
  if (batch * m * n * k == 0 || (ta && k > 1024)) return nullptr;
  static thread_local Cache<Gemm> cache;
  Key key{{num_threads(), batch, a_batch, b_batch, m, n, k, ta, tb, bias, bfloat16}};
  auto make = [&](int parts) -> std::unique_ptr<Gemm> {
    using dims = dnnl::memory::dims;
    auto type = bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    const Entered entered(parts);
    dnnl::memory::desc a(dims{a_batch, m, k}, type, ta ? dims{m * k, 1, m} : dims{m * k, k, 1});
    dnnl::memory::desc b(dims{b_batch, k, n}, type, tb ? dims{k * n, 1, k} : dims{k * n, n, 1});
    dnnl::memory::desc c(dims{batch, m, n}, type, dims{m * n, n, 1});
    dnnl::memory::desc d = bias ? dnnl::memory::desc(dims{1, 1, n}, type, dims{n, n, 1}) : dnnl::memory::desc();
    dnnl::primitive_attr plain;
    auto pd = bias ? dnnl::matmul::primitive_desc(engine(), a, b, d, c, plain, true)
                   : dnnl::matmul::primitive_desc(engine(), a, b, c, plain, true);
    if (!pd) return nullptr;
    if (std::strncmp(pd.impl_info_str(), "brg", 3) != 0) return nullptr;  // others split k between threads too
    auto none = [](const dnnl::memory::desc& d) { return dnnl::memory(d, engine(), DNNL_MEMORY_NONE); };
    return std::make_unique<Gemm>(
        Gemm{parts, dnnl::matmul(pd), none(a), none(b), bias ? none(d) : dnnl::memory(), none(c)});
  };
  auto same = [&](Gemm& p, Gemm& q) {
    const size_t size = bfloat16 ? 2 : 4, bytes = static_cast<size_t>(batch * m * n) * size;
    const Room ra(static_cast<size_t>(a_batch * m * k) * size), rb(static_cast<size_t>(b_batch * k * n) * size),
        rd(static_cast<size_t>(n) * size), r0(bytes), r1(bytes);
    fill_random(ra.get(), a_batch * m * k, bfloat16);
    fill_random(rb.get(), b_batch * k * n, bfloat16);
    fill_random(rd.get(), n, bfloat16);
    p.run(ra.get(), rb.get(), bias ? rd.get() : nullptr, r0.get());
    q.run(ra.get(), rb.get(), bias ? rd.get() : nullptr, r1.get());
    return std::memcmp(r0.get(), r1.get(), bytes) == 0;
  };
  return cache.get(key, [&] { return made_like_for_one(make, same); });
}

void Gemm::run(const void* pa, const void* pb, const void* pbias, void* pc) {
  a.set_data_handle(const_cast<void*>(pa));
  b.set_data_handle(const_cast<void*>(pb));
  c.set_data_handle(pc);
  if (!pbias) return execute(prim, parts, {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_DST, &c}});
  bias.set_data_handle(const_cast<void*>(pbias));
  execute(prim, parts, {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_BIAS, &bias}, {DNNL_ARG_DST, &c}});
}

void register_matmul(KernelRegistry& r) {
  r.add("matmul", KernelTier::Library, Kernel{.name = "onednn_matmul", .refuse = refuse, .run = run, .avoid = avoid});
  r.add("matmul_fused", KernelTier::Library,
        Kernel{.name = "onednn_matmul_fused", .refuse = refuse_fused, .run = run_fused, .avoid = avoid});
}

}  // namespace mge::onednn
