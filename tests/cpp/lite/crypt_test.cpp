// Encryption and packs: round trips, what the original wrote, and bytes that are not what they should be.
#include "lite/crypt/crypt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "lite/algo_cache.h"
#include "lite/pack_model.h"
#include "models.h"
#include "serial/packed.h"

namespace lite {
namespace {

using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

using Data = std::vector<uint8_t>;
const char* const kMethods[] = {"AES_default", "RC4_default", "SIMPLE_FAST_RC4_default"};

Data file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  EXPECT_TRUE(f) << path;
  return {std::istreambuf_iterator<char>(f), {}};
}
Data original(const std::string& name) { return file(MGE_TEST_DATA "/lite/original/" + name); }
Data bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
std::string temporary(const char* name) { return testing::TempDir() + "lite_" + name + std::to_string(::getpid()); }

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const mge::Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(Crypt, WhatIsEncryptedComesBack) {
  std::mt19937 rng(5);
  for (const char* method : kMethods)
    for (size_t n : {1, 7, 8, 15, 16, 17, 1000}) {
      Data plain(n);
      for (auto& b : plain) b = static_cast<uint8_t>(rng() | 1);
      const Data secret = encrypt(method, plain);
      Data back = decrypt(method, secret, "test");
      ASSERT_GE(back.size(), n) << method;
      ASSERT_LT(back.size() - n, 16u) << method;
      for (size_t i = n; i < back.size(); ++i) EXPECT_EQ(back[i], 0) << method;
      back.resize(n);
      EXPECT_EQ(back, plain) << method << " " << n;
    }
}

// Files that another program made from the description of the formats.
TEST(Crypt, FilesOfTheOriginal) {
  const Data plain = decrypt("AES_default", original("mlp.aes.lite"), "test");
  Data same = decrypt("RC4_default", original("mlp.rc4.lite"), "test");
  same.resize(plain.size());
  EXPECT_EQ(same, plain);
  EXPECT_EQ(encrypt("RC4_default", plain), original("mlp.rc4.lite"));
  const Data v1 = decrypt("SIMPLE_FAST_RC4_default", original("mlp.sfrc4.lite"), "test");
  EXPECT_EQ(std::string(v1.begin(), v1.begin() + 4), "MGBC");
}

TEST(Crypt, EveryChangedBitOfTheRc4sIsSeen) {
  for (const char* method : {"RC4_default", "SIMPLE_FAST_RC4_default"}) {
    const Data secret = encrypt(method, bytes_of("sixteen bytes...and some more"));
    for (size_t i = 0; i < secret.size() * 8; ++i) {
      Data spoiled = secret;
      spoiled[i / 8] ^= 1 << i % 8;
      EXPECT_THAT(message([&] { decrypt(method, spoiled, "net"); }),
                  AllOf(HasSubstr("net: decrypting with "), HasSubstr("key is wrong or the data is damaged")));
    }
  }
}

TEST(Crypt, MistakesAreErrors) {
  EXPECT_THAT(message([] { decrypt("nope", {}, "net"); }), HasSubstr("no decryption method 'nope'; there are AES"));
  EXPECT_THAT(message([] { encrypt("nope", {}); }), HasSubstr("cannot encrypt with 'nope'"));
  for (const char* method : kMethods)
    for (size_t n : {0, 1, 8, 15, 25}) {
      const Data junk(n, 1);
      EXPECT_THAT(message([&] { decrypt(method, junk, "net"); }), HasSubstr("cut off or is not encrypted")) << n;
    }
  EXPECT_THAT(error_of([] { register_decryption_and_key("NONE", [](auto, auto, auto&) { return Data(); }, {}); }),
              HasSubstr("needs a name of its own"));
  EXPECT_THAT(
      error_of([] { register_decryption_and_key("AES_default", [](auto, auto, auto&) { return Data(); }, {}); }),
      HasSubstr("registered already"));
}

TEST(Crypt, AModelOfOursUnderEveryMethod) {
  const Data model = file(test::net_path());
  auto plain = test::load_net();
  for (const char* method : kMethods) {
    Config c;
    c.bare_model_cryption_name = method;
    Network net(c);
    Data secret = encrypt(method, model);
    net.load_model(secret.data(), secret.size());
    std::fill(secret.begin(), secret.end(), 0);  // nothing of it is used any more
    for (auto* n : {&net, plain.get()}) test::fill(*n->get_io_tensor("data"), [](size_t i) { return float(i % 5); });
    EXPECT_EQ(test::run(net), test::run(*plain)) << method;
    Data spoiled = encrypt(method, model);
    spoiled[spoiled.size() / 2] ^= 4;
    EXPECT_NE(error_of([&] { Network(c).load_model(spoiled.data(), spoiled.size()); }), "no error") << method;
  }
}

TEST(Crypt, MethodsOfTheProgram) {
  auto shift = [](const void* data, size_t size, const Data& key) {
    Data out(static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + size);
    for (auto& b : out) b = static_cast<uint8_t>(b - key.at(0));
    return out;
  };
  EXPECT_TRUE(register_decryption_and_key("cpp_shift", shift, {3}));
  Data secret = file(test::net_path());
  for (auto& b : secret) b = static_cast<uint8_t>(b + 3);
  Config c;
  c.bare_model_cryption_name = "cpp_shift";
  Network(c).load_model(secret.data(), secret.size());
  EXPECT_EQ(Runtime::get_model_io_info(secret.data(), secret.size(), c).inputs[0].name, "data");
  update_decryption_or_key("cpp_shift", {}, {4});
  EXPECT_NE(error_of([&] { Network(c).load_model(secret.data(), secret.size()); }), "no error");
  update_decryption_or_key("cpp_shift", [](auto, auto, auto&) -> Data { throw std::runtime_error("no key today"); },
                           {});
  EXPECT_EQ(error_of([&] { Network(c).load_model(secret.data(), secret.size()); }), "no key today");
}

// ---- packs

constexpr const char* kInfo = R"({"name": "net", "valid": true, "version": "1.2.3",
  "device": {"type": "CPU", "device_id": 2, "number_threads": 2, "enable_inplace_model": true},
  "options": {"graph_opt_level": 1, "const_shape": true},
  "IO": {"inputs": [{"name": "data", "dtype": "float32", "shape": {"dim0": 3, "dim1": 1, "dim2": 8, "dim3": 8}}],
         "outputs": [{"name": "prob", "io_type": "shape"}]},
  "extra_info": {"labels": ["a", "b"], "n": 3}})";

TEST(Pack, InfoConfiguresTheNetwork) {
  const std::string path = temporary("pack");
  ModelPacker packer(file(test::net_path()), path, bytes_of(kInfo));
  packer.pack_model();
  auto net = std::make_shared<Network>();
  net->load_model(path);
  EXPECT_EQ(net->get_device_id(), 2);
  EXPECT_EQ(Runtime::get_cpu_threads_number(net), 2u);
  EXPECT_TRUE(Runtime::is_cpu_inplace_mode(net));
  EXPECT_EQ(net->get_io_tensor("prob")->get_layout().shapes[0], 3u);
  EXPECT_EQ(net->get_model_extra_info(), R"({"labels": ["a", "b"], "n": 3})");
  net->get_io_tensor("data")->fill_zero();
  net->forward();
  net->wait();
  Layout two = net->get_io_tensor("data")->get_layout();
  two.shapes[0] = 2;
  net->get_io_tensor("data")->set_layout(two);
  EXPECT_THAT(error_of([&] { net->forward(); }), HasSubstr("Options.const_shape promised that it would not change"));

  auto plain = std::make_shared<Network>();
  plain->extra_configure({.disable_configure_by_model_info = true});
  plain->load_model(path);
  EXPECT_EQ(Runtime::get_cpu_threads_number(plain), 1u);
  EXPECT_EQ(plain->get_io_tensor("prob")->get_layout().shapes[0], 2u);
  EXPECT_EQ(plain->get_model_extra_info(), R"({"labels": ["a", "b"], "n": 3})");

  Network io({}, {{{.name = "data"}}, {}});  // what the program configures itself stays
  io.load_model(path);
  EXPECT_EQ(io.get_io_tensor("prob")->get_layout().shapes[0], 2u);
  std::filesystem::remove(path);
}

TEST(Pack, EncryptedPartsAndAFileAgain) {
  const std::string path = temporary("pack2");
  ModelPacker packer(encrypt("AES_default", file(test::net_path())), path, encrypt("RC4_default", bytes_of(kInfo)),
                     bytes_of(write_cache({{"theirs", {{"k", "v"}}}})));
  packer.set_header("AES_default", "RC4_default");
  packer.pack_model();
  Network().load_model(path);
  ModelPacker again(path, path);
  again.pack_model();
  ModelPacker more(file(path), path, {}, bytes_of(write_cache({{"ours", {{"k", "w"}}}, {"theirs", {{"l", "x"}}}})));
  more.pack_model();
  const auto p = mge::serial::unpack(file(path), "test");
  EXPECT_EQ(p.name, "net");
  EXPECT_EQ(p.model_decryption, "AES_default");
  const AlgoCache cache = parse_cache(p.algo_policy, "test");
  EXPECT_EQ(cache.at("theirs").size(), 2u);
  EXPECT_EQ(cache.at("ours").size(), 1u);
  Network().load_model(path);
  std::filesystem::remove(path);
}

TEST(Pack, ParsersOfTheProgram) {
  auto parse = [](const void*, size_t size, const std::string& name, Config& config, NetworkIO& io,
                  std::unordered_map<std::string, LiteAny>& isolated, std::string& extra) {
    config.options.graph_opt_level = 0;
    io.outputs.push_back({.name = "prob", .io_type = LITE_IO_SHAPE});
    isolated["number_threads"] = uint32_t{2};
    extra = name + " " + std::to_string(size);
    return true;
  };
  register_parse_info_func("cpp_parser", parse);
  EXPECT_THAT(error_of([&] { register_parse_info_func("cpp_parser", parse); }), HasSubstr("registered already"));
  mge::serial::PackedModel p;
  p.name = "x";
  p.info = bytes_of("anything");
  p.info_parser = "cpp_parser";
  p.model = file(test::net_path());
  Data bytes = mge::serial::pack(p);
  auto net = std::make_shared<Network>();
  net->load_model(bytes.data(), bytes.size());
  EXPECT_EQ(Runtime::get_cpu_threads_number(net), 2u);
  EXPECT_EQ(net->get_model_extra_info(), "x 8");
  p.info_parser = "nobody";
  bytes = mge::serial::pack(p);
  EXPECT_THAT(error_of([&] { Network().load_model(bytes.data(), bytes.size()); }), HasSubstr("the parser 'nobody'"));
}

TEST(Pack, MistakesAreErrors) {
  EXPECT_THAT(error_of([] { ModelPacker("/nowhere/x.mge", "y"); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([] { ModelPacker(Data(), "y").pack_model(); }), HasSubstr("the model is empty"));
  EXPECT_THAT(error_of([] { ModelPacker(Data(4), "").pack_model(); }), HasSubstr("no name of a file"));
  EXPECT_THAT(error_of([] { ModelPacker(Data(4), temporary("x"), bytes_of("{")).pack_model(); }), HasSubstr("JSON"));
  EXPECT_THAT(error_of([] { ModelPacker(Data(4), "/nowhere/x").pack_model(); }), HasSubstr("/nowhere"));
  mge::serial::PackedModel p;
  p.model = file(test::net_path());
  p.algo_policy = bytes_of("no cache");
  p.fast_run_cache = true;
  Data bytes = mge::serial::pack(p);
  EXPECT_THAT(error_of([&] { Network().load_model(bytes.data(), bytes.size()); }), HasSubstr("no fast-run cache"));
  p.fast_run_cache = false;
  bytes = mge::serial::pack(p);
  EXPECT_THAT(error_of([&] { Network().load_model(bytes.data(), bytes.size()); }), HasSubstr("OpenCL kernels"));
}

TEST(Cache, RoundTripAndDamage) {
  const AlgoCache cache{{"a", {{"k1", "v1"}, {"k2", std::string("\0x", 2)}}}, {"b", {}}};
  const Data bytes = bytes_of(write_cache(cache));
  EXPECT_EQ(parse_cache(bytes, "t"), cache);
  EXPECT_TRUE(parse_cache({}, "t").empty());
  for (size_t n = 1; n < bytes.size(); ++n)
    EXPECT_THAT(message([&] { parse_cache({bytes.data(), n}, "t"); }), HasSubstr("t: no fast-run cache"));
  EXPECT_FALSE(parse_cache(original("lenet.algo_cache"), "t").empty());
}

}  // namespace
}  // namespace lite
