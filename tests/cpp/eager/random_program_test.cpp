// Random programs give the same bits inline and asynchronously, with and without donation, on one and on two threads,
// while freed memory is overwritten with garbage all the time.
#include <random>

#include "eager/eager_test_util.h"

namespace mge {
namespace {

struct Setting {
  ExecPolicy policy;
  bool donation;
  int threads;
  std::string str() const {
    return std::string(policy == ExecPolicy::Inline ? "inline" : "async") + (donation ? " donating " : " ") +
           std::to_string(threads) + " threads";
  }
};

/// Takes blocks of usual sizes, fills them with NaN and gives them back: what is read after being freed shows.
void poison(std::mt19937& rng) {
  for (size_t floats : {16u, 64u, 256u, 1u << 10, 1u << 14}) {
    if (rng() % 2) continue;
    RefPtr<Storage> a = allocate_storage({}, floats * 4), b = allocate_storage({}, floats * 4);
    std::fill_n(static_cast<float*>(a->ptr), floats, NAN);
    std::fill_n(static_cast<float*>(b->ptr), floats, NAN);
  }
}

/// One run of the program `seed`; the bytes of everything that was read, in order.
class Program {
 public:
  explicit Program(uint32_t seed) : rng_(seed), noise_(seed + 1) {}

  std::vector<std::string> run(int steps) {
    for (int i = 0; i < 4; ++i) keep(random_tensor(random_shape()));
    for (int i = 0; i < steps; ++i) {
      step();
      poison(noise_);
      if (below(12) == 0) check(below(live_.size()));
      while (live_.size() > 12) drop(below(live_.size()));
    }
    for (size_t i = 0; i < live_.size(); ++i) check(i);
    return std::move(read_);
  }

 private:
  size_t below(size_t n) { return rng_() % n; }
  Shape random_shape() {
    Shape s;
    for (size_t rank = below(4); rank > 0; --rank) s.push_back(static_cast<int64_t>(1 + below(6)));
    if (below(8) == 0) s = {64, static_cast<int64_t>(64 + below(80))};  // large enough for two threads
    return s;
  }
  TensorPtr random_tensor(const Shape& s) {
    std::vector<double> v(static_cast<size_t>(s.numel()));
    for (auto& x : v) x = static_cast<double>(static_cast<int32_t>(rng_())) * 0x1p-31;
    return tensor(s, v);
  }
  TensorPtr pick() { return live_[below(live_.size())]; }
  void keep(TensorPtr t) {
    if (t->meta().shape.numel() > 40000) return;
    live_.push_back(std::move(t));
  }
  void drop(size_t i) { live_.erase(live_.begin() + static_cast<int64_t>(i)); }
  void check(size_t i) { read_.push_back(live_[i]->meta().str() + bytes_of(*live_[i])); }

  void step() {
    TensorPtr x = pick();
    const Shape s = x->meta().shape;
    switch (below(12)) {
      case 0:
        return keep(apply("add", {x, random_tensor({})}));
      case 1:
        return keep(apply(below(2) ? "mul" : "sub", {x, x}));
      case 2:
        return keep(apply("tanh", {apply("add", {x, random_tensor(s)})}));  // keeps values small; the sum dies at once
      case 3: {
        TensorPtr y = pick();
        try {
          return keep(apply(below(2) ? "add" : "mul", {x, y}));
        } catch (const Error&) {  // shapes that do not fit
          return;
        }
      }
      case 4:
        return keep(apply("reshape", {x}, make_attrs(ShapeAttrs{{-1}})));
      case 5: {
        Ints perm;
        for (int i = 0; i < s.rank; ++i) perm.push_back((i + 1) % s.rank);
        return keep(apply("transpose", {x}, make_attrs(PermAttrs{perm})));
      }
      case 6: {
        if (s.rank == 0) return;
        int64_t ax = static_cast<int64_t>(below(s.rank)), size = s[static_cast<int>(ax)];
        if (below(2)) return keep(apply("slice", {x}, make_attrs(SliceAttrs{{ax}, {size - 1}, {-1}, {-1}})));
        return keep(apply("slice", {x},
                          make_attrs(SliceAttrs{{ax}, {size / 3}, {size}, {1 + static_cast<int64_t>(below(2))}})));
      }
      case 7: {
        if (s.rank == 0 || s.numel() > 2000) return;
        return keep(apply("concat", {x, x, random_tensor(s)}, make_attrs(AxisAttrs{-1})));
      }
      case 8: {
        if (s.rank == 0) return;
        const char* modes[] = {"sum", "mean", "max", "min"};
        return keep(
            apply("reduce", {x},
                  make_attrs(ReduceAttrs{modes[below(4)], {static_cast<int64_t>(below(s.rank))}, below(2) == 0})));
      }
      case 9: {
        if (s.rank < 2) return;
        return keep(apply("tanh", {apply("matmul", {x, x}, make_attrs(MatmulAttrs{false, true}))}));
      }
      case 10: {  // a cell is updated in place while others may look at its old value
        if (below(2)) keep(detach(*x));
        if (below(3) == 0) keep(apply("reshape", {x}, make_attrs(ShapeAttrs{{1, -1}})));
        TensorPtr y = random_tensor(s);
        Tensor *in[] = {x.get(), y.get()}, *cells[] = {x.get()};
        dispatch_update(op_of("add"), nullptr, in, cells);
        return;
      }
      default: {
        if (s.rank == 0) return;
        int64_t size = s[0];
        SliceAttrs region{{0}, {0}, {(size + 1) / 2}, {1}};
        TensorPtr v = apply("slice", {x}, make_attrs(region));
        return keep(apply("set_slice", {apply("neg", {x}), v}, make_attrs(region)));
      }
    }
  }

  std::mt19937 rng_, noise_;
  std::vector<TensorPtr> live_;
  std::vector<std::string> read_;
};

class RandomPrograms : public EagerTest, public testing::WithParamInterface<int> {};

TEST_P(RandomPrograms, SameBitsUnderEverySetting) {
  size_t before = in_use();
  for (uint32_t k = 0; k < 12; ++k) {
    uint32_t seed = static_cast<uint32_t>(GetParam()) * 1000 + k;
    std::vector<std::string> want;
    for (Setting s : {Setting{ExecPolicy::Inline, false, 1}, Setting{ExecPolicy::Inline, true, 1},
                      Setting{ExecPolicy::Inline, true, 2}, Setting{ExecPolicy::Async, false, 1},
                      Setting{ExecPolicy::Async, true, 1}, Setting{ExecPolicy::Async, true, 2}}) {
      sync();
      set_exec_policy(s.policy);
      set_donation(s.donation);
      set_num_threads(s.threads);
      std::vector<std::string> got = Program(seed).run(120);
      sync();
      if (want.empty()) {
        want = std::move(got);
        ASSERT_GT(want.size(), 8u);
        continue;
      }
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_TRUE(got[i] == want[i]) << "seed " << seed << ", value " << i << " under " << s.str();
    }
  }
  EXPECT_EQ(in_use(), before) << "memory leaked";
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, testing::Range(0, 4),
                         [](auto& info) { return "seed" + std::to_string(info.param); });

}  // namespace
}  // namespace mge
