// run_op: views, copies and ref kernels of the shape ops agree with a naive reference; donation and kernel choice
// rules.
#include "kernel/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "op/elementwise/typecvt.h"
#include "op/in_build.h"
#include "op/shape/shape_cases.h"

namespace mge {
namespace {

Meta meta(const Shape& s, DType t = DType::I32) {
  Meta m;
  m.shape = s;
  m.dtype = t;
  return m;
}
/// x[i] = i in row-major order, laid out as asked, inside memory filled with -1.
Buffer iota(const Shape& s, const Layout& l, int64_t extent, int32_t first = 0) {
  Buffer b{allocate_storage({}, static_cast<size_t>(extent) * 4), l};
  auto* p = static_cast<int32_t*>(b.storage->ptr);
  std::fill_n(p, extent, -1);
  int32_t n = first;
  for_each_index(s, [&](const Index& at) { p[address(l, at)] = n++; });
  return b;
}
std::vector<int32_t> values(const Shape& s, const Buffer& b) {
  std::vector<int32_t> out;
  for_each_index(s,
                 [&](const Index& at) { out.push_back(static_cast<int32_t*>(b.storage->ptr)[address(b.layout, at)]); });
  return out;
}
Buffer run(const char* op, const Attrs& attrs, std::vector<OpInput> in, const Meta& out, bool ref = false) {
  Buffer y;
  run_op(OpRegistry::global().get(op), attrs.get(), in, {&out, 1}, {&y, 1}, {.ref_only = ref});
  return y;
}

TEST(RunOp, ShapeOpsAgreeWithNaiveIndexing) {
  ShapeCases cases(31);
  for (int i = 0; i < 4000; ++i) {
    ShapeCase c = cases.next();
    int64_t extent;
    Layout l = cases.layout(c.in, &extent, true);
    Meta in = meta(c.in), out = meta(c.out);
    Buffer x = iota(c.in, l, extent);
    std::vector<int32_t> before = values(c.in, x), want;
    for_each_index(c.out, [&](const Index& at) { want.push_back(static_cast<int32_t>(c.source(at))); });
    for (bool ref : {false, true}) {
      Buffer y = run(c.op.c_str(), c.attrs, {{&in, &x}}, out, ref);
      ASSERT_EQ(values(c.out, y), want) << c.str() << (ref ? " ref" : " view or copy") << " case " << i;
      if (ref) {
        ASSERT_NE(y.storage, x.storage) << "the oracle must not alias";
        ASSERT_TRUE(y.layout.is_contiguous(c.out));
      }
    }
    ASSERT_EQ(values(c.in, x), before) << "the input was written";
  }
}

TEST(RunOp, ChainsOfViewsAgreeWithCopies) {
  ShapeCases cases(32);
  for (int i = 0; i < 1500; ++i) {
    Shape s = cases.shape(4);
    if (s.numel() == 0) continue;
    Buffer view = iota(s, Layout::contiguous(s), s.numel()), copy = view;
    std::string chain = s.str();
    for (int step = 0; step < 5; ++step) {
      ShapeCase c = cases.next();
      while (!(c.in == s)) {  // make a case for this very shape
        c = cases.next();
        if (c.in.rank == s.rank) {
          if (c.op == "transpose") {
            const Ints& p = attrs_as<PermAttrs>(c.attrs.get()).perm;
            c.in = s;
            for (int k = 0; k < s.rank; ++k) c.out[k] = s[static_cast<int>(p[static_cast<size_t>(k)])];
          } else if (c.op == "slice") {
            c.in = s;
            SliceAttrs a = cases.slice_attrs(s, &c.out);
            c.attrs = make_attrs(a);
          }
        }
        if (c.op == "reshape" && s.numel() > 0)
          c = {"reshape", make_attrs(ShapeAttrs{{s.numel()}}), s, {s.numel()}, nullptr};
      }
      if (c.out.numel() == 0) break;
      Meta in = meta(s), out = meta(c.out);
      view = run(c.op.c_str(), c.attrs, {{&in, &view}}, out);
      copy = run(c.op.c_str(), c.attrs, {{&in, &copy}}, out, true);
      s = c.out;
      chain += " | " + c.str();
      ASSERT_EQ(values(s, view), values(s, copy)) << chain;
    }
  }
}

TEST(RunOp, SetSliceCopiesOrReusesItsInput) {
  ShapeCases cases(33);
  for (int i = 0; i < 2000; ++i) {
    Shape s = cases.shape(4), region;
    SliceAttrs a = cases.slice_attrs(s, &region);
    int64_t xe, ve;
    Layout xl = cases.layout(s, &xe, true), vl = cases.layout(region, &ve, true);
    Meta xm = meta(s), vm = meta(region);
    Buffer x = iota(s, xl, xe), v = iota(region, vl, ve, 1000);
    std::vector<int32_t> want = values(s, x), before = want;
    int32_t next = 1000;
    for_each_index(region, [&](const Index& at) {
      Index to = at;
      for (size_t k = 0; k < a.axes.size(); ++k) {
        auto ax = static_cast<size_t>(a.axes[k]);
        to[ax] = a.starts[k] + at[ax] * a.steps[k];
      }
      want[static_cast<size_t>(linear(s, to))] = next++;
    });
    Attrs attrs = make_attrs(a);
    for (bool ref : {false, true}) {
      Buffer y = run("set_slice", attrs, {{&xm, &x}, {&vm, &v}}, xm, ref);
      ASSERT_EQ(values(s, y), want) << attrs->print();
      ASSERT_EQ(values(s, x), before) << "value semantics: x stays";
    }
    Buffer y = run("set_slice", attrs, {{&xm, &x, true}, {&vm, &v}}, xm);
    ASSERT_EQ(values(s, y), want) << "donated";
    ASSERT_EQ(y.storage == x.storage, xl.is_contiguous(s)) << "a contiguous donated x is reused, another is not";
  }
}

TEST(RunOp, ConcatOfStridedInputs) {
  ShapeCases cases(34);
  for (int i = 0; i < 1500; ++i) {
    Shape base = cases.shape(4);
    if (base.rank == 0) continue;
    int axis = static_cast<int>(cases.below(base.rank));
    size_t count = 1 + static_cast<size_t>(cases.below(4));
    std::vector<Meta> metas;
    std::vector<Buffer> buffers;
    Meta out = meta(base);
    out.shape[axis] = 0;
    for (size_t k = 0; k < count; ++k) {
      Shape s = base;
      s[axis] = cases.below(4);
      int64_t e;
      Layout l = cases.layout(s, &e, true);
      metas.push_back(meta(s));
      buffers.push_back(iota(s, l, e, static_cast<int32_t>(k) * 10000));
      out.shape[axis] += s[axis];
    }
    std::vector<OpInput> in;
    for (size_t k = 0; k < count; ++k) in.push_back({&metas[k], &buffers[k]});
    std::vector<int32_t> want;
    for_each_index(out.shape, [&](const Index& at) {
      Index x = at;
      size_t k = 0;
      while (x[static_cast<size_t>(axis)] >= metas[k].shape[axis])
        x[static_cast<size_t>(axis)] -= metas[k++].shape[axis];
      want.push_back(static_cast<int32_t>(k) * 10000 + static_cast<int32_t>(linear(metas[k].shape, x)));
    });
    Attrs attrs = make_attrs(AxisAttrs{cases.below(2) ? axis : axis - base.rank});
    for (bool ref : {false, true}) ASSERT_EQ(values(out.shape, run("concat", attrs, in, out, ref)), want) << out.str();
  }
}

// full is typecvt of its number: out-of-range values must not depend on the compiler.
TEST(RunOp, FullConvertsLikeTypecvt) {
  for (double v : {0.0, 1.0, -1.0, 2.5, -2.5, 255.0, 256.0, 300.0, -129.0, 65536.0, 3e9, -3e9, 1e20, double(NAN),
                   double(INFINITY), -double(INFINITY)})
    for (DType t : {DType::Bool, DType::U8, DType::I8, DType::U16, DType::I16, DType::I32, DType::I64, DType::F16,
                    DType::BF16, DType::F32, DType::F64}) {
      Meta out = meta({3}, t), number = meta({3}, DType::F64);
      Buffer x{allocate_storage({}, 24), Layout::contiguous({3})};
      std::fill_n(static_cast<double*>(x.storage->ptr), 3, v);
      Buffer want = run("typecvt", make_attrs(TypeCvtAttrs{t}), {{&number, &x}}, out, true);
      Buffer got = run("full", make_attrs(FullAttrs{{3}, v, t}), {}, out);
      EXPECT_EQ(std::memcmp(got.storage->ptr, want.storage->ptr, out.bytes()), 0) << dtype_name(t) << " of " << v;
      Buffer like = run("fill_like", make_attrs(ValueAttrs{v}), {{&out, &want}}, out);
      EXPECT_EQ(std::memcmp(like.storage->ptr, got.storage->ptr, out.bytes()), 0) << dtype_name(t) << " of " << v;
    }
}

// ---- rules of run_op, on an op of our own: y = x + 1 over int32

int g_runs = 0;
void* g_workspace = nullptr;
const char* refuse_all(const KernelArgs&) { return "is only here to refuse"; }
const char* refuse_long(const KernelArgs& a) { return a.in[0].numel() > 100 ? "needs at most 100 elements" : nullptr; }
void add_one(const KernelArgs& a) {
  ++g_runs;
  g_workspace = a.workspace;
  ASSERT_TRUE(a.in[0].contiguous());
  for (int64_t i = 0; i < a.in[0].numel(); ++i) a.out[0].data<int32_t>()[i] = a.in[0].data<int32_t>()[i] + 1;
}

const OpDef& probe() {
  static const OpDef& op = [&]() -> const OpDef& {
    OpRegistry& ops = OpRegistry::global();
    ops.op("test_add_one").in("x").out("y").infer([](InferCtx& c) { c.out[0] = c.x(0); }).doc("x + 1.").traits(kNoGrad);
    KernelRegistry& r = KernelRegistry::global();
    r.add("test_add_one", KernelTier::Simd, {.name = "probe_never", .refuse = refuse_all, .run = add_one});
    r.add("test_add_one", KernelTier::Simd,
          {.name = "probe_short",
           .refuse = refuse_long,
           .run = add_one,
           .workspace = [](const KernelArgs&) { return size_t{128}; },
           .flags = kInPlace0});
    return ops.get("test_add_one");
  }();
  return op;
}

TEST(RunOp, DonationNeedsPermissionFromEverybody) {
  Shape s{2, 3};
  Meta m = meta(s);
  auto run_probe = [&](const Buffer& x, bool donated) {
    OpInput in{&m, &x, donated};
    Buffer y;
    run_op(probe(), nullptr, {&in, 1}, {&m, 1}, {&y, 1});
    EXPECT_EQ(values(s, y), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
    return y.storage == x.storage;
  };
  EXPECT_FALSE(run_probe(iota(s, Layout::contiguous(s), 6), false)) << "not offered";
  EXPECT_TRUE(run_probe(iota(s, Layout::contiguous(s), 6), true));
  Buffer fixed = iota(s, Layout::contiguous(s), 6);
  fixed.storage->writable = false;
  EXPECT_FALSE(run_probe(fixed, true)) << "read-only memory";
  Layout column;
  column.stride[0] = 1, column.stride[1] = 2;
  EXPECT_FALSE(run_probe(iota(s, column, 6), true)) << "the kernel saw a contiguous copy";
  Layout inside = Layout::contiguous(s);
  inside.offset = 5;
  Buffer part = iota(s, inside, 20);
  EXPECT_TRUE(run_probe(part, true)) << "a contiguous part of a block serves too";
  EXPECT_EQ(static_cast<int32_t*>(part.storage->ptr)[4], -1);
  EXPECT_EQ(static_cast<int32_t*>(part.storage->ptr)[11], -1);
}

TEST(RunOp, WorkspaceIsAlignedAndGivenBack) {
  Shape s{4};
  Meta m = meta(s);
  Buffer x = iota(s, Layout::contiguous(s), 4), y;
  OpInput in{&m, &x};
  run_op(probe(), nullptr, {&in, 1}, {&m, 1}, {&y, 1});
  EXPECT_NE(g_workspace, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(g_workspace) % 64, 0u);
}

TEST(RunOp, RefusalsAreListed) {
  Shape s{101};
  Meta m = meta(s);
  Buffer x = iota(s, Layout::contiguous(s), 101), y;
  OpInput in{&m, &x};
  try {
    run_op(probe(), nullptr, {&in, 1}, {&m, 1}, {&y, 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::NotImplemented);
    EXPECT_EQ(e.text(),
              "test_add_one: no cpu kernel for int32[101]. Tried: probe_never (is only here to refuse), probe_short "
              "(needs at most 100 elements).");
  }
  try {
    run_op(probe(), nullptr, {&in, 1}, {&m, 1}, {&y, 1}, {.ref_only = true});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.text(), "test_add_one: no cpu kernel for int32[101]. Tried: none is registered.");
  }
}

// The choice cache holds pointers into the registry; a kernel added later must not leave them dangling, and is found.
TEST(RunOp, KernelsAddedLaterAreSeen) {
  Shape s{3};
  Meta m = meta(s);
  Buffer x = iota(s, Layout::contiguous(s), 3), y;
  OpInput in{&m, &x};
  auto once = [&] { run_op(probe(), nullptr, {&in, 1}, {&m, 1}, {&y, 1}); };
  once();
  static int fast = 0;
  for (int i = 0; i < 20; ++i)  // enough to make the list grow
    KernelRegistry::global().add("test_add_one", KernelTier::Simd,
                                 {.name = "probe_more", .refuse = refuse_all, .run = add_one});
  once();
  KernelRegistry::global().add("test_add_one", KernelTier::Library,
                               {.name = "probe_fast", .run = [](const KernelArgs& a) {
                                  ++fast;
                                  add_one(a);
                                }});
  once();
  EXPECT_EQ(fast, 1) << "the cached slower kernel was used";
  set_kernel_tier(1);
  once();
  EXPECT_EQ(fast, 1) << "tier 1 leaves libraries out";
  set_kernel_tier(0);
  once();
  EXPECT_EQ(fast, 2);
  EXPECT_THROW(set_kernel_tier(3), Error);
}

}  // namespace
}  // namespace mge
