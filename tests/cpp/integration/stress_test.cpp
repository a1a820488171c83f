// A server's day in seconds, for the thread sanitizer above all: networks with shared weights in several threads, async
// runs and callbacks, fast-run, networks made and destroyed while others run, eager ops and traces beside them, and
// what belongs to the process changed meanwhile. Every result has the bits it has alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/cost.h"
#include "base/parallel.h"
#include "core/profile.h"
#include "eager/trace_test_util.h"
#include "kernel/tune.h"
#include "lite/global.h"
#include "lite/models.h"

namespace lite {
namespace {

constexpr size_t kMostBatch = 4, kImage = size_t{8} * 14 * 14, kClasses = 10;

/// A line of graph text: a constant of random numbers.
std::string constant(const char* name, const std::string& shape, size_t n, uint32_t seed) {
  std::string line = mge::format("  const %{}: f32[{}] = ", name, shape);
  std::mt19937 random(seed);
  for (size_t i = 0; i < n; ++i) {
    const float v = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-34f;
    uint8_t bytes[4];
    std::memcpy(bytes, &v, sizeof v);
    for (const uint8_t b : bytes) line += mge::format("{:02x}", b);
  }
  return line + "\n";
}

/// Convolutions of several kinds, products, a reduction, a chain that is fused. More than a megabyte: files of it are
/// mapped. One for each seed.
std::string net_text(uint32_t seed) {
  return "graph net(%x: f32[2,8,14,14]) {\n" + constant("w0", "16,8,3,3", 16 * 8 * 9, seed) +
         constant("w1", "16,1,1,3,3", 16 * 9, seed + 1) + constant("w2", "512,16,1,1", 512 * 16, seed + 2) +
         constant("w3", "512,512", size_t{512} * 512, seed + 3) + constant("w4", "512,10", 512 * 10, seed + 4) + R"(
  %0 = conv2d %x, %w0 {pad=[1,1]}
  %1 = relu %0
  %2 = conv2d %1, %w1 {pad=[1,1], groups=16}
  %3 = sigmoid %2
  %4 = conv2d %3, %w2
  %5 = reduce %4 {mode="mean", axes=[2,3]}
  %6 = matmul %5, %w3
  %7 = tanh %6
  %8 = mul %7, %7
  %9 = add %8, %6
  %10 = matmul %9, %w4
  %y = softmax %10
} returns(%y)
)";
}

float pixel(size_t i, size_t seed) { return static_cast<float>((i * 7 + seed * 13) % 29) / 16 - 1; }

class Aligned final : public Allocator {
 public:
  void* allocate(LiteDeviceType, int, size_t size, size_t align) override {
    ++out;
    return std::aligned_alloc(align, (size + align - 1) / align * align);
  }
  void free(LiteDeviceType, int, void* p) override {
    --out;
    std::free(p);
  }
  std::atomic<int> out{0};
};

class Stress : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / mge::format("mge_stress_{}", getpid());
    std::filesystem::create_directories(folder_);
    threads_before_ = mge::num_threads();
    costs_before_ = mge::costs();
    mge::set_costs({.piece = 0});  // so that each op of a small net is shared out
    for (uint32_t m = 0; m < kModels; ++m) {
      files_[m] = folder_ / mge::format("{}.mge", m);
      bytes_[m] = test::model_of(net_text(100 * m));
      std::ofstream(files_[m], std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes_[m].data()), static_cast<std::streamsize>(bytes_[m].size()));
      base_[m] = std::make_shared<Network>();
      base_[m]->load_model(files_[m]);
      for (size_t batch = 1; batch <= kMostBatch; ++batch) want_[m][batch] = alone(m, batch);
    }
  }
  void TearDown() override {
    for (auto& b : base_) b.reset();
    mge::set_costs(costs_before_);
    mge::set_num_threads(threads_before_);
    mge::Pool::of({}).set_limit(0);
    std::filesystem::remove_all(folder_);
  }

  std::vector<float> alone(size_t model, size_t batch) {
    auto net = std::make_shared<Network>();
    net->load_model(bytes_[model].data(), bytes_[model].size());
    feed(*net, batch, model);
    return test::run(*net);
  }
  static void feed(Network& net, size_t batch, size_t seed) {
    auto x = net.get_input_tensor(0);
    x->set_layout({{batch, 8, 14, 14}, 4, LITE_FLOAT});
    test::fill(*x, [&](size_t i) { return pixel(i, seed); });
  }

  void expect(bool holds, const char* what) {
    if (holds) return;
    const std::lock_guard lock(told_mutex_);
    if (told_.insert(what).second) ADD_FAILURE() << what;
  }

  // ---- what threads of a server do

  /// One network from its making to its end, in a random way.
  void serve(std::mt19937& random) {
    auto odds = [&](unsigned n) { return random() % n == 0; };
    const size_t model = random() % kModels;
    std::atomic<int> started{0}, finished{0}, called{0};  // they outlive the network, whose callbacks count
    Config config;
    Options& o = config.options;
    o.graph_opt_level = static_cast<uint8_t>(random() % 4);
    o.jit_level = static_cast<uint8_t>(random() % 3);
    o.comp_node_seq_record_level = static_cast<uint8_t>(random() % 3);
    o.weight_preprocess = odds(3);
    o.force_output_dynamic_alloc = odds(4);
    o.const_shape = odds(5);
    o.async_exec_level = odds(4) ? 4 : 1;
    if (odds(5)) o.force_dynamic_alloc = true, o.comp_node_seq_record_level = 0;
    const bool fixed = o.const_shape || o.comp_node_seq_record_level;
    NetworkIO io;
    const size_t first = 1 + random() % kMostBatch;
    io.inputs.push_back({.name = "x", .config_layout = {{first, 8, 14, 14}, 4, LITE_FLOAT}});
    auto net = std::make_shared<Network>(config, io);
    Runtime::set_cpu_threads_number(net, 1 + random() % 5);
    auto memory = odds(4) ? std::make_shared<Aligned>() : nullptr;
    if (memory) Runtime::set_memory_allocator(net, memory);
    // Measured choices may be kernels with other sums.
    const bool measures = odds(6);
    if (measures) Runtime::set_network_algo_policy(net, odds(2) ? LITE_ALGO_PROFILE : LITE_ALGO_REPRODUCIBLE);
    switch (random() % 3) {
      case 0:
        net->load_model(files_[model]);
        break;
      case 1:
        net->load_model(bytes_[model].data(), bytes_[model].size());
        break;
      default:
        Runtime::shared_weight_with_network(net, base_[model]);
    }
    if (o.comp_node_seq_record_level < 2 && odds(4))
      net->enable_profile_performance(folder_ / mge::format("profile_{}.json", random() % 3));
    if (odds(3)) net->set_start_callback([&](const auto&) { ++started; });
    if (odds(3)) net->set_finish_callback([&](const auto&) { ++finished; });
    const bool async = odds(2);
    if (async)
      net->set_async_callback([&, w = std::weak_ptr(net)] {
        ++called;
        if (auto n = w.lock()) n->get_output_name(0);  // the API is there for callbacks
      });
    const size_t runs = 1 + random() % 4;
    for (size_t i = 0; i < runs; ++i) {
      const size_t batch = fixed ? first : 1 + random() % kMostBatch;
      feed(*net, batch, model);
      net->forward();
      if (odds(3)) Runtime::get_cpu_threads_number(net);
      net->wait();
      check(test::floats(*net->get_output_tensor(0)), want_[model][batch], measures);
      if (!fixed && odds(8)) {
        auto shared = std::make_shared<Network>();
        Runtime::shared_weight_with_network(shared, net);
        feed(*shared, batch, model);
        check(test::run(*shared), want_[model][batch], measures);
      }
    }
    if (async) expect(called == static_cast<int>(runs), "a callback for each run");
    if (odds(3)) net->forward();  // and it is destroyed with a run under way
    net.reset();
    if (memory) expect(memory->out == 0, "all memory is given back");
    ++served_;
  }

  void check(const std::vector<float>& got, const std::vector<float>& want, bool nearly) {
    bool same = got.size() == want.size();
    for (size_t i = 0; same && i < got.size(); ++i)
      same = nearly ? std::abs(got[i] - want[i]) <= 1e-4f : std::memcmp(&got[i], &want[i], sizeof(float)) == 0;
    expect(same, "the bits of a network");
  }

  void in_threads(const std::vector<std::function<void(std::mt19937&)>>& bodies, double seconds) {
    std::vector<std::thread> all;
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::mutex mutex;
    for (size_t t = 0; t < bodies.size(); ++t)
      all.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t) + 1);
        try {
          do bodies[t](random);
          while (std::chrono::steady_clock::now() < until);
        } catch (const std::exception& e) {
          const std::lock_guard lock(mutex);
          ADD_FAILURE() << "thread " << t << ": " << e.what();
        }
      });
    for (auto& t : all) t.join();
  }

  /// All that a program may change while others compute.
  void turn_knobs(std::mt19937& random) {
    switch (random() % 10) {
      case 0:
        mge::set_num_threads(1 + static_cast<int>(random() % 6));
        break;
      case 1:
        mge::start_profile();
        break;
      case 2:
        mge::stop_profile();
        break;
      case 3:
        for (auto& lane : mge::profile::take())
          for (auto& e : lane.events) expect(e.end >= e.begin, "events that end");
        break;
      case 4:
        mge::Pool::of({}).set_limit(random() % 2 ? 0 : size_t{8} << 30);
        break;
      case 5:
        try_coalesce_all_free_memory();
        break;
      case 6:
        set_persistent_cache(folder_ / mge::format("cache_{}", random() % 2), random() % 2);
        break;
      case 7:
        dump_persistent_cache(folder_ / "dumped");
        break;
      case 8:
        set_log_level(random() % 2 ? ERROR : get_log_level());
        break;
      default:
        mge::thread_report();
        mge::Pool::of({}).stats();
    }
  }

  static constexpr size_t kModels = 2;
  std::filesystem::path folder_;
  std::array<std::string, kModels> files_;
  std::array<std::vector<uint8_t>, kModels> bytes_;
  std::array<std::shared_ptr<Network>, kModels> base_;
  std::array<std::array<std::vector<float>, kMostBatch + 1>, kModels> want_;
  std::mutex told_mutex_;
  std::set<std::string> told_;  // each once
  std::atomic<int> served_{0};
  int threads_before_ = 1;
  mge::Costs costs_before_;
};

constexpr double kSeconds = 2;

/// What a step has left behind.
std::string after(mge::Model& m, const mge::Tensors& results) { return mge::bytes_of(*results[0]) + m.bytes(); }

TEST_F(Stress, ServersBesideEagerOpsAndTraces) {
  // A training step with state, eagerly and traced, in threads of its own: one each, as Recording is of one thread.
  std::vector<std::string> steps;
  {
    mge::Model m;
    for (uint32_t i = 0; i < 4; ++i) steps.push_back(after(m, m.step(mge::batch(i))));
  }
  for (const auto policy : {mge::ExecPolicy::Inline, mge::ExecPolicy::Async}) {
    mge::set_exec_policy(policy);
    auto server = [&](std::mt19937& random) { serve(random); };
    auto eager = [&](std::mt19937&) {
      mge::Model m;
      for (uint32_t i = 0; i < 4; ++i) expect(after(m, m.step(mge::batch(i))) == steps[i], "the bits of a step");
    };
    auto traced = [&](std::mt19937& random) {
      mge::Model m;
      mge::Traced t([&m](const mge::Tensors& a) { return m.step(a); }, static_cast<int>(random() % 3));
      for (uint32_t i = 0; i < 4; ++i) {
        const mge::Tensors args = mge::batch(i);
        const mge::Tensors out = i == 0 ? t.record(args) : random() % 2 ? t.match(args) : t.replay(args);
        expect(after(m, out) == steps[i], "the bits of a traced step");
      }
    };
    auto knobs = [&](std::mt19937& random) { turn_knobs(random); };
    in_threads({server, server, server, eager, traced, traced, knobs}, kSeconds);
    mge::stop_profile();
    mge::sync();
    mge::set_exec_policy(mge::ExecPolicy::Inline);
  }
  EXPECT_GE(served_, 3);
}

// A limit that comes and goes: a run has its memory and its bits, or it is an error and the next one works.
TEST_F(Stress, MemoryThatEndsNowAndThen) {
  std::atomic<int> refused{0};
  auto server = [&](std::mt19937& random) {
    try {
      serve(random);
    } catch (const Error& e) {
      ++refused;
      expect(std::string(e.what()).find("memory") != std::string::npos, e.what());
    }
  };
  auto limit = [&](std::mt19937& random) {
    mge::Pool& pool = mge::Pool::of({});
    try {
      pool.set_limit(pool.stats().allocated + random() % (1 << 20));
    } catch (const mge::Error&) {  // others have taken more meanwhile
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    pool.set_limit(0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
  };
  in_threads({server, server, server, limit}, kSeconds);
  EXPECT_GE(served_ + refused, 3);
  std::mt19937 random(1);
  for (int i = 0; i < 3; ++i) serve(random);
}

}  // namespace
}  // namespace lite
