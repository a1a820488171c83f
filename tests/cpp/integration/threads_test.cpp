// The bits of every family of kernels do not depend on the number of threads: random sizes, in the finest pieces there
// are and in the usual ones. Under the thread sanitizer it is also where kernels that write what others read are found.
#include <gmock/gmock.h>

#include <random>

#include "base/cost.h"
#include "base/parallel.h"
#include "core/half.h"
#include "ir/text.h"
#include "jit/interp/interp.h"
#include "pass/pipeline.h"
#include "plan/evaluate.h"
#include "plan/program.h"

namespace mge {
namespace {

class Sizes {
 public:
  explicit Sizes(uint32_t seed) : rng_(seed) {}
  int64_t operator()(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(rng_() % static_cast<uint32_t>(most - least + 1));
  }
  bool odds(int64_t n) { return (*this)(1, n) == 1; }
  uint32_t bits() { return rng_(); }
  const char* one_of(std::initializer_list<const char*> words) {
    return words.begin()[(*this)(0, static_cast<int64_t>(words.size()) - 1)];
  }

 private:
  std::mt19937 rng_;
};

/// Text of a graph of random sizes. Inputs whose name begins with i are indices, below `range`; with p, positive.
struct Case {
  std::string text;
  int64_t range = 1;
};
struct Family {
  const char* name;
  Case (*make)(Sizes& r);
};

std::string graph(const std::string& inputs, const std::string& body, const char* result = "%y") {
  return format("graph g({}) {{\n{}\n}} returns({})", inputs, body, result);
}

struct Window {
  int64_t n, h, w, k, stride, pad, dilate;
  explicit Window(Sizes& r, int64_t most_k = 5)
      : n(r(1, 3)),
        h(r(6, 22)),
        w(r(6, 22)),
        k(r(1, (most_k + 1) / 2) * 2 - 1),
        stride(r(1, 2)),
        pad(r(0, k / 2)),
        dilate(k == 3 && r.odds(4) ? 2 : 1) {}
  int64_t out(int64_t size) const { return (size + 2 * pad - dilate * (k - 1) - 1) / stride + 1; }
  std::string attrs(const std::string& more = "") const {
    return format("{{stride=[{0},{0}], pad=[{1},{1}], dilate=[{2},{2}]{3}}}", stride, pad, dilate, more);
  }
};

Case conv(Sizes& r) {
  const Window g(r);
  const int64_t c = r(1, 40), o = r(1, 40);
  return {graph(format("%x: f32[{},{},{},{}], %w: f32[{},{},{},{}]", g.n, c, g.h, g.w, o, c, g.k, g.k),
                "%0 = conv2d %x, %w " + g.attrs() + "\n%y = relu %0")};
}
Case conv_groups(Sizes& r) {
  const Window g(r);
  const bool depthwise = r.odds(2);
  const int64_t groups = r(2, depthwise ? 50 : 6), c = depthwise ? 1 : r(1, 12), o = depthwise ? r(1, 2) : r(1, 12);
  return {
      graph(format("%x: f32[{},{},{},{}], %w: f32[{},{},{},{},{}]", g.n, groups * c, g.h, g.w, groups, o, c, g.k, g.k),
            "%y = conv2d %x, %w " + g.attrs(format(", groups={}", groups)))};
}
Case conv_integers(Sizes& r) {
  const Window g(r);
  const bool depthwise = r.odds(2);
  const int64_t c = r(1, 70), o = depthwise ? c : r(1, 70);
  const std::string w = depthwise ? format("{},1,1", c) : format("{},{}", o, c);
  return {graph(format("%x: f32[{},{},{},{}], %w: f32[{},{},{}]", g.n, c, g.h, g.w, w, g.k, g.k),
                "%a = quantize %x {type=qint8(0.02,0)}\n%b = quantize %w {type=qint8(0.02,0)}\n%0 = qconv2d %a, %b " +
                    g.attrs(format(", groups={}, type=qint8(0.1,0)", depthwise ? c : 1)) + "\n%y = dequantize %0")};
}
Case product_integers(Sizes& r) {
  const bool tb = r.odds(2);
  const int64_t k = r(1, 150), n = r(1, 150);
  return {graph(format("%x: f32[{},{}], %w: f32[{},{}]", r(1, 90), k, tb ? n : k, tb ? k : n),
                "%a = quantize %x {type=quint8(0.02,99)}\n%b = quantize %w {type=qint8(0.02,0)}\n" +
                    format("%0 = qmatmul %a, %b {{tb={}, type=qint8(0.1,0)}}\n%y = dequantize %0", tb))};
}
Case conv_dx(Sizes& r) {
  const Window g(r);
  const int64_t c = r(1, 24), o = r(1, 24);
  return {graph(format("%g: f32[{},{},{},{}], %w: f32[{},{},{},{}]", g.n, o, g.out(g.h), g.out(g.w), o, c, g.k, g.k),
                "%y = conv2d_dx %g, %w " + g.attrs(format(", x_shape=[{},{},{},{}]", g.n, c, g.h, g.w)))};
}
Case conv_dw(Sizes& r) {
  const Window g(r);
  const int64_t c = r(1, 24), o = r(1, 24);
  return {graph(format("%x: f32[{},{},{},{}], %g: f32[{},{},{},{}]", g.n, c, g.h, g.w, g.n, o, g.out(g.h), g.out(g.w)),
                "%y = conv2d_dw %x, %g " + g.attrs(format(", w_shape=[{},{},{},{}]", o, c, g.k, g.k)))};
}
Case conv_3d(Sizes& r) {
  const int64_t c = r(1, 8), o = r(1, 8);
  return {graph(format("%x: f32[{},{},{},{},{}], %w: f32[{},{},3,3,3]", r(1, 2), c, r(3, 8), r(3, 8), r(3, 8), o, c),
                "%y = conv3d %x, %w {pad=[1,1,1]}")};
}
Case product(Sizes& r) {
  const bool ta = r.odds(2), tb = r.odds(2);
  const int64_t m = r(1, 150), n = r(1, 150), k = r(1, 200), batch = r(1, 4);
  const std::string b = batch > 1 ? format("{},", batch) : "";
  return {graph(format("%a: f32[{}{},{}], %b: f32[{}{},{}]", b, ta ? k : m, ta ? m : k, b, tb ? n : k, tb ? k : n),
                format("%0 = matmul %a, %b {{ta={}, tb={}}}\n%y = tanh %0", ta, tb))};
}
Case product_16(Sizes& r) {
  const int64_t k = r(1, 90);
  const char* t = r.odds(2) ? "f16" : "bf16";
  return {graph(format("%a: {}[{},{}], %b: {}[{},{}]", t, r(1, 60), k, t, k, r(1, 60)), "%y = matmul %a, %b")};
}
std::string three(Sizes& r, const char* t = "f32") { return format("{}[{},{},{}]", t, r(1, 30), r(1, 30), r(1, 40)); }
Case reduction(Sizes& r) {
  const char* axes = r.one_of({"[0]", "[1]", "[2]", "[0,1]", "[1,2]", "[0,2]", "[0,1,2]"});
  return {graph("%x: " + three(r), format("%y = reduce %x {{mode=\"{}\", axes={}}}",
                                          r.one_of({"sum", "mean", "max", "min", "prod"}), axes))};
}
Case reduction_across(Sizes& r) {
  const char* perm = r.one_of({"[0,2,1]", "[2,0,1]", "[1,2,0]"});
  return {graph(format("%x: f32[{},{},{}]", r(1, 4), r(1, 150), r(1, 150)),
                format("%0 = transpose %x {{perm={}}}\n%y = reduce %0 {{mode=\"{}\", axes=[{}]}}", perm,
                       r.one_of({"sum", "mean", "max", "min", "prod"}), r(0, 2)))};
}
Case extreme_place(Sizes& r) {
  return {graph("%x: " + three(r), format("%y = {} %x {{axis={}}}", r.one_of({"argmax", "argmin"}), r(0, 2)))};
}
Case scan(Sizes& r) {
  return {graph("%x: " + three(r), format("%y = {} %x {{axis={}}}", r.one_of({"cumsum", "cumprod"}), r(0, 2)))};
}
Case softmax(Sizes& r) {
  return {graph("%x: " + three(r), format("%y = {} %x {{axis={}}}", r.one_of({"softmax", "logsoftmax"}), r(0, 2)))};
}
Case softmax_back(Sizes& r) {
  const std::string s = three(r);
  return {graph("%y0: " + s + ", %g: " + s,
                format("%y = {} %y0, %g {{axis={}}}", r.one_of({"softmax_bwd", "logsoftmax_bwd"}), r(0, 2)))};
}
Case batch_norm(Sizes& r) {
  const int64_t c = r(1, 30);
  return {
      graph(format("%x: f32[{},{},{},{}], %w: f32[1,{},1,1], %b: f32[1,{},1,1]", r(1, 4), c, r(2, 12), r(2, 12), c, c),
            "%y, %m, %v, %r = batch_norm_train %x, %w, %b"),
      1};
}
Case layer_norm(Sizes& r) {
  const int64_t n = r(2, 300);
  return {graph(format("%x: f32[{},{}], %w: f32[{}], %b: f32[{}]", r(1, 60), n, n, n),
                "%y, %m, %r = layer_norm %x, %w, %b {n_axes=1}")};
}
Case pools(Sizes& r) {
  const int64_t k = r(2, 3);
  return {graph(format("%x: f32[{},{},{},{}]", r(1, 3), r(1, 40), r(4, 20), r(4, 20)),
                format("%y = {} %x {{kernel=[{},{}], stride=[{},{}], pad=[1,1]}}",
                       r.one_of({"max_pool2d", "avg_pool2d"}), k, k, r(1, 2), r(1, 2)))};
}
Case resize(Sizes& r) {
  return {graph(format("%x: f32[{},{},{},{}]", r(1, 3), r(1, 20), r(2, 12), r(2, 12)),
                format("%y = resize %x {{size=[{},{}], mode=\"{}\"}}", r(1, 30), r(1, 30),
                       r.one_of({"linear", "nearest", "cubic"})))};
}
Case elementwise(Sizes& r) {
  const std::string a = three(r);
  return {graph("%x: " + a + ", %z: " + a + ", %s: f32[1]",
                format("%0 = mul %x, %s\n%1 = {} %0\n%2 = sub %1, %z\n%3 = {} %2\n%y = add %3, %x",
                       r.one_of({"sigmoid", "tanh", "exp", "gelu", "erf", "silu"}),
                       r.one_of({"relu", "abs", "square", "sin", "softplus"})))};
}
Case broadcast(Sizes& r) {
  const int64_t a = r(1, 30), b = r(1, 30), c = r(1, 40);
  return {graph(format("%x: f32[{},{},{}], %z: f32[{},1,{}], %u: f32[{},1]", a, b, c, a, c, b),
                format("%0 = {} %x, %z\n%y = {} %0, %u", r.one_of({"add", "div", "maximum"}),
                       r.one_of({"sub", "mul", "atan2"})))};
}
Case moves(Sizes& r) {
  const int64_t a = r(1, 30), b = r(1, 30), c = r(1, 40);
  return {graph(format("%x: f32[{},{},{}], %z: f32[{},{},{}]", a, b, c, r(1, 9), a, c),
                "%0 = transpose %x {perm=[1,0,2]}\n%1 = concat %0, %z {axis=0}\n%2 = transpose %1 {perm=[2,0,1]}\n"
                "%y = copy %2")};
}
Case casts(Sizes& r) {
  return {graph("%x: " + three(r), format("%0 = typecvt %x {{dtype={}}}\n%y = typecvt %0 {{dtype=float32}}",
                                          r.one_of({"float16", "bfloat16", "int8", "int32"})))};
}
Case sorts(Sizes& r) {
  return {
      graph(format("%x: f32[{},{}]", r(1, 60), r(1, 200)), format("%y, %i = sort %x {{axis={}}}", r(0, 1)), "%y, %i")};
}
Case largest(Sizes& r) {
  const int64_t n = r(8, 200);
  return {graph(format("%x: f32[{},{}]", r(1, 60), n),
                format("%y, %i = topk %x {{k={}, axis=1, descending=true, sorted=true}}", r(1, 8)), "%y, %i")};
}
Case takes(Sizes& r) {
  const int64_t n = r(1, 60);
  return {graph(format("%x: f32[{},{}], %i: i32[{}]", n, r(1, 60), r(1, 200)), "%y = take %x, %i {axis=0}"), n};
}
Case take_back(Sizes& r) {
  const int64_t n = r(1, 40), m = r(1, 60), k = r(1, 200);
  return {graph(format("%g: f32[{},{}], %i: i32[{}]", k, m, k),
                format("%y = take_bwd %g, %i {{axis=0, x_shape=[{},{}]}}", n, m)),
          n};
}
Case gathers(Sizes& r) {
  const int64_t n = r(1, 60), m = r(1, 60);
  return {graph(format("%x: f32[{},{}], %i: i32[{},{}]", n, m, r(1, 60), m), "%y = gather %x, %i {axis=0}"), n};
}
Case cross_entropy(Sizes& r) {
  const int64_t n = r(1, 200), k = r(2, 60);
  return {graph(format("%x: f32[{},{}], %i: i32[{}]", n, k, n), "%y, %p = softmax_xent %x, %i {axis=1}", "%y, %p"), k};
}
Case random_numbers(Sizes& r) {
  return {graph(format("%i: i32[4], %x: f32[{}]", r(1, 3000)),
                format("%y, %s = rng_normal %i {{shape=[{},{}]}}\n%d, %m, %t = dropout %x, %s {{p=0.3}}", r(1, 60),
                       r(1, 60)),
                "%y, %d"),
          1000};
}
Case adam(Sizes& r) {
  const int64_t n = r(1, 5000);
  return {graph(format("%w: f32[{0}], %g: f32[{0}], %m: f32[{0}], %pv: f32[{0}], %lr: f32[], %pt: f32[]", n),
                "%y, %m1, %v1 = adam_update %w, %g, %m, %pv, %lr, %pt", "%y, %m1, %v1")};
}

constexpr Family kFamilies[] = {
    {"conv", conv},
    {"conv_groups", conv_groups},
    {"conv_integers", conv_integers},
    {"product_integers", product_integers},
    {"conv_dx", conv_dx},
    {"conv_dw", conv_dw},
    {"conv_3d", conv_3d},
    {"product", product},
    {"product_16", product_16},
    {"reduction", reduction},
    {"reduction_across", reduction_across},
    {"extreme_place", extreme_place},
    {"scan", scan},
    {"softmax", softmax},
    {"softmax_back", softmax_back},
    {"batch_norm", batch_norm},
    {"layer_norm", layer_norm},
    {"pools", pools},
    {"resize", resize},
    {"elementwise", elementwise},
    {"broadcast", broadcast},
    {"moves", moves},
    {"casts", casts},
    {"sorts", sorts},
    {"largest", largest},
    {"takes", takes},
    {"take_back", take_back},
    {"gathers", gathers},
    {"cross_entropy", cross_entropy},
    {"random_numbers", random_numbers},
    {"adam", adam},
};

Buffer numbers(const Meta& m, const std::string& name, int64_t range, Sizes& r) {
  Buffer b = allocate_buffer(m);
  for (int64_t i = 0; i < m.shape.numel(); ++i) {
    const uint32_t bits = r.bits();
    float v = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-29f;
    if (name[0] == 'p') v = std::abs(v) + 1;
    if (m.dtype == DType::I32)
      static_cast<int32_t*>(b.storage->ptr)[i] = static_cast<int32_t>(bits % static_cast<uint32_t>(range));
    else if (m.dtype == DType::F32)
      static_cast<float*>(b.storage->ptr)[i] = v;
    else
      static_cast<uint16_t*>(b.storage->ptr)[i] = m.dtype == DType::F16 ? float_to_half(v) : float_to_bfloat(v);
  }
  return b;
}

class ThreadBits : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    install_interp();
    threads_ = num_threads();
    costs_ = costs();
  }
  void TearDown() override {
    set_num_threads(threads_);
    set_costs(costs_);
  }
  int threads_ = 1;
  Costs costs_;
};

std::string bits_of(Program& p, const std::vector<Buffer>& in) {
  for (size_t i = 0; i < in.size(); ++i) p.bind_input(i, in[i]);
  p.run();
  std::string bytes;
  for (size_t i = 0; i < p.n_outputs(); ++i) {
    const Meta& m = p.output_meta(i);
    const Buffer c = make_contiguous(m, p.output(i));
    bytes.append(static_cast<const char*>(c.data(m.dtype)), m.bytes());
  }
  p.release_buffers();
  return bytes;
}

TEST_P(ThreadBits, AreThoseOfOneThread) {
  constexpr uint32_t kRounds = 4;
  for (uint32_t round = 0; round < kRounds; ++round) {
    Sizes r(round * 977 + 5);
    const Case c = GetParam().make(r);
    SCOPED_TRACE(c.text);
    ir::Graph g = ir::parse(c.text);
    pass::optimize(g, {.opt_level = 2, .evaluate = kernel_evaluator(), .can_fuse = interp_can_fuse});
    std::vector<Buffer> in;
    for (auto v : g.inputs()) in.push_back(numbers(g.meta(v), g.value(v).name, c.range, r));
    std::string want;
    for (const double piece : {0.0, 2000.0}) {
      set_costs({.piece = piece});
      for (const int threads : {1, 2, 3, 5, 16, 64}) {
        set_num_threads(threads);
        auto p = Program::compile(g);
        const std::string got = bits_of(*p, in);
        if (want.empty()) want = got;
        ASSERT_TRUE(got == want) << threads << " threads, pieces of " << piece << " ns";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ThreadBits, testing::ValuesIn(kFamilies),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mge
