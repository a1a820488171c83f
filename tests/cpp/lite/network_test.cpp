#include "lite/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/parallel.h"
#include "core/pool.h"
#include "lite/global.h"
#include "lite/network_impl.h"
#include "megengine/version.h"
#include "models.h"

namespace lite {
namespace {

using test::error_of;
using test::fill;
using test::floats;
using test::kAffine;
using test::load;
using test::load_net;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

float pixel(size_t i) { return static_cast<float>(i % 17) / 16 - 0.5f; }
Layout f32(std::initializer_list<size_t> dims) {
  Layout l;
  for (size_t d : dims) l.shapes[l.ndim++] = d;
  return l;
}

TEST(LiteNetwork, LoadsRunsAndNamesItsTensors) {
  auto net = load_net();
  EXPECT_THAT(net->get_all_input_name(), ElementsAre("data", "bias"));
  EXPECT_THAT(net->get_all_output_name(), ElementsAre("logits", "prob"));
  EXPECT_EQ(net->get_input_name(1), "bias");
  EXPECT_EQ(net->get_output_name(1), "prob");
  EXPECT_TRUE(net->get_io_tensor("logits")->get_layout() == f32({2, 5}));
  fill(*net->get_io_tensor("data"), pixel);
  std::vector<float> logits = test::run(*net);
  EXPECT_NE(logits, std::vector<float>(10));
  std::vector<float> prob = floats(*net->get_io_tensor("prob"));
  EXPECT_NEAR(prob[0] + prob[1] + prob[2] + prob[3] + prob[4], 1, 1e-5);
}

TEST(LiteNetwork, StoredTestCasesAgree) {
  auto net = load_net();
  for (auto& t : NetworkAccess::impl(*net).model->info.tests) {
    for (auto& in : t.inputs) std::memcpy(net->get_io_tensor(in.name)->get_memory_ptr(), in.data(), in.meta.bytes());
    net->forward();
    net->wait();
    for (auto& out : t.outputs) {
      std::vector<float> got = floats(*net->get_io_tensor(out.name));
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], static_cast<const float*>(out.data())[i], 1e-5);
    }
  }
}

TEST(LiteNetwork, PathAndMemoryGiveTheSameBits) {
  std::ifstream f(test::net_path(), std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(f)), {});
  Network a;
  a.load_model(bytes.data(), bytes.size());
  bytes.assign(bytes.size(), 0);  // the network must not depend on the caller's memory
  auto b = load_net();
  fill(*a.get_io_tensor("data"), pixel);
  fill(*b->get_io_tensor("data"), pixel);
  EXPECT_EQ(test::run(a), test::run(*b));
}

TEST(LiteNetwork, EveryOptLevelAndThreadCountGivesTheSameBits) {
  std::vector<float> first;
  for (int level : {0, 1, 2, 3})
    for (size_t threads : {1, 2, 4}) {
      Config c;
      c.options.graph_opt_level = static_cast<uint8_t>(level);
      auto net = std::make_shared<Network>(c);
      Runtime::set_cpu_threads_number(net, threads);
      net->load_model(test::net_path());
      EXPECT_EQ(Runtime::get_cpu_threads_number(net), threads);
      fill(*net->get_io_tensor("data"), pixel);
      std::vector<float> y = test::run(*net);
      if (first.empty()) first = y;
      EXPECT_EQ(y, first) << "level " << level << " threads " << threads;
    }
}

TEST(LiteNetwork, OutputPointersStay) {
  auto net = load_net();
  void* p = net->get_io_tensor("logits")->get_memory_ptr();
  for (int i = 0; i < 3; ++i) test::run(*net);
  EXPECT_EQ(net->get_io_tensor("logits")->get_memory_ptr(), p);
}

TEST(LiteNetwork, InputFromUserMemory) {
  auto net = load(kAffine);
  alignas(64) char raw[64];
  auto* odd = reinterpret_cast<float*>(raw + 1);  // not even aligned
  float x[6] = {1, 2, 3, 4, 5, 6};
  std::memcpy(odd, x, sizeof x);
  net->get_io_tensor("x")->reset(odd, sizeof x);
  fill(*net->get_io_tensor("b"), [](size_t i) { return 10.0f * static_cast<float>(i); });
  EXPECT_THAT(test::run(*net), ElementsAre(1, 12, 23, 4, 15, 26));
  x[0] = 100;
  net->get_io_tensor("x")->reset(x, sizeof x);
  EXPECT_EQ(test::run(*net)[0], 100);
  x[0] = 7;  // the same memory again: no new reset needed
  EXPECT_EQ(test::run(*net)[0], 7);
}

TEST(LiteNetwork, StridedInputIsCopied) {
  auto net = load(kAffine);
  Tensor wide(LITE_CPU, f32({2, 6}));
  fill(wide, [](size_t i) { return static_cast<float>(i); });
  net->get_io_tensor("x")->share_memory_with(*wide.slice({0, 0}, {2, 6}, {1, 2}));
  EXPECT_THAT(test::run(*net), ElementsAre(0, 2, 4, 6, 8, 10));
}

TEST(LiteNetwork, OtherShapesAreCompiledAndKept) {
  auto net = load_net();
  Engine& engine = *NetworkAccess::impl(*net).engine;
  auto x = net->get_io_tensor("data");
  fill(*x, pixel);
  std::vector<float> two = test::run(*net);
  for (size_t n : {1, 3, 2, 1, 3}) {
    x->set_layout(f32({n, 1, 8, 8}));
    fill(*x, pixel);
    std::vector<float> y = test::run(*net);
    ASSERT_EQ(y.size(), 5 * n);
    EXPECT_TRUE(net->get_io_tensor("logits")->get_layout() == f32({n, 5}));
    for (size_t i = 0; i < std::min(n, size_t{2}) * 5; ++i) EXPECT_EQ(y[i], two[i]) << n;
  }
  EXPECT_EQ(engine.n_programs(), 3u);
  for (size_t n = 1; n < 30; ++n) {
    x->set_layout(f32({n, 1, 8, 8}));
    test::run(*net);
  }
  EXPECT_LE(engine.n_programs(), mge::SizedGraph::kMaxPrograms);
  x->set_layout(f32({0, 1, 8, 8}));
  EXPECT_TRUE(test::run(*net).empty());
}

TEST(LiteNetwork, SizesThatFollowTheInputAreFollowed) {
  auto net = load(R"(
graph g(%x: f32[4,2,3]) {
  %s = shape_of %x
  %n = slice %s {axes=[0], starts=[0], stops=[1], steps=[1]}
  %a = reshape %x {shape=[4,6]} sizes(shape[0]=%n)        loc f.py:1
  %y = transpose %a {perm=[1,0]}
  %z = reshape %y {shape=[12,2]}                          loc f.py:9
} returns(%a, %z))");
  auto x = net->get_io_tensor("x");
  x->set_layout(f32({1, 2, 3}));
  EXPECT_THAT(error_of([&] { net->forward(); }), AllOf(HasSubstr("reshape: cannot turn [6,1]"), HasSubstr("f.py:9")));
  auto flat = load(R"(
graph g(%x: f32[4,2,3]) {
  %s = shape_of %x
  %n = slice %s {axes=[0], starts=[0], stops=[1], steps=[1]}
  %y = reshape %x {shape=[4,6]} sizes(shape[0]=%n)
} returns(%y))");
  for (size_t n : {1, 7, 0, 4}) {
    flat->get_io_tensor("x")->set_layout(f32({n, 2, 3}));
    EXPECT_EQ(test::run(*flat).size(), n * 6);
    EXPECT_TRUE(flat->get_output_tensor(0)->get_layout() == f32({n, 6}));
  }
  // A size that was taken for a number holds for that number.
  auto guarded = load(R"(
graph g(%x: f32[4]) {
  %s = shape_of %x
  %y = neg %x
  guard %s = 04000000   loc f.py:3
} returns(%y))");
  EXPECT_EQ(test::run(*guarded).size(), 4u);
  guarded->get_io_tensor("x")->set_layout(f32({5}));
  EXPECT_THAT(error_of([&] { guarded->forward(); }), AllOf(HasSubstr("read a size as a number"), HasSubstr("f.py:3")));
}

TEST(LiteNetwork, ResultsWhoseSizeDependsOnValues) {
  auto net = load(R"(
graph g(%x: f32[4]) {
  %i, %n = nonzero %x
  %k = slice %i {axes=[0], starts=[0], stops=[2], steps=[1], python=true} sizes(stops[0]=%n)
  %y = take %x, %k
  %z = neg %y
} returns(%z))");
  auto x = net->get_io_tensor("x");
  for (size_t n : {4, 6, 4}) {
    for (size_t every : {2, 1, 3}) {
      x->set_layout(f32({n}));
      fill(*x, [&](size_t i) { return i % every ? 0.0f : static_cast<float>(i + 1); });
      std::vector<float> want;
      for (size_t i = 0; i < n; i += every) want.push_back(-static_cast<float>(i + 1));
      EXPECT_EQ(test::run(*net), want);
      EXPECT_TRUE(net->get_output_tensor(0)->get_layout() == f32({want.size()}));
    }
  }
}

TEST(LiteNetwork, ShapesThatDoNotFitNameTheUsersLine) {
  auto net = load_net();
  net->get_io_tensor("data")->set_layout(f32({2, 3, 8, 8}));
  EXPECT_THAT(error_of([&] { net->forward(); }),
              AllOf(HasSubstr("conv2d: input has 3 channels but weight expects 1"), HasSubstr("net.py:21 in forward")));
  net->get_io_tensor("data")->set_layout(f32({2, 1, 8, 8}));
  EXPECT_EQ(test::run(*net).size(), 10u);  // still usable
  Layout ints = f32({2, 1, 8, 8});
  ints.data_type = LITE_INT;
  net->get_io_tensor("data")->set_layout(ints);
  EXPECT_THAT(error_of([&] { net->forward(); }),
              HasSubstr("input 'data' is float32[2,1,8,8] in the model; its tensor is int32[2,1,8,8]"));
}

TEST(LiteNetwork, WrongNamesListTheRightOnes) {
  auto net = load_net();
  EXPECT_THAT(error_of([&] { net->get_io_tensor("dat"); }),
              HasSubstr("no input or output 'dat'. Inputs: data, bias. Outputs: logits, prob."));
  EXPECT_THAT(error_of([&] { net->get_io_tensor("logits", LITE_INPUT); }), HasSubstr("no input 'logits'"));
  EXPECT_THAT(error_of([&] { net->get_input_name(2); }), HasSubstr("input 2 of 2; they are data, bias"));
  EXPECT_THAT(error_of([&] { net->get_output_tensor(9); }), HasSubstr("output 9 of 2"));
}

TEST(LiteNetwork, OrderOfCalls) {
  auto net = std::make_shared<Network>();
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("forward needs a loaded model"));
  EXPECT_THAT(error_of([&] { net->wait(); }), HasSubstr("needs a loaded model"));
  EXPECT_THAT(error_of([&] { net->get_io_tensor("x"); }), HasSubstr("needs a loaded model"));
  EXPECT_THAT(error_of([&] { net->load_model("/nowhere.mge"); }), HasSubstr("/nowhere.mge: cannot open"));
  net->load_model(test::net_path());  // a failed load leaves it usable
  EXPECT_THAT(error_of([&] { Runtime::set_cpu_threads_number(net, 2); }), HasSubstr("must come before load_model"));
  EXPECT_THAT(error_of([&] { net->set_device_id(1); }), HasSubstr("must come before load_model"));
  EXPECT_THAT(error_of([&] { net->compute_only_configured_output(); }), HasSubstr("must come before load_model"));
}

TEST(LiteNetwork, ASecondModelTakesThePlaceOfTheFirst) {
  auto net = load_net();
  auto old = net->get_io_tensor("data");
  test::run(*net);
  auto bytes = test::model_of(kAffine);
  net->load_model(bytes.data(), bytes.size());
  EXPECT_THAT(net->get_all_input_name(), ElementsAre("x", "b"));
  fill(*net->get_io_tensor("x"), pixel);
  fill(*net->get_io_tensor("b"), [](size_t) { return 1.0f; });
  EXPECT_FLOAT_EQ(test::run(*net)[5], pixel(5) + 1);
  EXPECT_EQ(floats(*old).size(), 2u * 64);  // whoever holds it still has it
  // After an error the model stays.
  EXPECT_THAT(error_of([&] { net->load_model("/nowhere.mge"); }), HasSubstr("cannot open"));
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_NE(error_of([&] { net->load_model(bytes.data(), bytes.size()); }), "no error");
  EXPECT_FLOAT_EQ(test::run(*net)[5], pixel(5) + 1);
  net->set_start_callback([&](const auto&) {
    EXPECT_THAT(error_of([&] { net->load_model(test::net_path()); }), HasSubstr("from a callback"));
  });
  net->forward();
  // So do its weights with another network's.
  net->set_start_callback({});
  Runtime::shared_weight_with_network(net, load_net());
  EXPECT_EQ(net->get_input_name(0), "data");
}

TEST(LiteNetwork, ConfiguredShapesThatNeedOthersToFit) {
  NetworkIO io;
  io.inputs.push_back({.name = "x", .config_layout = f32({4, 2})});
  auto net = load(kAffine, {}, io);  // b is {3} until the program says so
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("model.py:7"));
  net->get_io_tensor("b")->set_layout(f32({2}));
  fill(*net->get_io_tensor("x"), pixel);
  fill(*net->get_io_tensor("b"), [](size_t) { return 1.0f; });
  EXPECT_FLOAT_EQ(test::run(*net)[7], pixel(7) + 1);
  io.inputs.push_back({.name = "b", .config_layout = f32({3})});  // nothing is left to be said
  EXPECT_THAT(error_of([&] { load(kAffine, {}, io); }), HasSubstr("model.py:7"));
}

TEST(LiteNetwork, AnotherNumberOfDimensions) {
  auto net = load(kAffine);
  net->get_io_tensor("x")->set_layout(f32({2, 2, 3}));
  EXPECT_EQ(test::run(*net).size(), 12u);
  net->get_io_tensor("x")->set_layout(f32({5}));
  EXPECT_THAT(
      error_of([&] { net->forward(); }),
      AllOf(HasSubstr("model.py:7"), HasSubstr("Input 'x' is float32[5], and was float32[2,3] when the model")));
}

TEST(LiteNetwork, NamedOutputsComeFirstInTheList) {
  NetworkIO io;
  io.outputs = {{.name = "nothing"}, {.name = "prob"}};
  auto net = load_net({}, io);
  EXPECT_THAT(net->get_all_output_name(), ElementsAre("prob", "logits"));
  EXPECT_EQ(net->get_output_name(0), "logits");
}

TEST(LiteNetwork, OutputsDoNotOutgrowTheMemoryTheyWereGiven) {
  auto net = load(kAffine);
  std::vector<float> place(6);
  net->get_output_tensor(0)->reset(place.data(), place.size() * sizeof(float));
  net->get_io_tensor("x")->set_layout(f32({4, 3}));
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("the memory given by reset has 24"));
}

TEST(LiteNetwork, DestroyedByItsOwnCallback) {
  for (const std::string when : {"start", "start of an async run", "finish", "async"}) {
    std::atomic<int> calls{0};
    auto net = std::make_unique<Network>();
    Network& n = *net;
    n.load_model(test::net_path());
    const auto destroy = [&] {
      net.reset();
      ++calls;
    };
    if (when == "start of an async run") n.set_async_callback([&] { ++calls; });
    if (when[0] == 's') n.set_start_callback([&](const auto&) { destroy(); });
    if (when == "finish") n.set_finish_callback([&](const auto&) { destroy(); });
    if (when == "async") n.set_async_callback(destroy);
    n.forward();
    if (when == "finish") n.wait();
    while (calls < (when == "start of an async run" ? 2 : 1)) std::this_thread::yield();
    EXPECT_EQ(net, nullptr);
  }
}

TEST(LiteNetwork, DamagedFilesLeaveTheNetworkEmpty) {
  auto bytes = test::model_of(kAffine);
  bytes[bytes.size() / 2] ^= 1;
  Network net;
  EXPECT_THAT(error_of([&] { net.load_model(bytes.data(), bytes.size()); }), HasSubstr("model in memory: damaged"));
  EXPECT_THAT(error_of([&] { net.load_model(nullptr, 10); }), HasSubstr("null pointer"));
  bytes[bytes.size() / 2] ^= 1;
  net.load_model(bytes.data(), bytes.size());
  EXPECT_EQ(test::run(net).size(), 6u);
}

TEST(LiteNetwork, ConfiguredLayoutsAndOutputs) {
  NetworkIO io;
  io.inputs.push_back({.name = "data", .config_layout = f32({4, 1, 8, 8})});
  io.inputs.push_back({.name = "no such input"});
  io.outputs.push_back({.name = "prob"});
  auto net = std::make_shared<Network>(Config{}, io);
  net->compute_only_configured_output();
  net->load_model(test::net_path());
  EXPECT_THAT(net->get_all_output_name(), ElementsAre("prob"));
  EXPECT_TRUE(net->get_output_tensor(0)->get_layout() == f32({4, 5}));
  EXPECT_EQ(test::run(*net).size(), 20u);
  Network none;
  none.compute_only_configured_output();
  EXPECT_THAT(error_of([&] { none.load_model(test::net_path()); }),
              HasSubstr("needs NetworkIO.outputs; outputs of this model: logits, prob"));
}

TEST(LiteNetwork, ShapeOnlyOutput) {
  NetworkIO io;
  io.outputs.push_back({.name = "logits", .io_type = LITE_IO_SHAPE});
  auto net = load_net({}, io);
  fill(*net->get_io_tensor("data"), pixel);
  EXPECT_EQ(test::run(*net), std::vector<float>(10));
}

TEST(LiteNetwork, OutputMemoryOptions) {
  Config c;
  c.options.force_output_use_user_specified_memory = true;
  auto net = load(kAffine, c);
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("output 'y' has no memory. Call reset on its tensor."));
  float y[6] = {};
  fill(*net->get_io_tensor("x"), [](size_t) { return 3.0f; });
  net->get_io_tensor("y")->reset(y, sizeof y);
  net->forward();
  EXPECT_EQ(y[5], 3);
  EXPECT_THAT(error_of([&] { net->set_async_callback([] {}); }), HasSubstr("cannot be used with"));

  Config d;
  d.options.force_output_dynamic_alloc = true;
  auto dynamic = load(kAffine, d);
  fill(*dynamic->get_io_tensor("x"), [](size_t) { return 4.0f; });
  EXPECT_EQ(test::run(*dynamic), std::vector<float>(6, 4.0f));
  c.options.force_output_dynamic_alloc = true;
  EXPECT_THAT(error_of([&] { load(kAffine, c); }), HasSubstr("exclude each other"));
}

TEST(LiteNetwork, FakeExecutionRunsNothing) {
  Config c;
  c.options.fake_next_exec = true;
  auto net = load(kAffine, c);
  fill(*net->get_io_tensor("x"), [](size_t) { return 1.0f; });
  EXPECT_EQ(test::run(*net), std::vector<float>(6));
  EXPECT_EQ(test::run(*net), std::vector<float>(6, 1.0f));
}

TEST(LiteNetwork, ScalarsAndZeroSizes) {
  auto net = load("graph g(%s: f32[], %x: f32[0,3]) {\n %y = add %s, %s\n} returns(%y, %x)");
  EXPECT_TRUE(net->get_io_tensor("s")->get_layout() == f32({1}));
  fill(*net->get_io_tensor("s"), [](size_t) { return 21.0f; });
  EXPECT_THAT(test::run(*net), ElementsAre(42));
  EXPECT_EQ(net->get_io_tensor("x", LITE_OUTPUT)->get_tensor_total_size_in_byte(), 0u);
}

TEST(LiteNetwork, OutputsThatAreInputsOrConstants) {
  auto net = load("graph g(%x: f32[2]) {\n const %c: f32[2] = 0000803f00000040\n} returns(%x, same=%x, %c)");
  fill(*net->get_io_tensor("x"), [](size_t i) { return static_cast<float>(i + 5); });
  EXPECT_THAT(test::run(*net), ElementsAre(5, 6));
  EXPECT_THAT(floats(*net->get_io_tensor("same")), ElementsAre(5, 6));
  EXPECT_THAT(floats(*net->get_io_tensor("c")), ElementsAre(1, 2));
}

TEST(LiteNetwork, VarsKeepTheirState) {
  const char* text =
      "graph g(%x: f32[2]) vars(%sum: f32[2]) {\n %s1 = add %sum, %x\n} returns(%s1) commits(%sum <- %s1)";
  EXPECT_THAT(error_of([&] { load(text); }), HasSubstr("var 'sum' float32[2] has no initial value"));
  mge::serial::ModelInfo info;
  mge::Meta m;
  m.shape = {2};
  auto init = mge::allocate_storage({}, 8);
  static_cast<float*>(init->ptr)[0] = 100;
  static_cast<float*>(init->ptr)[1] = 200;
  info.var_values.push_back({"sum", m, init, 0});
  auto bytes = test::model_of(text, info);
  auto net = std::make_shared<Network>();
  net->load_model(bytes.data(), bytes.size());
  fill(*net->get_io_tensor("x"), [](size_t) { return 1.0f; });
  EXPECT_THAT(test::run(*net), ElementsAre(101, 201));
  EXPECT_THAT(test::run(*net), ElementsAre(102, 202));
  auto other = std::make_shared<Network>();
  Runtime::shared_weight_with_network(other, net);  // weights are shared, state is not
  fill(*other->get_io_tensor("x"), [](size_t) { return 1.0f; });
  EXPECT_THAT(test::run(*other), ElementsAre(101, 201));
}

TEST(LiteNetwork, SharedWeights) {
  auto net = load_net();
  auto copy = std::make_shared<Network>();
  Runtime::shared_weight_with_network(copy, net);
  fill(*net->get_io_tensor("data"), pixel);
  fill(*copy->get_io_tensor("data"), pixel);
  std::vector<float> y = test::run(*net);
  net.reset();
  EXPECT_EQ(test::run(*copy), y);
  EXPECT_THAT(error_of([&] { Runtime::shared_weight_with_network(copy, std::make_shared<Network>()); }),
              HasSubstr("needs a loaded model"));
}

TEST(LiteNetwork, Callbacks) {
  auto net = load_net();
  int started = 0, finished = 0;
  net->set_start_callback([&](const auto& io) {
    EXPECT_EQ(io.size(), 2u);
    fill(*io.at("data").second, pixel);
    ++started;
  });
  net->set_finish_callback([&](const auto& io) {
    EXPECT_NE(floats(*io.at("logits").second), std::vector<float>(10));
    ++finished;
  });
  net->forward();
  EXPECT_EQ(finished, 0);
  net->wait();
  net->wait();
  EXPECT_EQ(started, 1);
  EXPECT_EQ(finished, 1);
  net->set_start_callback([](const auto&) { throw std::runtime_error("no camera"); });
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("no camera"));
}

TEST(LiteNetwork, AsyncRunsElsewhere) {
  auto net = load_net();
  fill(*net->get_io_tensor("data"), pixel);
  std::vector<float> want = test::run(*net);
  std::atomic<int> done{0};
  std::atomic<bool> same_thread{false}, forward_refused{false};
  auto caller = std::this_thread::get_id();
  net->set_async_callback([&, net = net.get()] {
    same_thread = std::this_thread::get_id() == caller;
    forward_refused = error_of([&] { net->forward(); }).find("called from a callback") != std::string::npos;
    net->wait();  // must not wait for itself
    ++done;
  });
  for (int i = 0; i < 20; ++i) net->forward();
  net->wait();
  EXPECT_EQ(done, 20);
  EXPECT_FALSE(same_thread);
  EXPECT_TRUE(forward_refused);
  EXPECT_EQ(floats(*net->get_io_tensor("logits")), want);
  net->get_io_tensor("data")->set_layout(f32({2, 9, 8, 8}));
  net->forward();
  EXPECT_THAT(error_of([&] { net->wait(); }), HasSubstr("conv2d"));
  EXPECT_EQ(done, 21);  // called after a failure too
  net->wait();          // reported once
  net->get_io_tensor("data")->set_layout(f32({2, 1, 8, 8}));
  net->forward();
  net.reset();  // waits for the run
  EXPECT_EQ(done, 22);
}

TEST(LiteNetwork, NetworksInSeveralThreads) {
  auto first = load_net();
  fill(*first->get_io_tensor("data"), pixel);
  std::vector<float> want = test::run(*first);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto net = std::make_shared<Network>();
      Runtime::set_cpu_threads_number(net, static_cast<size_t>(1 + t % 2));
      if (t < 2)
        net->load_model(test::net_path());
      else
        Runtime::shared_weight_with_network(net, first);
      for (int i = 0; i < 50; ++i) {
        fill(*net->get_io_tensor("data"), pixel);
        wrong += test::run(*net) != want;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LiteNetwork, MemoryLimitIsAnErrorNotACrash) {
  const char* text = "graph g(%x: f32[1024,1024]) {\n %a = exp %x  loc big.py:3\n %b = matmul %a, %a\n} returns(%b)";
  auto net = load(text);
  auto& pool = mge::Pool::of({});
  pool.trim();
  pool.set_limit(pool.stats().allocated + (5 << 20));
  EXPECT_THAT(error_of([&] { net->forward(); }), testing::ContainsRegex("[Mm]emory|limit"));
  pool.set_limit(0);
  EXPECT_EQ(test::run(*net).size(), 1024u * 1024u);
}

TEST(LiteNetwork, ThreadAffinity) {
  for (size_t n : {1, 3}) {
    auto net = std::make_shared<Network>();
    Runtime::set_cpu_threads_number(net, n);
    EXPECT_THAT(error_of([&] { Runtime::set_runtime_thread_affinity(net, [](int) {}); }),
                HasSubstr("needs a loaded model"));
    net->load_model(test::net_path());
    std::atomic<unsigned> seen{0};
    Runtime::set_runtime_thread_affinity(net, [&](int id) { seen |= 1u << id; });
    EXPECT_EQ(seen, (1u << n) - 1);
  }
}

TEST(LiteNetwork, ModelInformation) {
  NetworkIO io = Runtime::get_model_io_info(test::net_path());
  ASSERT_EQ(io.inputs.size(), 2u);
  EXPECT_EQ(io.inputs[0].name, "data");
  EXPECT_TRUE(io.inputs[0].config_layout == f32({2, 1, 8, 8}));
  EXPECT_TRUE(io.outputs[1].config_layout == f32({2, 5}));
  mge::serial::ModelInfo info;
  info.metadata = {{"author", "a \"quoted\" one"}, {"n", "2"}};
  auto bytes = test::model_of(kAffine, info);
  EXPECT_EQ(Runtime::get_model_io_info(bytes.data(), bytes.size()).inputs[1].name, "b");
  Network net;
  net.load_model(bytes.data(), bytes.size());
  EXPECT_EQ(net.get_model_extra_info(), R"({"author":"a \"quoted\" one","n":"2"})");
}

TEST(LiteNetwork, DumpsEveryValue) {
  std::string dir = testing::TempDir() + "lite_dump_" + std::to_string(::getpid());
  auto net = std::make_shared<Network>();
  Runtime::enable_io_txt_dump(net, dir + ".txt");
  Runtime::enable_io_bin_dump(net, dir);
  net->load_model(test::net_path());
  EXPECT_EQ(net->get_all_output_name().size(), 2u);  // what dumps add is not shown
  fill(*net->get_io_tensor("data"), pixel);
  auto plain = load_net();
  fill(*plain->get_io_tensor("data"), pixel);
  EXPECT_EQ(test::run(*net), test::run(*plain));
  std::ifstream f(dir + ".txt");
  std::string text((std::istreambuf_iterator<char>(f)), {});
  EXPECT_THAT(text, AllOf(HasSubstr("owner_opr=var0{conv2d}"), HasSubstr("{batch_norm_infer}"),
                          HasSubstr("layout=float32[2,64]"), HasSubstr("loc=net.py:26"), HasSubstr("name=prob")));
  const std::string name = "var={id:0,shape:{2,4,8,8},float32,owner:var0(conv2d),name:var0} owner_opr_inputs=[]";
  EXPECT_EQ(std::filesystem::file_size(dir + "/000000"), 40 + name.size() + 2 * 4 * 64 * 4);
  std::filesystem::remove_all(dir);
  std::filesystem::remove(dir + ".txt");
}

TEST(LiteNetwork, OneLayoutOptionAtMost) {
  Config c;
  c.options.enable_nchw44 = c.options.enable_nchw88 = true;
  EXPECT_THAT(error_of([&] { load(kAffine, c); }),
              HasSubstr("of the layout options only one may be on; got enable_nchw44 and enable_nchw88."));
}

TEST(LiteNetwork, WhatThereIsNotSaysWhy) {
  auto with = [](auto set) {
    Config c;
    set(c);
    return error_of([&] { load(kAffine, c); });
  };
  EXPECT_THAT(with([](Config& c) { c.device_type = LITE_CUDA; }), HasSubstr("device type 1: this library runs on the"));
  EXPECT_THAT(with([](Config& c) { c.has_compression = true; }), HasSubstr("has_compression is for models in the"));
  EXPECT_THAT(with([](Config& c) { c.bare_model_cryption_name = "RC4_default"; }), HasSubstr("decrypting with"));
  EXPECT_THAT(with([](Config& c) { c.discrete_input_name = "y"; }), HasSubstr("discrete_input_name is 'y'; inputs"));
  EXPECT_THAT(with([](Config& c) { c.backend = static_cast<LiteBackend>(4); }), HasSubstr("4 is no LiteBackend"));
  EXPECT_THAT(with([](Config& c) { c.options.jit_level = 3; }), HasSubstr("jit_level is 0, 1 or 2; got 3"));
  EXPECT_THAT(with([](Config& c) { c.options.graph_opt_level = 9; }), HasSubstr("graph_opt_level is 0 to 3; got 9"));
  auto net = load(kAffine);
  EXPECT_THAT(error_of([&] { Runtime::use_tensorrt(net); }), HasSubstr("use_tensorrt: TensorRT needs a GPU"));
  EXPECT_THAT(error_of([&] { Runtime::enable_global_layout_transform(net); }), HasSubstr("must come before load"));
  EXPECT_THAT(error_of([] { register_decryption_and_key("k", {}, {}); }), HasSubstr("'k' is empty"));
  EXPECT_THAT(error_of([] { set_persistent_cache(""); }), HasSubstr("needs the name of a file"));
  mge::serial::ModelInfo info;
  info.preprocess.push_back({"x", "normalize", {}});
  auto bytes = test::model_of(kAffine, info);
  EXPECT_THAT(error_of([&] { Network().load_model(bytes.data(), bytes.size()); }), HasSubstr("pre-processing section"));
}

TEST(LiteGlobal, VersionLogAndDevices) {
  int a, b, c;
  get_version(a, b, c);
  EXPECT_EQ(a, MGE_VERSION_MAJOR);
  EXPECT_EQ(b, MGE_VERSION_MINOR);
  EXPECT_EQ(c, MGE_VERSION_PATCH);
  EXPECT_EQ(get_log_level(), ERROR);
  set_log_level(INFO);
  EXPECT_EQ(get_log_level(), INFO);
  set_log_level(ERROR);
  EXPECT_GE(get_device_count(LITE_CPU), 1u);
  EXPECT_EQ(get_device_count(LITE_CUDA), 0u);
  try_coalesce_all_free_memory();
}

// The file in tests/data was written by the first version of the format: every later one must read it.
TEST(LiteNetwork, FirstFormatStaysReadable) {
  std::ifstream f(MGE_TEST_DATA "/lite/net_v1.txt");
  std::string text((std::istreambuf_iterator<char>(f)), {});
  auto m = mge::serial::read_model_file(test::net_path());
  EXPECT_EQ(mge::ir::print(m.graph), mge::ir::print(mge::ir::parse(text)));
}

}  // namespace
}  // namespace lite
