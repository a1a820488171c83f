// The texts of the GPU's kernels: run by the emulator they give the bits of the reference, and NVRTC takes all of them
// (MGE_CUDA_NVRTC names the library: `make cuda-kernels`).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "cuda/kernel_cases.h"
#include "kernel/copy.h"
#include "kernel/cuda/api.h"
#include "kernel/cuda/emulate.h"
#include "kernel/cuda/engine.h"
#include "kernel/cuda/nvrtc.h"

namespace mge {
namespace {

using namespace cuda_test;
using enum DType;

struct Call {
  std::vector<TensorArg> in, out;
  std::vector<Array> memory;
  std::vector<Layout> given;
  KernelArgs args;
  Call(const Case& c, DeviceKind kind) {
    const OpDef& op = OpRegistry::global().get(c.op);
    std::vector<Meta> metas(c.in.size()), results(op.n_out(c.attrs.get()));
    std::vector<const Meta*> metas_in;
    for (size_t i = 0; i < c.in.size(); ++i) {
      metas[i].dtype = c.in[i].arg.dtype;
      metas[i].shape = c.in[i].arg.shape;
      metas_in.push_back(&metas[i]);
      given.push_back(c.in[i].arg.layout);
      in.push_back(c.in[i].arg);
      in.back().ptr = const_cast<char*>(c.in[i].memory.data());
    }
    infer_op(op, c.attrs.get(), metas_in, results);
    for (auto& m : results) memory.emplace_back(m.dtype, m.shape);
    for (auto& m : memory) {
      out.push_back(m.arg);
      out.back().ptr = m.memory.data();
    }
    args = KernelArgs{&op, c.attrs.get(), in, out, nullptr, kind};
  }
  void run(KernelTier from) {
    const Choice k = KernelRegistry::global().find(args, from);
    if (!k.kernel) fail_no_kernel(args, k);
    args.kernel = k.kernel;
    if (k.kernel->layouts) k.kernel->layouts(args, in.data(), out.data());
    // What the kernel does not read as it lies is copied, as run_op does.
    std::vector<std::vector<char>> copies;
    for (size_t i = 0; i < in.size(); ++i) {
      if (k.kernel->flags & kStridedInputs) break;
      if (k.kernel->layouts ? in[i].layout.same_strides(in[i].shape, given[i]) : in[i].contiguous()) continue;
      TensorArg from = in[i];
      from.layout = given[i];
      if (!k.kernel->layouts) in[i].layout = Layout::contiguous(in[i].shape);
      copies.emplace_back(static_cast<size_t>(in[i].numel()) * dtype_size(in[i].dtype));
      in[i].ptr = copies.back().data();
      copy_strided(from, in[i]);
    }
    k.kernel->run(args);
    for (size_t o = 0; o < out.size(); ++o) {  // to compare element by element
      if (out[o].contiguous()) continue;
      TensorArg plain = out[o];
      copies.emplace_back(memory[o].memory);
      TensorArg there = out[o];
      there.ptr = copies.back().data();
      plain.layout = Layout::contiguous(plain.shape);
      copy_strided(there, plain);
      out[o].layout = plain.layout;
    }
  }
};

// Equal bytes; of NaNs only that both are. Or within `close`, relative to 1 and the value.
std::string difference(const TensorArg& a, const TensorArg& b, double close = 0) {
  const size_t size = dtype_size(a.dtype);
  for (int64_t i = 0; i < a.numel(); ++i) {
    const char *p = a.data<char>() + static_cast<size_t>(i) * size, *q = b.data<char>() + static_cast<size_t>(i) * size;
    if (!std::memcmp(p, q, size)) continue;
    double u = 0, v = 0;
    load_row(a.dtype, p, 1, Compute::F64, &u, 1);
    load_row(a.dtype, q, 1, Compute::F64, &v, 1);
    if (close > 0 && std::abs(u - v) <= close * (1 + std::abs(u))) continue;
    if (u == u || v == v) return format("element {}: {} and {}", i, u, v);
  }
  return {};
}

class Emulated : public ::testing::Test {
 protected:
  void SetUp() override { cuda::emulate_cuda("c++"); }
  void TearDown() override { cuda::emulate_cuda(""); }
  static void compare(const Cases& cases, double close = 0) {
    for (auto& c : cases) {
      SCOPED_TRACE(format("{} {} {}", c.op, c.in.empty() ? "" : std::string(dtype_name(c.in[0].arg.dtype)),
                          c.attrs ? c.attrs->print() : ""));
      Call want(c, DeviceKind::Cpu), got(c, DeviceKind::Cuda);
      want.run(KernelTier::Ref);
      got.run(KernelTier::Library);
      for (size_t o = 0; o < want.out.size(); ++o)
        EXPECT_EQ(difference(want.out[o], got.out[o], close), "") << "output " << o;
    }
  }
};

// A few of each family: the Python suite runs the whole grid of ops (tests/python/test_cuda_kernels.py).
TEST_F(Emulated, CastsGiveTheBitsOfTheReference) { compare(cast_cases(std::array{F32, F16, I32, Bool})); }
TEST_F(Emulated, BroadcastsGiveTheBitsOfTheReference) {
  Cases cases = elementwise_cases(std::array{F32});
  std::erase_if(cases,
                [](const Case& c) { return std::string_view(c.op) != "add" && std::string_view(c.op) != "sub"; });
  compare(cases);
}
TEST_F(Emulated, ReductionsGiveTheBitsOfTheReference) { compare(reduce_cases(std::array{F32})); }
TEST_F(Emulated, RegionsGiveTheBitsOfTheirSteps) {
  for (auto& c : region_cases()) {
    // The reference of `fused` is the interpreter's room; here the steps are run one by one.
    Call got(c, DeviceKind::Cuda);
    got.run(KernelTier::Library);
    const auto& r = attrs_as<FusedRegion>(c.attrs.get());
    std::vector<Array> made;
    made.reserve(r.steps.size());
    for (auto& s : r.steps) {
      Case step{s.op->name.c_str(), s.attrs, {}};
      for (int x : s.args) step.in.push_back(x >= 0 ? c.in[static_cast<size_t>(x)] : made[static_cast<size_t>(-1 - x)]);
      Call call(step, DeviceKind::Cpu);
      call.run(KernelTier::Ref);
      made.push_back(std::move(call.memory[0]));
      made.back().arg.ptr = made.back().memory.data();
    }
    for (size_t o = 0; o < r.outputs.size(); ++o)
      EXPECT_EQ(difference(made[static_cast<size_t>(-1 - r.outputs[o])].arg, got.out[o]), "") << r.print();
  }
}
TEST_F(Emulated, OtherKernelsGiveTheBitsOfTheReference) { compare(other_cases(F32)); }
TEST_F(Emulated, RowsAreNormalisedAsByTheReference) { compare(row_cases(F32), 2e-6); }
TEST_F(Emulated, RowsOf16BitsAreRoundedOnce) { compare(row_cases(BF16), 8e-3); }
TEST_F(Emulated, AnIndexOutOfRangeIsTold) {
  Case c{"index_get", make_attrs(MultiIndexAttrs{{0}, 0}), {}};
  c.in.emplace_back(F32, Shape{5, 2}, whole);
  c.in.emplace_back(I32, Shape{3}, [](int64_t i) { return static_cast<double>(i * 3); });
  Call call(c, DeviceKind::Cuda);
  try {
    call.run(KernelTier::Library);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.text(), "index_get: index 6 at position 2 is out of range; valid are -5..4 (5 entries).");
  }
}

// Collects texts instead of running them.
class Recorder final : public cuda::Engine {
 public:
  void launch(const KernelArgs&, const cuda::Code& c, cuda::Grid, std::span<const cuda::Word>) override {
    texts.emplace(c.text, c.unit);
  }
  RefPtr<Storage> scratch(const KernelArgs&, size_t bytes) override { return allocate_storage({}, bytes); }
  cuda::Word* error_words(const KernelArgs&, cuda::Raise) override { return words_; }
  std::map<std::string, std::string> texts;

 private:
  cuda::Word words_[4] = {};
};

std::string replaced(std::string s, std::string_view from, const std::string& to) {
  for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
  return s;
}

// Many kernels in one text, since NVRTC takes longer for what it includes than for a kernel: each in a namespace, under
// a name of its own, with its headers written out and its macros undefined behind it.
class Bundles {
 public:
  explicit Bundles(const std::map<std::string, std::string>& texts) {
    for (auto& [text, unit] : texts) add(text);
    flush();
  }
  std::vector<std::string> made;

 private:
  static constexpr std::string_view kInclude = "#include \"", kKernel = "extern \"C\" __global__ void ";
  void add(const std::string& text) {
    const std::string number = std::to_string(count_);
    std::string body, macros;
    for (const std::string& line : lines(expanded(text))) {
      body += line + "\n";
      if (line.starts_with("#define ")) {
        const std::string_view name = std::string_view(line).substr(8);
        macros += "#undef " + std::string(name.substr(0, name.find_first_of(" ("))) + "\n";
      }
    }
    all_ += "namespace n" + number + " {\n" + replaced(body, kKernel, std::string(kKernel) + "n" + number + "_") +
            "}\n" + macros;
    if (++count_ % 40 == 0) flush();
  }
  void flush() {
    if (!all_.empty())
      made.push_back("#include \"kernel/cuda/device/region.cuh\"\n#include \"base/philox.h\"\n" + all_);
    all_.clear();
  }
  static std::vector<std::string> lines(const std::string& s) {
    std::vector<std::string> out;
    for (size_t at = 0; at < s.size();) {
      const size_t end = std::min(s.find('\n', at), s.size());
      out.push_back(s.substr(at, end - at));
      at = end + 1;
    }
    return out;
  }
  // Headers that all texts share come first in a bundle; the others depend on the text.
  static std::string expanded(const std::string& text) {
    std::string out;
    for (const std::string& line : lines(text)) {
      if (!line.starts_with(kInclude)) {
        if (line != "#pragma once") out += line + "\n";
        continue;
      }
      const std::string name = line.substr(kInclude.size(), line.rfind('"') - kInclude.size());
      if (name.ends_with("/types.cuh") || name.ends_with("/region.cuh") || name.ends_with("/math64.cuh") ||
          name.ends_with("philox.h"))
        continue;
      for (auto& h : cuda::headers())
        if (name == h.name) out += expanded(h.text);
    }
    return out;
  }
  int count_ = 0;
  std::string all_;
};

TEST(CudaTexts, NvrtcTakesAllOfThem) {
  register_cuda_kernels(KernelRegistry::global());
  const bool all = std::getenv("MGE_CUDA_NVRTC") || std::getenv("MGE_CUDA_ALL");
  Recorder recorder;
  cuda::set_engine(&recorder);
  auto record = [&](const Cases& cases) {
    for (auto& c : cases) Call(c, DeviceKind::Cuda).run(KernelTier::Library);
  };
  const std::vector<DType> every{Bool, U8, I8, U16, I16, I32, I64, F16, BF16, F32, F64};
  record(elementwise_cases(all ? every : std::vector{F32}));
  record(cast_cases(all ? every : std::vector{F32, BF16, U8}));
  record(reduce_cases(all ? every : std::vector{F32}));
  record(region_cases());
  for (DType t : all ? std::vector{F32, F16, BF16, F64} : std::vector{F32, BF16})
    record(other_cases(t)), record(row_cases(t));
  cuda::set_engine(nullptr);
  EXPECT_GT(recorder.texts.size(), all ? 800u : 120u);
  if (!std::getenv("MGE_CUDA_NVRTC")) return;  // nothing to compile with; CI has it
  const Bundles bundles(recorder.texts);
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::min(4u, std::max(1u, std::thread::hardware_concurrency())); ++t)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < 2 * bundles.made.size();) {
        try {
          EXPECT_GT(cuda::compile("mge_bundle", bundles.made[i / 2], i % 2 ? 80 : 90).size(), 1000u);
        } catch (const Error& e) {
          ADD_FAILURE() << e.text().substr(0, 4000);
        }
      }
    });
  for (auto& t : threads) t.join();
  std::printf("%zu kernels in %zu bundles, for two architectures\n", recorder.texts.size(), bundles.made.size());
}

// docs/gpu-ops.md: for every op how it runs on a GPU. MGE_WRITE_DOCS=1 writes it anew.
TEST(CudaOps, EveryOpHasAKernelOrPartsOrIsRefused) {
  register_cuda_kernels(KernelRegistry::global());
  std::vector<std::string> kernels, parts, refused, elementwise;
  const OpRegistry& ops = OpRegistry::global();
  for (size_t id = 0; id < ops.size(); ++id) {
    const OpDef& op = ops.at(static_cast<OpId>(id));
    std::string names;
    for (auto& k : KernelRegistry::global().list(op.id, DeviceKind::Cuda))
      names += format("{}{}", names.empty() ? "" : ", ", k->name);
    if (op.scalar)
      elementwise.push_back(op.name);
    else if (!names.empty())
      kernels.push_back(format("| `{}` | {} |", op.name, names));
    else
      (op.decompose ? parts : refused).push_back(op.name);
  }
  auto line = [](std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    std::string s;
    for (auto& n : names) s += format("{}`{}`", s.empty() ? "" : ", ", n);
    return s;
  };
  std::sort(kernels.begin(), kernels.end());
  std::string table;
  for (auto& k : kernels) table += k + "\n";
  const std::string text = format(
      "# Ops on a GPU\n\nHow each op of the registry runs on a CUDA device. Written by `mge_test_cuda` with "
      "`MGE_WRITE_DOCS=1`, which also\nkeeps it true. Which bits are those of the CPU: "
      "[ADR 0059](adr/0059-kernels-on-the-gpu.md).\n\n"
      "## Elementwise\n\nOne kernel each, from the scalar body, alone or fused ({}).\n\n{}\n\n## Kernels\n\nTried in "
      "this order; the names say what computes: text compiled by NVRTC, cuBLASLt, or cuDNN.\n\n| op | kernels |\n| --- "
      "| --- |\n{}\n## In parts\n\nThese {} ops run as their decomposition.\n\n{}\n\n## Refused\n\nThese {} have "
      "neither: *no gpu kernel for ...*; copy the operands to `cpu0` first.\n\n{}\n",
      elementwise.size(), line(elementwise), table, parts.size(), line(parts), refused.size(), line(refused));
  const std::string path = std::string(MGE_DOCS) + "/gpu-ops.md";
  if (std::getenv("MGE_WRITE_DOCS")) std::ofstream(path) << text;
  std::ifstream file(path);
  const std::string there{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(there == text)
      << "docs/gpu-ops.md is out of date: MGE_WRITE_DOCS=1 mge_test_cuda --gtest_filter=CudaOps.*";
}

}  // namespace
}  // namespace mge
