// Lite on a device whose memory the host cannot read and whose work is done later.
#include <gmock/gmock.h>

#include "core/fake_device.h"
#include "lite/engine.h"
#include "lite/models.h"

namespace lite {
namespace {

using mge::Buffer;
using mge::Meta;
using ::testing::HasSubstr;

class FakeDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    mge::enable_fake_devices();
    mge::fake_reset();
    mge::fake_set_delay(50);
  }
  void TearDown() override { mge::fake_reset(); }

  static std::shared_ptr<const mge::serial::LoadedModel> model(const std::string& text) {
    auto m = std::make_shared<mge::serial::LoadedModel>();
    m->graph = mge::ir::parse(text);
    return m;
  }
  static Meta f32(mge::Shape s) {
    Meta m;
    m.shape = s;
    return m;
  }
  static Buffer ramp(const Meta& m, int every = 1) {
    Buffer b = mge::allocate_buffer(m);
    auto* p = static_cast<float*>(b.storage->ptr);
    for (int64_t i = 0; i < m.shape.numel(); ++i) p[i] = i % every ? 0.0f : static_cast<float>(i % 13) - 5.5f;
    return b;
  }
  static std::vector<std::string> run(Engine& e, const std::vector<Meta>& metas, int every = 1) {
    e.prepare(metas);
    std::vector<Buffer> in;
    for (auto& m : metas) in.push_back(ramp(m, every));
    std::vector<std::string> out;
    auto results = e.run(std::move(in));
    for (size_t i = 0; i < results.size(); ++i) {
      const Meta& m = e.output_meta(i);
      const char* p = static_cast<const char*>(results[i].data(m.dtype));
      out.push_back(m.str() + std::string(p, p + m.bytes()));
    }
    return out;
  }
};

TEST_F(FakeDevice, ANetworkGivesTheBitsOfTheHost) {
  auto net = std::make_shared<mge::serial::LoadedModel>(mge::serial::read_model_file(test::net_path()));
  Engine host(net, {}), device(net, {.device = mge::CompNode::get("fake0")});
  for (int64_t n : {2, 1, 5, 2}) {
    mge::fake_set_seed(static_cast<uint64_t>(n));
    const std::vector<Meta> metas{f32({n, 1, 8, 8}), f32({1, 5})};
    EXPECT_EQ(run(host, metas), run(device, metas)) << n;
  }
  EXPECT_GT(mge::fake_ops_run(), 0);
}

TEST_F(FakeDevice, SizesThatDependOnValues) {
  auto m = model(R"(
graph g(%x: f32[4,3]) {
  %s = shape_of %x
  %n = slice %s {axes=[0], starts=[0], stops=[1], steps=[1]}
  %i, %k = nonzero %x
  %p = slice %i {axes=[0], starts=[0], stops=[2], steps=[1], python=true} sizes(stops[0]=%k)
  %f = flatten %x
  %y = take %f, %p
  %z = reshape %x {shape=[4,3]} sizes(shape[0]=%n)
} returns(%y, %z))");
  Engine host(m, {}), device(m, {.device = mge::CompNode::get("fake0")});
  for (int64_t n : {4, 6, 1})
    for (int every : {1, 2, 3}) EXPECT_EQ(run(host, {f32({n, 3})}, every), run(device, {f32({n, 3})}, every));
}

TEST_F(FakeDevice, AFaultIsToldAndTheNetworkStaysUsable) {
  auto m = model("graph g(%x: f32[4]) {\n %a = exp %x\n %b = sin %a\n %y = reduce %b\n} returns(%y)");
  Engine device(m, {.device = mge::CompNode::get("fake0")});
  auto want = run(device, {f32({4})});
  for (auto fault : {mge::FakeFault::Kernel, mge::FakeFault::Memory}) {
    int told = 0;
    for (int nth = 1; nth <= 4; ++nth) {  // some of them are ops of the program
      mge::fake_fail_at(nth, fault);
      try {
        EXPECT_EQ(run(device, {f32({4})}), want);
      } catch (const mge::Error&) {
        ++told;
      }
      mge::fake_fail_at(0, fault);
      EXPECT_EQ(run(device, {f32({4})}), want);
    }
    EXPECT_GT(told, 0);
  }
}

}  // namespace
}  // namespace lite
