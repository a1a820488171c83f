// What a forward does when the ones before it have found everything: no thread is born, nothing is asked of the system,
// small ops stay on the caller's thread; and what is kept from run to run notices when something has changed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "base/team.h"
#include "core/pool.h"
#include "models.h"

namespace lite {
namespace {

// The threads of this process, as the kernel counts them.
std::set<std::string> threads() {
  std::set<std::string> out;
  for (auto& t : std::filesystem::directory_iterator("/proc/self/task")) out.insert(t.path().filename());
  return out;
}

std::shared_ptr<Network> load_on(const std::string& text, size_t threads) {
  auto net = std::make_shared<Network>();
  Runtime::set_cpu_threads_number(net, threads);
  auto bytes = test::model_of(text);
  net->load_model(bytes.data(), bytes.size());
  return net;
}

constexpr const char* kProducts = R"(
graph g(%x: f32[64,512], %w: f32[512,512]) {
  %0 = matmul %x, %w
  %1 = relu %0
  %y = matmul %1, %w
} returns(%y)
)";

TEST(LiteSteady, ForwardsOnManyThreadsMakeNoneAndTakeNoMemory) {
  auto net = load_on(kProducts, 16);
  test::fill(*net->get_input_tensor(0), [](size_t i) { return static_cast<float>(i % 7) - 3.f; });
  test::fill(*net->get_input_tensor(1), [](size_t i) { return static_cast<float>(i % 5) - 2.f; });
  const std::vector<float> want = test::run(*net);
  test::run(*net);
  EXPECT_GE(mge::Team::workers(), 1);
  EXPECT_LE(mge::Team::workers(), mge::kMaxThreads);
  const std::set<std::string> before = threads();
  const mge::PoolStats memory = mge::Pool::of({}).stats();
  for (int i = 0; i < 50; ++i) {
    net->forward();
    net->wait();
  }
  EXPECT_EQ(threads(), before);
  const mge::PoolStats after = mge::Pool::of({}).stats();
  EXPECT_EQ(after.system_calls, memory.system_calls);
  EXPECT_EQ(after.reserved, memory.reserved);
  EXPECT_EQ(after.blocks, memory.blocks);
  EXPECT_EQ(test::floats(*net->get_output_tensor(0)), want);
}

TEST(LiteSteady, SmallOpsStayOnTheThreadThatCalls) {
  const int wide = mge::Team::workers() + 8;  // a region that this network opened would be seen
  auto net = load_on("graph g(%x: f32[4,64]) { %0 = relu %x %1 = add %0, %x %y = softmax %1 } returns(%y)",
                     static_cast<size_t>(wide));
  const std::set<std::string> before = threads();
  for (int i = 0; i < 5; ++i) test::run(*net);
  EXPECT_EQ(threads(), before);
  EXPECT_LT(mge::Team::workers(), wide - 1);
}

TEST(LiteSteady, InputsThatMoveAreFollowed) {
  auto net = test::load("graph g(%x: f32[4]) { %y = neg %x } returns(%y)");
  std::vector<float> a{1, 2, 3, 4}, b{5, 6, 7, 8};
  auto x = net->get_input_tensor(0);
  for (int i = 0; i < 3; ++i) {
    x->reset(a.data(), 16);
    EXPECT_EQ(test::run(*net), (std::vector<float>{-1, -2, -3, -4}));
    x->reset(b.data(), 16);
    EXPECT_EQ(test::run(*net), (std::vector<float>{-5, -6, -7, -8}));
  }
  b[0] = 9;  // the same place, another value
  EXPECT_EQ(test::run(*net), (std::vector<float>{-9, -6, -7, -8}));
}

TEST(LiteSteady, ALayoutThatWasRefusedIsRefusedAgainAndForgotten) {
  auto net = test::load(test::kAffine);
  auto x = net->get_input_tensor(0);
  test::fill(*x, [](size_t i) { return static_cast<float>(i); });
  test::fill(*net->get_input_tensor(1), [](size_t) { return 10.f; });
  const std::vector<float> want = test::run(*net);
  for (int i = 0; i < 2; ++i) {
    x->set_layout({{2, 3}, 2, LITE_INT});
    for (int k = 0; k < 2; ++k)
      EXPECT_NE(test::error_of([&] { net->forward(); }).find("Convert the data first"), std::string::npos);
    x->set_layout({{2, 4}, 2, LITE_FLOAT});
    for (int k = 0; k < 2; ++k)
      EXPECT_NE(test::error_of([&] { net->forward(); }).find("model.py:7"), std::string::npos);
    x->set_layout({{2, 3}, 2, LITE_FLOAT});
    test::fill(*x, [](size_t i) { return static_cast<float>(i); });
    EXPECT_EQ(test::run(*net), want);
    x->set_layout({{1, 3}, 2, LITE_FLOAT});
    EXPECT_EQ(test::run(*net).size(), 3u);
    x->set_layout({{2, 3}, 2, LITE_FLOAT});
    test::fill(*x, [](size_t i) { return static_cast<float>(i); });
    EXPECT_EQ(test::run(*net), want);
  }
}

// Results that are not copied may be the input itself, whose tensor then lets go of its memory.
TEST(LiteSteady, AnOutputThatIsTheInputOutlivesItsTensor) {
  Config config;
  config.options.force_output_dynamic_alloc = true;
  auto net = test::load("graph g(%x: f32[2,512]) { %y = reshape %x {shape=[1024]} } returns(%y)", config);
  auto x = net->get_input_tensor(0);
  test::fill(*x, [](size_t i) { return static_cast<float>(i); });
  net->forward();
  net->wait();
  auto y = net->get_output_tensor(0);
  std::vector<float> other(1024, -1.f);
  x->reset(other.data(), other.size() * 4);  // the memory that y looks at has no other owner now
  const auto more = test::load("graph g(%x: f32[2,512]) { %y = neg %x } returns(%y)");
  test::fill(*more->get_input_tensor(0), [](size_t) { return -7.f; });
  test::run(*more);
  const std::vector<float> got = test::floats(*y);
  ASSERT_EQ(got.size(), 1024u);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], static_cast<float>(i));
}

TEST(LiteSteady, WaitWithoutACallbackTellsALaterOneNothing) {
  auto net = test::load("graph g(%x: f32[4]) { %y = neg %x } returns(%y)");
  int told = 0;
  net->forward();
  net->wait();
  net->set_finish_callback([&](const auto&) { ++told; });
  net->wait();
  EXPECT_EQ(told, 0);
  net->forward();
  net->wait();
  net->wait();
  EXPECT_EQ(told, 1);
}

// A run that is under way when its network is destroyed has all that it looks at until it ends.
TEST(LiteSteady, ANetworkWaitsForItsRunBeforeItGoes) {
  for (bool fixed : {false, true}) {
    Config config;
    config.options.const_shape = fixed;
    for (int i = 0; i < 20; ++i) {
      auto net = test::load(kProducts, config);
      test::run(*net);
      std::atomic<int> done{0};
      net->set_async_callback([&] { ++done; });
      net->forward();
      net.reset();
      EXPECT_EQ(done, 1);
    }
  }
}

// ---- what outlives a network, and what must not

// Weights of more than a megabyte, so that the file is mapped and they are brought into their kernel's order once for
// all networks of the model.
class LiteMapped : public testing::Test {
 protected:
  std::string file(float weight) {
    constexpr size_t kSide = 600;
    std::string hex, text = "graph g(%x: f32[4,600]) {\n  const %w: f32[600,600] = ";
    uint8_t bytes[4];
    std::memcpy(bytes, &weight, sizeof weight);
    for (const uint8_t b : bytes) hex += mge::format("{:02x}", b);
    for (size_t i = 0; i < kSide * kSide; ++i) text += hex;
    const std::vector<uint8_t> model = test::model_of(text + "\n  %y = matmul %x, %w\n} returns(%y)");
    const std::string path = mge::format("{}/mge_mapped_{}_{}.mge", testing::TempDir(), getpid(), files_.size());
    files_.push_back(path);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(model.data()), static_cast<std::streamsize>(model.size()));
    return path;
  }
  void TearDown() override {
    for (auto& f : files_) std::filesystem::remove(f);
  }

 private:
  std::vector<std::string> files_;
};

// The next model may lie where the dropped one lay, weights and all.
TEST_F(LiteMapped, WeightsOfADroppedModelAreForgotten) {
  Config config;
  config.options.comp_node_seq_record_level = 2;
  std::vector<std::shared_ptr<Network>> kept;
  std::vector<std::string> files;
  for (int i = 0; i < 4; ++i) files.push_back(file(static_cast<float>(i + 1)));
  for (int i = 0; i < 8; ++i) {
    auto& net = kept.emplace_back(std::make_shared<Network>(config));
    net->load_model(files[static_cast<size_t>(i % 4)]);
    test::fill(*net->get_input_tensor(0), [](size_t) { return 1.f; });
    for (int run = 0; run < 2; ++run) ASSERT_EQ(test::run(*net)[0], 600.f * static_cast<float>(i % 4 + 1)) << i;
  }
}

std::shared_ptr<Network> g_kept;  // goes after whatever was made later, tables of the library among it

TEST_F(LiteMapped, ANetworkMayBeTheLastToGo) {
  const std::string path = file(1);
  EXPECT_EXIT(
      {
        g_kept = std::make_shared<Network>();
        g_kept->load_model(path);
        test::run(*g_kept);
        exit(0);
      },
      testing::ExitedWithCode(0), "");
}

// What a thread keeps for later runs is not the allocator's of the network that happened to run first.
TEST(LiteSteady, AnAllocatorHasAllItsMemoryBackWhenTheNetworkIsGone) {
  struct Counting final : Allocator {
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
  const auto memory = std::make_shared<Counting>();
  std::thread([&] {  // which has run nothing yet
    auto net = std::make_shared<Network>();
    Runtime::set_memory_allocator(net, memory);
    auto bytes = test::model_of(R"(
graph chain(%x: f32[64,512], %w: f32[512,512]) {
  %0 = mul %x, %x
  %1 = sigmoid %0
  %2 = add %1, %x
  %3 = matmul %2, %w
  %4 = softmax %3
  %5 = exp %4
  %6 = reduce %5 {mode="sum", axes=[1]}
} returns(%6)
)");
    net->load_model(bytes.data(), bytes.size());
    test::run(*net);
    EXPECT_GT(memory->out, 0);
    net.reset();
    EXPECT_EQ(memory->out, 0);
  })
      .join();
}

// The run has its tensors for itself, and the thread that would give them back is not in the child.
TEST(LiteSteady, ATensorOfARunAtAForkIsRefusedInTheChild) {
  struct Holding final : Allocator {
    void* allocate(LiteDeviceType, int, size_t size, size_t align) override {
      if (hold) {
        entered.set_value();
        go_on.get_future().wait();
        hold = false;
      }
      return std::aligned_alloc(align, (size + align - 1) / align * align);
    }
    void free(LiteDeviceType, int, void* p) override { std::free(p); }
    std::atomic<bool> hold{false};
    std::promise<void> entered, go_on;
  };
  const auto memory = std::make_shared<Holding>();
  auto net = std::make_shared<Network>();
  Runtime::set_memory_allocator(net, memory);
  auto bytes = test::model_of("graph g(%x: f32[8]) {\n  %y = exp %x\n} returns(%y)\n");
  net->load_model(bytes.data(), bytes.size());
  test::fill(*net->get_input_tensor(0), [](size_t) { return 1.f; });
  const std::shared_ptr<Tensor> in = net->get_input_tensor(0), out = net->get_output_tensor(0);
  memory->hold = true;
  std::thread running([&] { net->forward(); });
  memory->entered.get_future().wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int refused = 0;
    const auto tell = [&](auto&& call) {
      try {
        call();
      } catch (const Error& e) {
        refused += std::string(e.what()).find("using this tensor when the process was forked") != std::string::npos;
      }
    };
    Tensor own(LITE_CPU, Layout{{8}, 1, LITE_FLOAT});
    tell([&] { in->get_layout(); });
    tell([&] { out->get_memory_ptr(); });
    tell([&] { own.copy_from(*in); });
    tell([&] { in->copy_from(own); });
    own.get_memory_ptr();  // what no run had is as ever
    _exit(refused);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  memory->go_on.set_value();
  running.join();
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 4);
  EXPECT_NEAR(static_cast<const float*>(out->get_memory_ptr())[7], std::exp(1.f), 1e-6f);
}

}  // namespace
}  // namespace lite
