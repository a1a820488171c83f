// Round trips and every way a file can be wrong.
#include "serial/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "ir/text.h"
#include "op/in_build.h"
#include "serial/container.h"
#include "serial/names.h"
#include "serial/xxh64.h"

namespace mge::serial {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Every kind of thing a graph can hold: inputs, a var with a commit, constants, attributes of every kind, locations,
// tokens.
constexpr const char* kText = R"(
graph net(%x: f32[2,1,6,6], %t: f32[2,4]) vars(%m: f32[2,4]) {
  const %w: f32[1,1,3,3] = 0000803f0000803f0000803f0000803f0000803f0000803f0000803f0000803f0000803f
  const %c: f32[] = 0000003f
  %y = conv2d %x, %w {stride=[1,1], pad=[1,1]}          loc net.py:31 in forward of net.conv
  %p = max_pool2d %y {kernel=[3,2]}                     loc net.py:32
  %r = reshape %p {shape=[2,6]}
  %q = slice %r {axes=[1], starts=[0], stops=[4], steps=[1]}  loc "my dir/net.py":33 in forward (backward) of "my net.0"
  %k = full {shape=[3], value=0.5, dtype=int32}         loc of net.k
  %m1 = copy %q
} returns(%q, twice=%q, %k) commits(%m <- %m1)
)";

Meta f32(const Shape& s) {
  Meta m;
  m.shape = s;
  return m;
}

RefPtr<Storage> storage_of(const std::vector<float>& v) {
  auto s = allocate_storage({}, v.size() * 4);
  std::memcpy(s->ptr, v.data(), v.size() * 4);
  return s;
}

ModelInfo sample_info() {
  ModelInfo info;
  info.producer = "serial test 1.0";
  info.metadata = {{"author", "me"}, {"note", "ünïcode"}};
  Meta m24 = f32({2, 4});
  info.var_values.push_back({"m", m24, storage_of({1, 2, 3, 4, 5, 6, 7, 8})});
  TestCase t;
  t.name = "case 0";
  t.max_error = 1e-4;
  t.inputs.push_back({"x", f32({2, 1, 6, 6}), storage_of(std::vector<float>(72, 0.25f))});
  t.outputs.push_back({"q", m24, storage_of(std::vector<float>(8, 2.0f))});
  info.tests.push_back(t);
  info.preprocess.push_back({"x", "normalize", {{"mean", AttrValue(0.5)}, {"axes", AttrValue(Ints{1, 2})}}});
  return info;
}

const std::vector<uint8_t>& sample() {
  static const std::vector<uint8_t> bytes = write_model(ir::parse(kText), sample_info());
  return bytes;
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Env) << e.text();
    return e.text();
  }
  return "no error";
}
std::string read_error(std::vector<uint8_t> bytes) {
  return error_of([&] { read_model(bytes, "net.mge"); });
}

// Recomputes every checksum, so that damage reaches the checks behind them.
void reseal(std::vector<uint8_t>& b) {
  Header h;
  std::memcpy(&h, b.data(), sizeof h);
  for (uint32_t i = 0; i < h.n_sections; ++i) {
    uint8_t* at = b.data() + sizeof h + i * sizeof(Section);
    Section s;
    if (at + sizeof s > b.data() + b.size()) return;
    std::memcpy(&s, at, sizeof s);
    if (s.offset > b.size() || s.size > b.size() - s.offset) continue;
    s.checksum = xxh64({b.data() + s.offset, s.size});
    std::memcpy(at, &s, sizeof s);
  }
  size_t table = h.n_sections * sizeof(Section);
  if (sizeof h + table > b.size()) return;
  Xxh64 sum;
  sum.update({b.data(), offsetof(Header, checksum)});
  sum.update({b.data() + sizeof h, table});
  h.checksum = sum.digest();
  std::memcpy(b.data(), &h, sizeof h);
}

Section section_of(const std::vector<uint8_t>& b, SectionKind kind) {
  for (const Section& s : open_container(b, "test"))
    if (s.kind == static_cast<uint32_t>(kind)) return s;
  ADD_FAILURE() << "no such section";
  return {};
}

// Overwrites `from` by `to` (same length) inside the graph section and seals again.
std::vector<uint8_t> patched(std::string_view from, std::string_view to) {
  std::vector<uint8_t> b = sample();
  Section s = section_of(b, SectionKind::Graph);
  auto it = std::search(b.begin() + s.offset, b.begin() + s.offset + s.size, from.begin(), from.end());
  EXPECT_NE(it, b.begin() + s.offset + s.size) << from;
  std::copy(to.begin(), to.end(), it);
  reseal(b);
  return b;
}

// An op of our own, whose version and attributes tests may play with.
void infer_same(InferCtx& c) { c.out[0] = c.x(0); }
struct TestAttrs {
  int64_t width = 3;
  bool fast = true;
  static constexpr auto fields() { return field_list("width", &TestAttrs::width, "fast", &TestAttrs::fast); }
};
OpDef& versioned_op() {
  static OpDef* op = [] {
    OpRegistry& r = OpRegistry::global();
    r.op("serial_test_op").attrs<TestAttrs>().in("x").out("y").infer(infer_same).version(1);
    return const_cast<OpDef*>(r.find("serial_test_op"));
  }();
  return *op;
}
std::vector<uint8_t> write_with_version(int version) {
  OpDef& op = versioned_op();
  op.version = version;
  Graph g;
  auto x = g.add_input("x", f32({2}));
  g.add_output("y", g.add1("serial_test_op", make_attrs(TestAttrs{.width = 8}), {x}));
  return write_model(g);
}

TEST(Xxh64, MatchesPublishedVectors) {
  auto hash = [](std::string_view s, uint64_t seed = 0) {
    return xxh64({reinterpret_cast<const uint8_t*>(s.data()), s.size()}, seed);
  };
  EXPECT_EQ(hash(""), 0xEF46DB3751D8E999ull);
  EXPECT_EQ(hash("a"), 0xD24EC4F1A98C6E5Bull);
  EXPECT_EQ(hash("abc"), 0x44BC2CF5AD770999ull);
  EXPECT_EQ(hash("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1ull);
}

TEST(Xxh64, PiecesGiveTheSameHash) {
  std::vector<uint8_t> v(1000);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint8_t>(i * 7);
  for (size_t cut : {1u, 7u, 31u, 32u, 33u, 500u, 999u}) {
    Xxh64 s;
    s.update({v.data(), cut});
    s.update({v.data() + cut, v.size() - cut});
    EXPECT_EQ(s.digest(), xxh64(v)) << cut;
  }
}

TEST(Model, RoundTripKeepsTheGraph) {
  Graph g = ir::parse(kText);
  LoadedModel m = read_model(sample());
  EXPECT_EQ(ir::print(m.graph, {.types = true}), ir::print(g, {.types = true}));
  EXPECT_EQ(write_model(m.graph, m.info), sample());  // and byte for byte the same file again
  EXPECT_FALSE(m.mapped);
  EXPECT_EQ(m.file_bytes, sample().size());
}

TEST(Model, RoundTripKeepsTheRest) {
  LoadedModel m = read_model(sample());
  EXPECT_EQ(m.info.producer, "serial test 1.0");
  EXPECT_EQ(m.info.metadata, sample_info().metadata);
  ASSERT_EQ(m.info.var_values.size(), 1u);
  EXPECT_EQ(m.info.var_values[0].name, "m");
  EXPECT_EQ(static_cast<const float*>(m.info.var_values[0].data())[7], 8.0f);
  ASSERT_EQ(m.info.tests.size(), 1u);
  EXPECT_EQ(m.info.tests[0].max_error, 1e-4);
  EXPECT_EQ(m.info.tests[0].outputs[0].meta.shape, (Shape{2, 4}));
  EXPECT_EQ(static_cast<const float*>(m.info.tests[0].inputs[0].data())[71], 0.25f);
  ASSERT_EQ(m.info.preprocess.size(), 1u);
  EXPECT_EQ(m.info.preprocess[0].op, "normalize");
  EXPECT_EQ(print_attr(m.info.preprocess[0].attrs[1].value), "[1,2]");
}

TEST(Model, LinesAndModulesAreKeptAsAsked) {
  auto text = [](const WriteOptions& opt) {
    return ir::print(read_model(write_model(ir::parse(kText), {}, opt)).graph);
  };
  EXPECT_THAT(text({}), AllOf(HasSubstr("loc net.py:31 in forward of net.conv"), HasSubstr("loc of net.k")));
  EXPECT_THAT(text({.locations = false}), AllOf(HasSubstr("loc of net.conv"), Not(HasSubstr("net.py"))));
  EXPECT_THAT(text({.scopes = false}), AllOf(HasSubstr("loc net.py:31 in forward"), Not(HasSubstr("net.conv"))));
  EXPECT_THAT(text({.locations = false, .scopes = false}), Not(HasSubstr("loc")));
}

TEST(Model, SeveralInOneFile) {
  std::vector<uint8_t> second = write_model(ir::parse("graph g(%a: f32[2]) {\n  %b = exp %a\n} returns(%b)\n"));
  std::vector<uint8_t> file = sample();
  file.insert(file.end(), second.begin(), second.end());
  file.insert(file.end(), second.begin(), second.end());
  LoadedModel first = read_model(file), last = read_model(file, "m", {.index = 2});
  EXPECT_EQ(first.n_models, 3u);
  EXPECT_EQ(ir::print(first.graph), ir::print(read_model(sample()).graph));
  EXPECT_EQ(ir::print(last.graph), ir::print(read_model(second).graph));
  EXPECT_THAT(error_of([&] { read_model(file, "m", {.index = 3}); }), HasSubstr("m: holds 3 models"));
  for (size_t at : {sample().size() + 9, file.size() - 1, size_t{40}}) {
    std::vector<uint8_t> bad = file;
    bad[at] ^= 1;
    EXPECT_NE(error_of([&] { read_model(bad); }), "") << at;
  }
  file.resize(file.size() - 5);
  EXPECT_THAT(error_of([&] { read_model(file, "m"); }), HasSubstr("m (model 3 of 3): cut off"));
}

TEST(Names, AsTheOriginalGivesThem) {
  Graph g = ir::parse(R"(
graph g(%x: f32[2,3], %w: f32[4,3], %b: f32[4]) {
  const %c0: f32[] = 00000040
  const %c1: f32[4] = 00000040000000400000004000000040
  %0 = matmul %x, %w, %b {tb=true}      loc of net.fc
  %1 = relu %0                          loc of net
  %mine = mul %1, %c0                   loc of net
  %3 = relu %mine                       loc of net
  %4 = add %3, %c1
  %5 = slice %4 {axes=[0], starts=[0], stops=[1], steps=[1]}  loc a.py:1
  %6 = squeeze %5 {axes=[0]}            loc a.py:1
  %7 = reduce %6 {axes=[0]}
  %8, %9 = topk %6 {k=2}
} returns(%7, %8)
)");
  auto names = opr_names(g);
  std::vector<std::string> flat;
  for (auto& n : names) flat.insert(flat.end(), n.begin(), n.end());
  EXPECT_EQ(flat, (std::vector<std::string>{"net.fc.MatrixMul", "net.fc.ADD", "net.RELU[0]", "net.MUL", "net.RELU[1]",
                                            "ADD", "Subtensor:slice", "Subtensor", "Reduce[0]", "Reduce[1]", "TopK"}));
  name_values(g);
  EXPECT_EQ(g.value(g.outputs()[0].value).name, "Reduce[1]");
  EXPECT_EQ(g.value(g.outputs()[1].value).name, "TopK:o0");
  std::string text = ir::print(g);
  EXPECT_THAT(text, AllOf(HasSubstr("%mine = mul"), HasSubstr("const<2>["), HasSubstr("const{4}[")));
}

TEST(Model, EmptyAndZeroSizeThings) {
  Graph g = ir::parse("graph g(%x: f32[0,3], %s: f32[]) {\n const %c: f32[0] = \n} returns(%x, %s, %c)");
  LoadedModel m = read_model(write_model(g));
  EXPECT_EQ(ir::print(m.graph), ir::print(g));
}

TEST(Model, EffectsKeepTheirOrder) {
  Graph g = ir::parse(R"(
graph g() vars(%s: i32[4]) {
  %y, %s1 = rng_uniform %s {shape=[2]}
  %z, %s2 = rng_uniform %s1 {shape=[3]}
} returns(%y, %z) commits(%s <- %s2))");
  LoadedModel m = read_model(write_model(g));
  EXPECT_EQ(ir::print(m.graph), ir::print(g));
}

TEST(Model, ConstantsAreAlignedAndShared) {
  auto s = storage_of(std::vector<float>(32, 1.0f));
  Graph g;
  g.add_output("a", g.add_constant(f32({16}), s, 0));
  g.add_output("b", g.add_constant(f32({16}), s, 0));
  g.add_output("c", g.add_constant(f32({3}), s, 64));
  LoadedModel m = read_model(write_model(g));
  EXPECT_EQ(m.weight_bytes, 64u + 12u);
  for (const ir::Constant& c : m.graph.constants()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(c.data()) % 64, 0u);
    EXPECT_FALSE(c.storage->writable);
  }
}

class ModelFile : public testing::Test {
 protected:
  ModelFile() : path_(testing::TempDir() + "serial_" + std::to_string(::getpid()) + ".mge") {}
  ~ModelFile() override { std::remove(path_.c_str()); }
  std::string path_;
};

TEST_F(ModelFile, LargeFilesAreMappedAndOutliveTheirName) {
  auto big = allocate_storage({}, 4 << 20);
  std::memset(big->ptr, 7, big->bytes);
  Graph g;
  g.add_output("y", g.add_constant(f32({1 << 20}), big));
  write_model_file(path_, g);
  LoadedModel m = read_model_file(path_);
  EXPECT_TRUE(m.mapped);
  std::filesystem::remove(path_);
  const ir::Constant& c = m.graph.constants()[0];
  EXPECT_EQ(std::memcmp(c.data(), big->ptr, big->bytes), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(c.data()) % 64, 0u);
}

TEST_F(ModelFile, RewritingLeavesAnOpenModelAlone) {
  auto v = allocate_storage({}, 4 << 20);
  std::memset(v->ptr, 1, v->bytes);
  Graph g;
  g.add_output("y", g.add_constant(f32({1 << 20}), v));
  write_model_file(path_, g);
  LoadedModel m = read_model_file(path_);
  write_model_file(path_, ir::parse("graph g(%x: f32[1]) {} returns(%x)"));
  EXPECT_EQ(*static_cast<const uint8_t*>(m.graph.constants()[0].data()), 1);
  EXPECT_EQ(read_model_file(path_).graph.n_nodes(), 0u);
}

TEST_F(ModelFile, MissingFolderAndUnwritablePaths) {
  EXPECT_THAT(error_of([] { read_model_file("/nowhere/net.mge"); }),
              HasSubstr("/nowhere/net.mge: cannot open: No such file"));
  EXPECT_THAT(error_of([] { read_model_file("/tmp"); }), HasSubstr("this is a folder"));
  EXPECT_THAT(error_of([] { read_model_file("/dev/null"); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([] { write_model_file("/nowhere/net.mge", Graph()); }),
              HasSubstr("cannot write: the folder /nowhere does not exist"));
}

TEST(ModelErrors, WhatCannotBeWritten) {
  Graph g = ir::parse("graph g(%x: f32[1]) {} returns(%x, %x)");
  auto text = [&](const Graph& graph, const ModelInfo& info = {}) -> std::string {
    try {
      write_model(graph, info);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value);
      return e.text();
    }
    return "no error";
  };
  EXPECT_THAT(text(g), HasSubstr("two outputs are called 'x'"));
  Graph no_data = ir::parse("graph g() {\n const %c: f32[4]\n} returns(%c)");
  EXPECT_THAT(text(no_data), HasSubstr("has no data"));
  ModelInfo info;
  info.var_values.push_back({"v", f32({1}), storage_of({1})});
  EXPECT_THAT(text(ir::parse("graph g(%x: f32[1]) {} returns(%x)"), info), HasSubstr("which graph g does not have"));
  EXPECT_THAT(text(ir::parse("graph g() vars(%v: f32[2]) {} returns(%v)"), info),
              HasSubstr("is float32[2] but its value is float32[1]"));
}

TEST(ModelErrors, NumbersThatWouldOverflow) {
  versioned_op();
  Graph g;
  g.add_output("y", g.add1("serial_test_op", make_attrs(TestAttrs{.width = INT64_MAX}), {g.add_input("x", f32({2}))}));
  EXPECT_THROW(write_model(g), Error);
}

TEST(ModelErrors, ForeignFiles) {
  auto named = [](std::string_view bytes) {
    std::vector<uint8_t> b(bytes.begin(), bytes.end());
    b.resize(200);
    return read_error(b);
  };
  using namespace std::string_view_literals;
  EXPECT_THAT(named("mgb0001\0"sv), HasSubstr("net.mge: this is a MegEngine file in the old proprietary format"));
  EXPECT_THAT(named("mgb0000a"), HasSubstr("proprietary"));
  EXPECT_THAT(
      named("MGBS\0\0\0\0"sv),
      HasSubstr("this is a MegEngine v1 graph file (MGBS). The reader of those files is not part of this build"));
  EXPECT_THAT(named("MGBC\0\0\0\0"sv), HasSubstr("v1 graph file (MGBC)"));
  EXPECT_THAT(named("\x10\x20\0\0\x18\0\0\0mgv2"sv), HasSubstr("this is a MegEngine v2 graph file"));
  EXPECT_THAT(named("mgbtest0"), HasSubstr("with test cases"));
  EXPECT_THAT(named("packed_model"), HasSubstr("packed Lite model"));
  EXPECT_THAT(named("PK\x03\x04"), HasSubstr("zip archive"));
  EXPECT_THAT(named("\x80\x04\x95"), AllOf(HasSubstr("Python pickle"), HasSubstr("megengine.load")));
  EXPECT_THAT(named("\x93NUMPY\x01"), HasSubstr("NumPy array"));
  EXPECT_THAT(named("\x1f\x8b\x08"), HasSubstr("gzip"));
  EXPECT_THAT(named("\x08\x08\x12\x07pytorch"), HasSubstr("ONNX"));
  EXPECT_THAT(named("hello"), HasSubstr("not a model file; it starts with 68 65 6c 6c"));
  EXPECT_THAT(named("\x89MGE\n\x1a\n"), HasSubstr("text-mode transfer"));
  EXPECT_THAT(read_error({}), HasSubstr("the file is empty"));
}

TEST(ModelErrors, Truncated) {
  const auto& b = sample();
  EXPECT_THAT(read_error({b.begin(), b.begin() + 20}), HasSubstr("cut off after 20 bytes"));
  EXPECT_THAT(read_error({b.begin(), b.end() - 1}), HasSubstr("cut off: "));
  auto longer = b;
  longer.push_back(0);
  EXPECT_THAT(read_error(longer), HasSubstr("1 bytes follow the last section"));
}

TEST(ModelErrors, NewerFormat) {
  auto b = sample();
  b[8] = 9;
  EXPECT_THAT(read_error(b),
              HasSubstr("file format 9 is newer than this build, which reads up to 1. Update this runtime"));
}

TEST(ModelErrors, EverySingleBitFlipIsFound) {
  std::vector<uint8_t> b = sample();
  for (size_t i = 0; i < b.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      b[i] ^= 1 << bit;
      EXPECT_THROW(read_model(b), Error) << "byte " << i << " bit " << bit;
      b[i] ^= 1 << bit;
    }
}

TEST(ModelErrors, UnknownOpsAreAllListed) {
  EXPECT_THAT(read_error(patched("max_pool2d", "max_pool9z")),
              HasSubstr("needs ops that this build does not have: max_pool9z."));
  auto b = patched("max_pool2d", "max_pool9z");
  auto at = std::search(b.begin(), b.end(), "reshape", "reshape" + 7);
  std::copy_n("reshepe", 7, at);
  reseal(b);
  EXPECT_THAT(read_error(b), AllOf(HasSubstr("max_pool9z"), HasSubstr("reshepe"), Not(HasSubstr("conv2d"))));
}

TEST(ModelErrors, UnknownAttributeNamesTheUsersLine) {
  EXPECT_THAT(read_error(patched("kernel", "kornel")),
              AllOf(HasSubstr("max_pool2d: there is no attribute 'kornel'"), HasSubstr("at net.py:32")));
}

TEST(ModelErrors, RequiredSectionOfAnotherKind) {
  auto b = sample();
  for (int i = 0;; ++i) {
    Section s;
    std::memcpy(&s, b.data() + 32 + 32 * i, 32);
    if (s.kind != 5) continue;
    s.kind = 4711;
    std::memcpy(b.data() + 32 + 32 * i, &s, 32);
    reseal(b);
    EXPECT_THAT(read_error(b), HasSubstr("section of kind 4711 that this build does not know"));
    s.flags = 0;
    std::memcpy(b.data() + 32 + 32 * i, &s, 32);
    reseal(b);
    EXPECT_TRUE(read_model(b).info.preprocess.empty());
    return;
  }
}

TEST(ModelVersions, NewerOpIsRefused) {
  auto b = write_with_version(4);
  versioned_op().version = 2;
  EXPECT_THAT(
      read_error(b),
      HasSubstr("needs newer versions of ops than this build has: serial_test_op 4 (here 2). Update this runtime."));
}

TEST(ModelVersions, OlderOpIsUpgradedStepByStep) {
  auto b = write_with_version(1);
  versioned_op().version = 3;
  EXPECT_THAT(read_error(b), HasSubstr("this build cannot bring it from 1 to 2"));
  static const Upgrade rules[] = {{"serial_test_op", 1, nullptr}, {"serial_test_op", 2, [](std::vector<NamedAttr>& a) {
                                                                     for (NamedAttr& x : a)
                                                                       if (x.name == "width")
                                                                         x.value = std::get<int64_t>(x.value) * 10;
                                                                   }}};
  LoadedModel m = read_model(b, "net.mge", {.upgrades = rules});
  EXPECT_EQ(attrs_as<TestAttrs>(m.graph.node(m.graph.first()).attrs.get()).width, 80);
}

TEST(ModelVersions, QuantizeNamesItsTypeInOneAttribute) {
  for (const Upgrade& u : builtin_upgrades()) {
    std::vector<NamedAttr> a{{"dtype", DType::QU8}, {"scale", 0.5}, {"zero_point", int64_t{7}}};
    u.fn(a);
    if (std::string_view(u.op) != "quantize") continue;
    ASSERT_EQ(a.size(), 1u);
    EXPECT_EQ(std::get<QType>(a[0].value), (QType{DType::QU8, {0.5, 7, 0}}));
    std::vector<NamedAttr> damaged{{"dtype", int64_t{3}}, {"scale", std::string("x")}};
    u.fn(damaged);
    EXPECT_EQ(std::get<QType>(damaged[0].value), QType());
  }
}

TEST(ModelRoundTrip, QuantisedPerChannel) {
  const std::string text =
      "graph net(%x: f32[2,3]) {\n"
      "  %q = quantize %x {type=quint8([0.1,0.25,3.0],[0,7,255],1,1)}\n"
      "  %y = dequantize %q\n"
      "} returns(%y)\n";
  const ir::Graph g = ir::parse(text);
  const std::string printed = ir::print(g);
  EXPECT_THAT(printed, HasSubstr("type=quint8([0.1,0.25,3.0],[0,7,255],1,1)"));
  const LoadedModel m = read_model(write_model(g));
  EXPECT_EQ(ir::print(m.graph), printed);
}

// ---- fuzzing: nothing may crash, leak or be accepted silently

void mutate(std::vector<uint8_t>& b, std::mt19937& rng) {
  auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  switch (rng() % 6) {
    case 0:
      b.resize(below(b.size()));
      break;
    case 1:
      b[below(b.size())] ^= 1 << (rng() % 8);
      break;
    case 2: {  // a word of extremes
      static const uint32_t extremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 64, 0xfffffff0};
      uint32_t v = extremes[rng() % 7];
      size_t at = below(b.size());
      std::memcpy(b.data() + at, &v, std::min<size_t>(4, b.size() - at));
      break;
    }
    case 3: {  // noise
      size_t at = below(b.size()), n = std::min(b.size() - at, below(40) + 1);
      for (size_t i = 0; i < n; ++i) b[at + i] = static_cast<uint8_t>(rng());
      break;
    }
    case 4: {  // a piece from elsewhere
      size_t n = below(64) + 1, from = below(b.size()), to = below(b.size());
      n = std::min({n, b.size() - from, b.size() - to});
      std::memmove(b.data() + to, b.data() + from, n);
      break;
    }
    default:
      b.insert(b.begin() + below(b.size()), below(32) + 1, static_cast<uint8_t>(rng()));
      break;
  }
}

TEST(ModelFuzz, DamageIsAlwaysReported) {
  std::mt19937 rng(20240611);
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint8_t> b = sample();
    mutate(b, rng);
    if (b == sample()) continue;
    EXPECT_THROW(read_model(b), Error) << "round " << i;
  }
}

// With correct checksums the damage reaches FlatBuffers, the graph reader and the ops' inference. Any outcome but a
// crash is fine.
TEST(ModelFuzz, HostileFilesNeverCrash) {
  std::mt19937 rng(7);
  Section graph = section_of(sample(), SectionKind::Graph);
  int accepted = 0;
  for (int i = 0; i < 6000; ++i) {
    std::vector<uint8_t> b = sample();
    if (i % 3 == 0) {
      mutate(b, rng);
      if (b.size() < sizeof(Header)) continue;
    } else {
      int edits = 1 + rng() % 3;
      for (int e = 0; e < edits; ++e) {
        size_t at = graph.offset + rng() % graph.size;
        if (rng() % 2)
          b[at] = static_cast<uint8_t>(rng());
        else
          b[at] ^= 1 << (rng() % 8);
      }
    }
    reseal(b);
    try {
      read_model(b);
      ++accepted;
    } catch (const Error& e) {
      EXPECT_NE(e.text(), "");
    }
  }
  EXPECT_GT(accepted, 100);  // names, numbers in attributes: some changes make another valid model
}

}  // namespace
}  // namespace mge::serial
