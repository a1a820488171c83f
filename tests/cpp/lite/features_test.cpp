// Options and what Runtime offers: each with its effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "core/pool.h"
#include "kernel/tune.h"
#include "lite/global.h"
#include "lite/network_impl.h"
#include "models.h"

namespace lite {
namespace {

using test::error_of;
using test::fill;
using test::floats;
using test::kAffine;
using test::load;
using test::load_net;
using testing::ElementsAre;
using testing::HasSubstr;

// Elementwise ops around a reduction: what fusion would merge.
constexpr const char* kChain = R"(
graph chain(%x: f32[4,64]) {
  %0 = mul %x, %x
  %1 = relu %0
  %2 = exp %1
  %3 = reduce %2 {mode="sum", axes=[1]}
} returns(%3)
)";

std::vector<float> run_net(Network& net) {
  fill(*net.get_io_tensor("data"), [](size_t i) { return static_cast<float>(i % 17) / 16 - 0.5f; });
  return test::run(net);
}
std::vector<float> expected() {
  auto net = load_net();
  return run_net(*net);
}
Config with(const std::function<void(Config&)>& set) {
  Config c;
  set(c);
  return c;
}

class Counting final : public Allocator {
 public:
  void* allocate(LiteDeviceType type, int id, size_t size, size_t align) override {
    EXPECT_EQ(type, LITE_CPU);
    EXPECT_EQ(id, 0);
    if (size > most) return nullptr;
    ++taken;
    return ::aligned_alloc(align, (size + align - 1) / align * align);
  }
  void free(LiteDeviceType, int, void* p) override {
    ++given;
    std::free(p);
  }
  std::atomic<int> taken{0}, given{0};
  size_t most = SIZE_MAX;
};

// One that does not look at the alignment.
class Crooked final : public Allocator {
 public:
  void* allocate(LiteDeviceType, int, size_t size, size_t) override {
    auto* p = static_cast<char*>(std::malloc(size + 4));
    return p + 4;
  }
  void free(LiteDeviceType, int, void* p) override { std::free(static_cast<char*>(p) - 4); }
};

TEST(LiteAllocator, MemoryOfRunsIsTheUsers) {
  auto counting = std::make_shared<Counting>();
  {
    auto net = std::make_shared<Network>();
    Runtime::set_memory_allocator(net, counting);
    net->load_model(test::net_path());
    EXPECT_EQ(run_net(*net), expected());
    EXPECT_GT(counting->taken, 0);
    const int before = counting->taken;
    load_net();  // another network has nothing to do with it
    EXPECT_EQ(counting->taken, before);
    counting->most = 0;
    EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("the allocator that the program gave has no "));
    counting->most = SIZE_MAX;
    EXPECT_EQ(run_net(*net), expected());
  }
  EXPECT_EQ(counting->taken, counting->given);
  auto net = std::make_shared<Network>();
  Runtime::set_memory_allocator(net, std::make_shared<Crooked>());
  net->load_model(test::net_path());
  EXPECT_EQ(run_net(*net), expected());
  EXPECT_THAT(error_of([&] { Runtime::set_memory_allocator(net, counting); }), HasSubstr("must come before"));
  EXPECT_THAT(error_of([&] { Runtime::set_memory_allocator(std::make_shared<Network>(), nullptr); }),
              HasSubstr("got no allocator"));
}

TEST(LiteAllocator, ThrowingOnesAreErrors) {
  struct Throws final : Allocator {
    void* allocate(LiteDeviceType, int, size_t, size_t) override { throw std::runtime_error("not today"); }
    void free(LiteDeviceType, int, void*) override {}
  };
  auto net = std::make_shared<Network>();
  Runtime::set_memory_allocator(net, std::make_shared<Throws>());
  EXPECT_THAT(error_of([&] {
                net->load_model(test::net_path());
                net->forward();
              }),
              HasSubstr("not today"));
}

TEST(LiteMemory, WithoutEnoughARunFailsAndTheNextOneWorks) {
  auto net = load_net();
  const std::vector<float> want = run_net(*net);
  Layout big = net->get_io_tensor("data")->get_layout();
  const Layout small = big;
  big.shapes[0] = 4096;
  net->get_io_tensor("data")->set_layout(big);
  net->get_io_tensor("data")->fill_zero();
  mge::Pool::of({}).set_limit(mge::Pool::of({}).stats().allocated + (1 << 16));
  const std::string text = error_of([&] { net->forward(); });
  mge::Pool::of({}).set_limit(0);
  EXPECT_THAT(text, HasSubstr("memory"));
  net->get_io_tensor("data")->set_layout(small);
  EXPECT_EQ(run_net(*net), want);
}

TEST(LiteShare, RuntimeMemoryOfNetworksThatFollowEachOther) {
  auto a = load_net(), b = std::make_shared<Network>();
  Runtime::share_runtime_memory_with(b, a);
  b->load_model(test::net_path());
  const std::vector<float> want = run_net(*a);
  EXPECT_EQ(run_net(*b), want);
  mge::Pool::of({}).reset_peak();
  const size_t before = mge::Pool::of({}).stats().max_allocated;
  run_net(*a);
  const size_t one = mge::Pool::of({}).stats().max_allocated - before;
  run_net(*b);
  EXPECT_LE(mge::Pool::of({}).stats().max_allocated - before, one);  // what one needs serves both
  auto recorded = std::make_shared<Network>(with([](Config& c) { c.options.comp_node_seq_record_level = 1; }));
  EXPECT_THAT(error_of([&] { Runtime::share_runtime_memory_with(recorded, a); }), HasSubstr("Use level 0 for both"));
  recorded->load_model(test::net_path());
  auto c = std::make_shared<Network>();
  EXPECT_THAT(error_of([&] { Runtime::share_runtime_memory_with(c, recorded); }), HasSubstr("Use level 0 for both"));
  EXPECT_THAT(error_of([&] { Runtime::share_runtime_memory_with(a, b); }), HasSubstr("must come before"));
  EXPECT_THAT(error_of([&] { Runtime::share_runtime_memory_with(c, c); }), HasSubstr("two networks"));
  EXPECT_THAT(error_of([&] { Runtime::share_runtime_memory_with(nullptr, c); }), HasSubstr("null"));
}

TEST(LiteDiscrete, ABatchOfSingleTensors) {
  auto net = load(kAffine, with([](Config& c) { c.discrete_input_name = "x"; }));
  auto parts = net->get_discrete_tensors("x");
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]->get_layout().shapes[0], 1u);
  fill(*parts[0], [](size_t i) { return static_cast<float>(i); });
  float own[3] = {10, 11, 12};  // memory of the program, as it lies
  parts[1]->reset(own, sizeof own);
  fill(*net->get_io_tensor("b"), [](size_t) { return 100.f; });
  EXPECT_THAT(test::run(*net), ElementsAre(100, 101, 102, 110, 111, 112));
  own[2] = 0;
  EXPECT_EQ(test::run(*net)[5], 100);
  EXPECT_EQ(net->get_input_tensors(0).size(), 2u);
  EXPECT_THAT(error_of([&] { net->get_io_tensor("x"); }), HasSubstr("it has 2 tensors. Use get_discrete_tensors"));
  EXPECT_THAT(error_of([&] { net->get_discrete_tensors("b"); }), HasSubstr("'b' is no discrete input"));
  Layout wrong = parts[0]->get_layout();
  wrong.shapes[1] = 4;
  parts[0]->set_layout(wrong);
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("a tensor of the discrete input 'x' is"));
}

TEST(LiteOptions, ConstShapeHoldsWhatItPromises) {
  auto net = load(kAffine, with([](Config& c) { c.options.const_shape = true; }));
  net->get_io_tensor("x")->fill_zero();
  net->get_io_tensor("b")->fill_zero();
  test::run(*net);
  Layout l = net->get_io_tensor("x")->get_layout();
  l.shapes[0] = 5;
  net->get_io_tensor("x")->set_layout(l);
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("const_shape promised that it would not change"));
  l.shapes[0] = 2;
  net->get_io_tensor("x")->set_layout(l);
  test::run(*net);
}

TEST(LiteOptions, DynamicAllocationGivesTheSameBits) {
  auto net = load_net(with([](Config& c) { c.options.force_dynamic_alloc = true; }));
  EXPECT_EQ(run_net(*net), expected());
  EXPECT_EQ(run_net(*net), expected());
  EXPECT_THAT(error_of([] {
                load_net(with([](Config& c) {
                  c.options.force_dynamic_alloc = true;
                  c.options.comp_node_seq_record_level = 1;
                }));
              }),
              HasSubstr("exclude each other"));
}

TEST(LiteOptions, JitLevelsDecideWhatIsFused) {
  auto instructions = [](int level, int jit) {
    auto net = load(kChain, with([&](Config& c) {
                      c.options.graph_opt_level = static_cast<uint8_t>(level);
                      c.options.jit_level = static_cast<uint8_t>(jit);
                    }));
    fill(*net->get_io_tensor("x"), [](size_t i) { return static_cast<float>(i % 7) / 8; });
    const std::vector<float> y = test::run(*net);
    return std::pair(NetworkAccess::impl(*net).engine->programs().front()->report().instrs, y);
  };
  const auto [plain, want] = instructions(0, 0);
  EXPECT_EQ(plain, 4);
  const std::tuple<int, int, int> rows[] = {{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {2, 1, 2}, {2, 2, 1}};
  for (auto [level, jit, n] : rows) {
    const auto [got, y] = instructions(level, jit);
    EXPECT_EQ(got, n) << "level " << level << ", jit " << jit;
    EXPECT_EQ(y, want);
  }
}

TEST(LiteOptions, AsyncExecLevelAlwaysReturnsAtOnce) {
  auto net = load_net(with([](Config& c) { c.options.async_exec_level = 4; }));
  int finished = 0;
  net->set_finish_callback([&](auto&) { ++finished; });
  fill(*net->get_io_tensor("data"), [](size_t i) { return static_cast<float>(i % 17) / 16 - 0.5f; });
  net->forward();
  net->wait();
  EXPECT_EQ(finished, 1);
  EXPECT_EQ(floats(*net->get_output_tensor(0)), expected());
  Layout l = net->get_io_tensor("data")->get_layout();
  l.shapes[1] = 7;
  net->get_io_tensor("data")->set_layout(l);
  net->forward();  // what fails there is told by wait
  EXPECT_THAT(error_of([&] { net->wait(); }), HasSubstr("conv2d"));
}

TEST(LiteOptions, AutoOptimizeInferencePreparesWeights) {
  auto net = load_net(with([](Config& c) { c.auto_optimize_inference = true; }));
  EXPECT_EQ(run_net(*net), expected());
}

class FastRun : public testing::Test {
 protected:
  void SetUp() override { mge::set_tuning_file(""); }  // and forget what is known
  static uint64_t measured() { return mge::tuning_stats().measured; }
  static std::shared_ptr<Network> tuned(int strategy, uint32_t batch = 0, const Config& c = {}) {
    auto net = std::make_shared<Network>(c);
    Runtime::set_network_algo_policy(net, static_cast<LiteAlgoSelectStrategy>(strategy), batch);
    net->load_model(test::net_path());
    return net;
  }
  static void set_batch(Network& net, size_t n) {
    Layout l = net.get_io_tensor("data")->get_layout();
    l.shapes[0] = n;
    net.get_io_tensor("data")->set_layout(l);
    net.get_io_tensor("data")->fill_zero();
    net.forward();
    net.wait();
  }
};

TEST_F(FastRun, ProfileMeasuresOnceAndIsBoundToItsNetwork) {
  const uint64_t before = measured();
  auto net = tuned(LITE_ALGO_PROFILE | LITE_ALGO_OPTIMIZED);
  const uint64_t first = measured() - before;
  EXPECT_GT(first, 0u);
  EXPECT_EQ(mge::kernel_strategy(), mge::kHeuristic);
  tuned(LITE_ALGO_PROFILE);
  load_net();
  EXPECT_EQ(measured() - before, first);
  set_batch(*net, 3);
  EXPECT_GT(measured() - before, first);
  EXPECT_THAT(error_of([] { tuned(64); }), HasSubstr("64 is no combination"));
}

TEST_F(FastRun, ProfileWithHeuristicOnlyLooksUp) {
  const uint64_t before = measured();
  tuned(LITE_ALGO_PROFILE | LITE_ALGO_HEURISTIC);
  EXPECT_EQ(measured(), before);
}

TEST_F(FastRun, ASharedBatchServesAll) {
  auto net = tuned(LITE_ALGO_PROFILE, 4);
  const uint64_t after = measured();
  set_batch(*net, 3);
  set_batch(*net, 5);
  EXPECT_EQ(measured(), after);
}

TEST_F(FastRun, NoProfilingOnShapeChange) {
  auto net = tuned(LITE_ALGO_PROFILE, 0, with([](Config& c) { c.options.no_profiling_on_shape_change = true; }));
  const uint64_t after = measured();
  set_batch(*net, 3);
  EXPECT_EQ(measured(), after);
}

TEST_F(FastRun, WorkspaceLimit) {
  auto net = load_net();
  Runtime::set_network_algo_workspace_limit(net, 0);
  const std::vector<float> got = run_net(*net), want = expected();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  EXPECT_EQ(mge::workspace_limit(), SIZE_MAX);
  EXPECT_THAT(error_of([] { Runtime::set_network_algo_workspace_limit(std::make_shared<Network>(), 1); }),
              HasSubstr("needs a loaded model"));
}

TEST_F(FastRun, ThePersistentCacheGoesOn) {
  const std::string path = testing::TempDir() + "lite_cache_" + std::to_string(::getpid());
  set_persistent_cache(path);
  tuned(LITE_ALGO_PROFILE);
  EXPECT_FALSE(std::filesystem::exists(path));
  dump_persistent_cache(path);
  mge::set_tuning_file("");
  const uint64_t before = measured();
  set_persistent_cache(path);
  tuned(LITE_ALGO_PROFILE);
  EXPECT_EQ(measured(), before);
  std::filesystem::remove(path);
}

TEST(LiteLayoutTransform, TheOptimisedModelRunsTheSame) {
  const std::string path = testing::TempDir() + "lite_layout_" + std::to_string(::getpid()) + ".mge";
  auto net = std::make_shared<Network>();
  Runtime::enable_global_layout_transform(net);
  EXPECT_THAT(error_of([&] { Runtime::dump_layout_transform_model(net, path); }), HasSubstr("needs a loaded model"));
  net->load_model(test::net_path());
  Runtime::dump_layout_transform_model(net, path);
  Network again;
  again.load_model(path);
  EXPECT_EQ(run_net(again), expected());
  Runtime::enable_io_txt_dump(net, path + ".txt");  // makes every value an output, but none of the file's
  Runtime::dump_layout_transform_model(net, path);
  Network third;
  third.load_model(path);
  EXPECT_EQ(third.get_all_output_name(), net->get_all_output_name());
  EXPECT_THAT(error_of([&] { Runtime::dump_layout_transform_model(load_net(), path); }), HasSubstr("needs enable_"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lite
