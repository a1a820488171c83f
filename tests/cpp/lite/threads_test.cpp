// Threads that share networks and handles: runs queue, nothing is pulled away, nothing hangs.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "models.h"

namespace lite {
namespace {

constexpr int kThreads = 8;

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
  for (auto& t : threads) t.join();
}

float pixel(size_t i) { return static_cast<float>(i % 13) - 6.f; }

TEST(LiteThreads, RunsOfOneNetworkFollowEachOther) {
  auto net = test::load_net();
  test::fill(*net->get_io_tensor("data"), pixel);
  const std::vector<float> want = test::run(*net);
  std::atomic<int> wrong{0};
  in_threads([&](int) {
    for (int i = 0; i < 30; ++i) {
      net->forward();
      net->wait();
      Tensor copy;
      copy.copy_from(*net->get_output_tensor(0));
      wrong += test::floats(copy) != want;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(LiteThreads, InputsAreThoseOfOneThread) {
  // x + x of a tensor that is one number everywhere: a run between two writes would show both.
  auto net = test::load("graph g(%x: f32[4096]) { %y = add %x, %x } returns(%y)");
  std::atomic<int> mixed{0};
  in_threads([&](int t) {
    std::vector<float> mine(4096, static_cast<float>(t + 1));
    Tensor in(LITE_CPU, Layout{{4096}, 1, LITE_FLOAT}), out;
    in.reset(mine.data(), mine.size() * 4);
    for (int i = 0; i < 50; ++i) {
      net->get_input_tensor(0)->copy_from(in);
      net->forward();
      out.copy_from(*net->get_output_tensor(0));
      const std::vector<float> got = test::floats(out);
      for (float v : got) mixed += v != got[0];
    }
  });
  EXPECT_EQ(mixed, 0);
}

TEST(LiteThreads, AsyncRunsFollowEachOther) {
  auto net = test::load_net();
  std::atomic<int> done{0}, failed{0};
  net->set_async_callback([&] { ++done; });
  in_threads([&](int) {
    for (int i = 0; i < 20; ++i) {
      net->forward();
      net->get_input_name(0);
      failed += test::error_of([&] { net->wait(); }) != "no error";
    }
  });
  net->wait();
  EXPECT_EQ(done, kThreads * 20);
  EXPECT_EQ(failed, 0);
}

TEST(LiteThreads, ForwardInsideItsOwnCallbackIsRefused) {
  auto net = test::load_net();
  std::string text;
  net->set_start_callback([&](auto&) { text = test::error_of([&] { net->forward(); }); });
  net->forward();
  EXPECT_NE(text.find("called from a callback of the same network"), std::string::npos) << text;
}

// A callback uses the network while another thread destroys it: whichever is last, nobody waits for himself.
TEST(LiteThreads, DestroyedByOneThreadInTheCallbackOfAnother) {
  for (int i = 0; i < 20; ++i) {
    static std::atomic<LiteNetwork> net;
    static std::atomic<bool> inside;
    LiteNetwork made;
    ASSERT_EQ(LITE_make_default_network(&made), 0);
    ASSERT_EQ(LITE_load_model_from_path(made, test::net_path().c_str()), 0);
    net = made;
    inside = false;
    ASSERT_EQ(LITE_set_async_callback(made,
                                      [] {
                                        inside = true;
                                        for (int k = 0; k < 200; ++k) {
                                          const char* name;
                                          LITE_get_input_name(net, 0, &name);
                                        }
                                        return 0;
                                      }),
              0);
    ASSERT_EQ(LITE_forward(made), 0);
    while (i % 2 && !inside) std::this_thread::yield();
    EXPECT_EQ(LITE_destroy_network(made), 0);
    EXPECT_EQ(LITE_destroy_network(made), -1);
  }
}

// Random calls by all threads on one set of handles, which they also destroy and make anew.
TEST(LiteThreads, SharedHandles) {
  constexpr int kSlots = 4;
  std::array<std::atomic<void*>, kSlots> nets{}, tensors{};
  std::array<std::deque<std::array<float, 256>>, kThreads> memory;  // outlives all of them, each for one tensor
  in_threads([&](int t) {
    std::mt19937 random(static_cast<unsigned>(t) + 1);
    auto pick = [&](auto& slots) -> std::atomic<void*>& { return slots[random() % kSlots]; };
    for (int i = 0; i < 400; ++i) {
      void *net = pick(nets), *tensor = pick(tensors), *other = pick(tensors), *made = nullptr;
      LiteLayout layout = {{2, 1, 1 + random() % 8, 8}, 4, LITE_FLOAT};
      LiteTensorDesc desc = {0, layout, LITE_CPU, 0};
      size_t n = 0;
      const size_t start[] = {random() % 3}, end[] = {random() % 3};
      const char* names[8] = {};
      switch (random() % 16) {
        case 0:
          if (LITE_make_default_network(&made) == 0 && LITE_load_model_from_path(made, test::net_path().c_str()) == 0)
            LITE_destroy_network(pick(nets).exchange(made));
          break;
        case 1:
          if (LITE_make_tensor(desc, &made) == 0) LITE_destroy_tensor(pick(tensors).exchange(made));
          break;
        case 2:
          if (LITE_get_io_tensor(net, random() % 2 ? "data" : "logits", LITE_IO, &made) == 0) pick(tensors) = made;
          break;
        case 3:
          LITE_destroy_network(random() % 4 ? nullptr : net);
          break;
        case 4:
          LITE_set_tensor_layout(tensor, layout);
          break;
        case 5:
          LITE_reset_tensor(tensor, layout, memory[static_cast<size_t>(t)].emplace_back().data());
          break;
        case 6:
          LITE_tensor_copy(tensor, other);
          break;
        case 7:
          LITE_tensor_fill_zero(tensor);
          break;
        case 8:
          LITE_get_all_input_name(net, &n, names);
          break;
        case 9:
          if (LITE_tensor_slice(tensor, start, end, nullptr, 1, &made) == 0) LITE_destroy_tensor(made);
          break;
        case 10: {
          void* both[] = {tensor, other};
          if (LITE_tensor_concat(both, 2, 0, LITE_CPU, 0, &made) == 0) LITE_destroy_tensor(made);
          break;
        }
        case 11:
          LITE_get_tensor_total_size_in_byte(tensor, &n);
          break;
        case 12:
          LITE_set_async_callback(net, [] { return 0; });
          break;
        case 13:
          LITE_set_start_callback(
              net, [](const LiteIO* io, const LiteTensor*, size_t k) { return k && io[0].name[0] ? 0 : 1; });
          break;
        default:
          LITE_forward(net);
          LITE_wait(net);
      }
    }
  });
  for (auto& n : nets) LITE_destroy_network(n);
  for (auto& t : tensors) LITE_destroy_tensor(t);
}

// One asks whether a run is over while the run's own thread gets the network, for which it waited since others ask,
// too.
TEST(LiteThreads, RunsAsideOfANetworkThatOthersAskGoOn) {
  auto net = test::load("graph g(%x: f32[8]) { %y = exp %x } returns(%y)");
  std::atomic<int> done = 0;
  std::atomic<bool> over = false;
  net->set_async_callback([&] { ++done; });
  std::vector<std::thread> asking;
  for (int t = 0; t < 3; ++t)
    asking.emplace_back([&] {
      while (!over) net->get_input_name(0);
    });
  for (int i = 0; i < 5000; ++i) net->forward();
  net->wait();
  over = true;
  for (auto& t : asking) t.join();
  EXPECT_EQ(done, 5000);
}

}  // namespace
}  // namespace lite
