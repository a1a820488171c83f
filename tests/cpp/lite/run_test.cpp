// What load_and_run is made of: flags, inputs, dumps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "lite/run/dump.h"
#include "lite/run/flags.h"
#include "lite/run/input_data.h"
#include "lite/run/json.h"
#include "lite/run/value_checks.h"

namespace lite {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const mge::Error& e) {
    return e.text();
  }
  return "no error";
}

constexpr FlagDef kTable[] = {{"iter", FlagKind::Int, "10", "runs"},
                              {"warmup_iter", FlagKind::Int, "1", "warm up"},
                              {"model_info", FlagKind::Bool, "false", "info"},
                              {"input", FlagKind::Text, "", "inputs"},
                              {"flagfile", FlagKind::File, "", "more flags"},
                              {"fromenv", FlagKind::Text, "", "from the environment"},
                              {"limit", FlagKind::Number, "0", "a number"},
                              {"cpu", FlagKind::Bool, "false", "it is the only device", "", FlagState::Always},
                              {"tensorrt", FlagKind::Bool, "false", "no such library", "", FlagState::Refused}};
Flags parse(std::vector<const char*> args) {
  Flags f(kTable);
  args.insert(args.begin(), "prog");
  f.parse(static_cast<int>(args.size()), args.data());
  return f;
}

TEST(Flags, FormsAreTheSame) {
  for (auto args : std::vector<std::vector<const char*>>{{"m", "--warmup_iter=3"},
                                                         {"--warmup-iter", "3", "m"},
                                                         {"-warmup_iter=3", "m"},
                                                         {"--warmup-iter=3", "--", "m"}}) {
    Flags f = parse(args);
    EXPECT_EQ(f.integer("warmup_iter"), 3);
    EXPECT_EQ(f.integer("iter"), 10);
    EXPECT_THAT(f.positional(), ElementsAre("m"));
  }
  EXPECT_TRUE(parse({"--model-info"}).on("model_info"));
  EXPECT_TRUE(parse({"--model_info=yes"}).on("model_info"));
  EXPECT_FALSE(parse({"--model-info", "--nomodel_info"}).on("model_info"));
  EXPECT_EQ(parse({"--input=a=b;c"}).text("input"), "a=b;c");
}

TEST(Flags, Errors) {
  EXPECT_THAT(error_of([] { parse({"--itr=3"}); }), AllOf(HasSubstr("there is no flag --itr"), HasSubstr("--iter")));
  EXPECT_THAT(error_of([] { parse({"--info"}); }), HasSubstr("--model_info"));
  EXPECT_THAT(error_of([] { parse({"--zzzzzzzzzz"}); }), AllOf(Not(HasSubstr("Did you mean")), HasSubstr("--help")));
  EXPECT_THAT(error_of([] { parse({"--iter=x"}); }), HasSubstr("--iter takes a whole number; got 'x'"));
  EXPECT_THAT(error_of([] { parse({"--iter"}); }), HasSubstr("--iter needs a value"));
  EXPECT_THAT(error_of([] { parse({"--model_info=maybe"}); }), HasSubstr("is true or false"));
  EXPECT_THAT(error_of([] { parse({"--tensorrt"}); }), HasSubstr("--tensorrt is not supported: no such library."));
  EXPECT_FALSE(parse({"--notensorrt"}).on("tensorrt"));  // what it does not ask for is not refused
  EXPECT_THAT(error_of([] { parse({"--limit=big"}); }), HasSubstr("--limit takes a number; got 'big'"));
  EXPECT_THAT(error_of([] { parse({"--fromenv=iter"}); }), HasSubstr("FLAGS_iter is not set"));
}

TEST(Flags, OrderAndNotes) {
  Flags f = parse({"--cpu", "--input=a", "--model_info", "--iter=3"});
  EXPECT_EQ(f.last_of({"input", "model_info", "limit"}), "model_info");
  EXPECT_EQ(parse({"--model_info", "--nomodel_info", "--input=a"}).last_of({"model_info"}), "");
  EXPECT_THAT(f.notes(), ElementsAre("--cpu changes nothing: it is the only device"));
  EXPECT_EQ(parse({"--limit", "2.5"}).number("limit"), 2.5);
}

TEST(Flags, FilesAndEnvironment) {
  const std::string path = testing::TempDir() + "flags_" + std::to_string(::getpid());
  std::ofstream(path) << "# comment\n--iter=7\n\n  --model-info \r\n--input=a b\n";
  setenv("FLAGS_warmup_iter", "5", 1);
  Flags f = parse({"--flagfile", path.c_str(), "--fromenv=warmup-iter", "m"});
  EXPECT_EQ(f.integer("iter"), 7);
  EXPECT_EQ(f.integer("warmup_iter"), 5);
  EXPECT_TRUE(f.on("model_info"));
  EXPECT_EQ(f.text("input"), "a b");
  std::ofstream(path) << "--flagfile=" << path << "\n";
  EXPECT_THAT(error_of([&] { parse({"--flagfile", path.c_str()}); }), HasSubstr("in a circle"));
  std::filesystem::remove(path);
}

TEST(Flags, HelpByGroup) {
  const std::string help = parse({}).help();
  EXPECT_LT(help.find("--iter N"), help.find("--cpu "));
  EXPECT_LT(help.find("\nRefused\n"), help.find("--tensorrt"));
  EXPECT_THAT(parse({}).help("warm"), AllOf(HasSubstr("--warmup_iter"), Not(HasSubstr("--input"))));
}

class Inputs : public testing::Test {
 protected:
  Inputs() : dir_(testing::TempDir() + "lite_inputs_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~Inputs() override { std::filesystem::remove_all(dir_); }
  std::string file(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << bytes;
    return dir_ + "/" + name;
  }
  static IO io(const char* name, LiteDataType t = LITE_FLOAT) {
    IO out{.name = name};
    out.config_layout.data_type = t;
    return out;
  }
  template <class T>
  static std::vector<T> values(const InputData& d) {
    std::vector<T> v(d.bytes.size() / sizeof(T));
    std::memcpy(v.data(), d.bytes.data(), d.bytes.size());
    return v;
  }
  static std::vector<size_t> shape(const InputData& d) { return {d.layout.shapes, d.layout.shapes + d.layout.ndim}; }

  std::string dir_;
  std::vector<IO> one_ = {io("x")}, two_ = {io("x"), io("n", LITE_INT)};
};

TEST_F(Inputs, ListsTakeTheModelsType) {
  InputData d = parse_inputs("[[1,2.5],[-3,4e2]]", one_)[0];
  EXPECT_EQ(d.name, "x");
  EXPECT_THAT(shape(d), ElementsAre(2, 2));
  EXPECT_THAT(values<float>(d), ElementsAre(1, 2.5, -3, 400));
  auto both = parse_inputs("x:[1];n:[[7, 8]]", two_);
  EXPECT_THAT(values<int32_t>(both[1]), ElementsAre(7, 8));
  EXPECT_THAT(shape(both[1]), ElementsAre(1, 2));
  EXPECT_THAT(values<uint16_t>(parse_inputs("[1,-2,65504,1e-8,6e-8,0.333251953125]", {io("h", LITE_HALF)})[0]),
              ElementsAre(0x3c00, 0xc000, 0x7bff, 0, 1, 0x3555));
  EXPECT_THAT(error_of([&] { parse_inputs("[[1,2],[3]]", one_); }), HasSubstr("rows differ in length"));
  EXPECT_THAT(error_of([&] { parse_inputs("[1,[2]]", one_); }), HasSubstr("lists and numbers are mixed"));
  EXPECT_THAT(error_of([&] { parse_inputs("[1,2", one_); }), HasSubstr("expected , or ]"));
  EXPECT_THAT(error_of([&] { parse_inputs("[1,z]", one_); }), HasSubstr("a number was expected at character 4"));
  EXPECT_THAT(error_of([&] { parse_inputs("n:[3e9]", two_); }), HasSubstr("does not fit"));
}

TEST_F(Inputs, ShapesAreFilledWithOnes) {
  InputData d = parse_inputs("{2,3}", one_)[0];
  EXPECT_THAT(shape(d), ElementsAre(2, 3));
  EXPECT_EQ(d.bytes, std::vector<unsigned char>(24, 1));
  EXPECT_THAT(error_of([&] { parse_inputs("{2,x}", one_); }), HasSubstr("is no shape"));
  EXPECT_THAT(error_of([&] { parse_inputs("{99999999,99999999,99999999}", one_); }), HasSubstr("too large"));
}

TEST_F(Inputs, Names) {
  EXPECT_THAT(error_of([&] { parse_inputs("[1]", two_); }),
              HasSubstr("the model has several: x, n. Write NAME:VALUE."));
  EXPECT_THAT(error_of([&] { parse_inputs("y:[1]", two_); }), HasSubstr("no input 'y'; its inputs are x, n"));
  EXPECT_THAT(error_of([&] { parse_inputs("x:[1];x:[2]", two_); }), HasSubstr("given twice"));
  EXPECT_EQ(parse_inputs("[1]", {io("other"), io("data")})[0].name, "data");
  EXPECT_TRUE(parse_inputs("", two_).empty());
}

TEST_F(Inputs, NpyRoundTrip) {
  mge::Meta m;
  m.shape = {2, 3};
  float v[6] = {1, 2, 3, 4, 5, 6};
  write_npy(dir_ + "/x.npy", m, v);
  InputData d = parse_inputs("x:" + dir_ + "/x.npy", one_)[0];
  EXPECT_THAT(shape(d), ElementsAre(2, 3));
  EXPECT_THAT(values<float>(d), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ((std::filesystem::file_size(dir_ + "/x.npy") - 24) % 64, 0u);
  m.shape = {};
  write_npy(dir_ + "/s.npy", m, v);
  EXPECT_THAT(shape(read_npy(dir_ + "/s.npy")), ElementsAre(1));
}

TEST_F(Inputs, BadNpyFiles) {
  EXPECT_THAT(error_of([&] { read_npy(file("a.npy", "hello")); }), HasSubstr("not a NumPy .npy file"));
  auto npy = [](const std::string& head) {
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(head.size()) + std::string(1, '\0') + head;
  };
  EXPECT_THAT(
      error_of([&] { read_npy(file("b.npy", npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }"))); }),
      HasSubstr("NumPy type '>f4' cannot be used"));
  EXPECT_THAT(
      error_of([&] { read_npy(file("c.npy", npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }"))); }),
      HasSubstr("Fortran order"));
  EXPECT_THAT(
      error_of([&] { read_npy(file("d.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }"))); }),
      HasSubstr("float32[9] needs 36 bytes of data; the file has 0"));
  EXPECT_THAT(error_of([&] { read_npy(file("e.npy", npy("{'descr': '<f4'}"))); }), HasSubstr("no 'fortran_order'"));
  EXPECT_THAT(error_of([&] { read_npy(file("f.npy", npy("{}").substr(0, 11))); }), HasSubstr("cut off"));
}

TEST_F(Inputs, Images) {
  InputData d = parse_inputs(file("i.ppm", "P6 # a comment\n2 1\n255\nabcdef"), one_)[0];
  EXPECT_THAT(shape(d), ElementsAre(1, 1, 2, 3));
  EXPECT_EQ(d.layout.data_type, LITE_UINT8);
  EXPECT_EQ(std::string(d.bytes.begin(), d.bytes.end()), "abcdef");
  EXPECT_THAT(shape(read_image(file("i.pgm", "P5 2 2 255\nabcd"))), ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(error_of([&] { read_image(file("j.pgm", "P5 2 2 255\nab")); }), HasSubstr("the file has 2"));
  EXPECT_THAT(error_of([&] { read_image(file("k.pgm", "P2 2 2 255\n")); }), HasSubstr("not a binary PPM"));
  EXPECT_THAT(error_of([&] { read_image(file("l.pgm", "P5 2 2 65535\n")); }), HasSubstr("only 8-bit"));
}

TEST_F(Inputs, RawNumbers) {
  IO x = io("x", LITE_INT16);
  x.config_layout = {{4, 2}, 2, LITE_INT16};
  InputData d = parse_inputs(file("x.bin", std::string("\1\0\2\0\3\0\4\0", 8)), {x})[0];
  EXPECT_THAT(shape(d), ElementsAre(2, 2));
  EXPECT_THAT(values<int16_t>(d), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(error_of([&] { parse_inputs(file("y.raw", "abc"), {x}); }),
              AllOf(HasSubstr("3 bytes"), HasSubstr("int16[4,2]"), HasSubstr(".npy")));
  EXPECT_THAT(error_of([&] { parse_inputs("photo.JPG", one_); }), AllOf(HasSubstr("photo.JPG"), HasSubstr("x.ppm")));
}

TEST(Checks, Ranges) {
  mge::Meta m;
  m.shape = {3};
  float v[3] = {1, -9, 2};
  ValueChecks c;
  c.set_range(10);
  c({{0, "y", "relu", "net.py:3", m, v}});
  v[1] = NAN;
  EXPECT_THAT(error_of([&] {
                c({{0, "y", "relu", "net.py:3", m, v}});
              }),
              AllOf(HasSubstr("element 1 of 'y'"), HasSubstr("relu (net.py:3)"), HasSubstr("limit is 10")));
  EXPECT_THAT(error_of([&] { c.set_range(-1); }), HasSubstr("above 0"));
}

TEST(Checks, ValuesThatChange) {
  mge::Meta m;
  m.shape = {1};
  float a = 1, b = 2;
  auto run = [&](ValueChecks& c) { c({{0, "a", "add", "", m, &a}, {1, "b", "mul", "", m, &b}}); };
  ValueChecks c;
  c.set_repeat("2:1");
  run(c);
  a = 5;  // not the one that is looked at
  run(c);
  run(c);  // now it is
  b = 7;
  a = 6;
  EXPECT_THAT(error_of([&] { run(c); }), AllOf(HasSubstr("'a'"), HasSubstr("add")));
  EXPECT_THAT(error_of([&] { c.set_repeat("0"); }), HasSubstr("INTERVAL"));
  EXPECT_THAT(error_of([&] { c.set_repeat("2:x"); }), HasSubstr("got '2:x'"));
}

TEST_F(Inputs, Json) {
  auto d = parse_inputs(file("in.json", R"({"x": {"shape": [1, 2], "type": "float32", "raw": [0.5, -1e1]},
                                            "n": {"shape": [1], "type": "int32", "raw": [3]}})"),
                        two_);
  ASSERT_EQ(d.size(), 2u);
  EXPECT_THAT(values<int32_t>(d[0]), ElementsAre(3));
  EXPECT_THAT(values<float>(d[1]), ElementsAre(0.5, -10));
  auto bad = [&](const std::string& text) { return error_of([&] { parse_inputs(file("bad.json", text), two_); }); };
  EXPECT_THAT(bad("{"), HasSubstr("bad.json:1:2: not valid JSON"));
  EXPECT_THAT(bad("[]"), HasSubstr("one member per input"));
  EXPECT_THAT(bad(R"({"x": {"shape": [2], "type": "float32"}})"), HasSubstr("needs shape, type and raw"));
  EXPECT_THAT(bad(R"({"x": {"shape": [2], "type": "float32", "raw": [1]}})"),
              HasSubstr("needs 2 numbers in raw; got 1"));
  EXPECT_THAT(bad(R"({"x": {"shape": [1], "type": "complex", "raw": [1]}})"), HasSubstr("'complex' is no type"));
  EXPECT_THAT(bad(R"({"q": {"shape": [1], "type": "int8", "raw": [1]}})"), HasSubstr("no input 'q'"));
  EXPECT_THAT(bad(std::string(200, '[')), HasSubstr("nested too deeply"));
}

TEST_F(Inputs, BatchRepeatsTheData) {
  InputData d = parse_inputs("[[1,2],[3,4]]", one_)[0];
  set_batch(&d, 5);
  EXPECT_THAT(values<float>(d), ElementsAre(1, 2, 3, 4, 1, 2, 3, 4, 1, 2));
  set_batch(&d, 1);
  EXPECT_THAT(values<float>(d), ElementsAre(1, 2));
}

TEST(Json, TextSurvives) {
  JsonWriter w;
  w.member("k\n\"", "v\\\x01");
  Json j = parse_json(w.str(), "test");
  EXPECT_EQ(*j.object()->at("k\n\"").text(), "v\\\x01");
  EXPECT_EQ(*parse_json("\"\\u00e9\\u20ac\"", "test").text(), "é€");
}

TEST(Json, Trees) {
  JsonList l;
  l.number(1);
  l.number(2.5);
  l.number(NAN);
  l.text("x\"y");
  JsonWriter w;
  w.raw("list", l.str());
  w.flag("on", true);
  w.number("n", 3);
  EXPECT_EQ(w.str(), R"({"list":[1,2.5,null,"x\"y"],"on":true,"n":3})");
  EXPECT_EQ(parse_json(w.str(), "test").object()->at("list").array()->size(), 4u);
}

TEST(Dump, ValueText) {
  mge::Meta m;
  m.shape = {4};
  float v[4] = {1, 2, 3, 4};
  EXPECT_EQ(value_text(m, v, 2), "[1, 2, ...]min=1 max=4 mean=2.5 l2=2.739 sd=1.291");
  m.shape = {0};
  EXPECT_EQ(value_text(m, v, 2), "[]");
  uint16_t h[] = {0x3c00, 0xc000, 0x7c00, 0x0001};
  EXPECT_EQ(element_value(mge::DType::F16, h, 1), -2);
  EXPECT_TRUE(std::isinf(element_value(mge::DType::F16, h, 2)));
  EXPECT_EQ(element_value(mge::DType::F16, h, 3), 0x1p-24);
}

TEST(Dump, FourBitsLieTwoToAByte) {  // read as bytes, they went past their memory
  const auto bytes = std::make_unique<uint8_t[]>(2);
  bytes[0] = 0x8f, bytes[1] = 0x07;
  mge::Meta m;
  m.shape = {3};
  m.dtype = mge::DType::QI4;
  EXPECT_EQ(first_values(m, bytes.get(), 3), "[-1, -8, 7]");
  EXPECT_THAT(value_text(m, bytes.get(), 3), HasSubstr("min=-8 max=7"));
  m.dtype = mge::DType::QU4;
  EXPECT_EQ(first_values(m, bytes.get(), 3), "[15, 8, 7]");
  m.dtype = mge::DType::QI1;
  const int8_t signs[3] = {-1, 1, -1};
  EXPECT_EQ(first_values(m, signs, 3), "[-1, 1, -1]");
}

}  // namespace
}  // namespace lite
