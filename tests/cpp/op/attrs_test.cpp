#include "op/attrs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "op/opdef.h"

namespace mge {
namespace {

struct Probe {  // one field of each kind
  bool flag = false;
  int64_t n = 3;
  double x = 0.5;
  std::string mode = "sum";
  Ints axes{0, 1};
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return field_list("flag", &Probe::flag, "n", &Probe::n, "x", &Probe::x, "mode", &Probe::mode, "axes", &Probe::axes,
                      "dtype", &Probe::dtype);
  }
};
struct Other {
  bool flag = false;
  static constexpr auto fields() { return field_list("flag", &Other::flag); }
};
struct Same {
  bool flag = false;
  static constexpr auto fields() { return field_list("flag", &Same::flag); }
};

void expect_error(const std::function<void()>& f, ErrorKind kind, const std::string& text) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.text();
    EXPECT_EQ(e.text(), text);
  }
}

bool equal(const Attrs& a, const Attrs& b) {
  bool same = attrs_equal(a.get(), b.get());
  EXPECT_EQ(same, attrs_equal(b.get(), a.get()));
  if (same) {
    EXPECT_EQ(attrs_hash(a.get()), attrs_hash(b.get())) << "equal attrs must hash alike";
  }
  return same;
}

TEST(AttrsTest, EqualityAndHashLookAtEveryField) {
  Attrs base = make_attrs(Probe{});
  EXPECT_TRUE(equal(base, make_attrs(Probe{})));
  Probe changed[6];
  changed[0].flag = true;
  changed[1].n = 4;
  changed[2].x = 0.25;
  changed[3].mode = "max";
  changed[4].axes = {1, 0};
  changed[5].dtype = DType::I8;
  for (auto& p : changed) {
    Attrs a = make_attrs(p);
    EXPECT_FALSE(equal(base, a)) << a->print();
    EXPECT_NE(base->hash(), a->hash()) << a->print();
    EXPECT_TRUE(equal(a, make_attrs(p)));
  }
  EXPECT_FALSE(equal(make_attrs(Probe{.axes = {}}), make_attrs(Probe{.axes = {0}})));
}

TEST(AttrsTest, StructsWithEqualFieldsAreDifferentTypes) {
  EXPECT_FALSE(equal(make_attrs(Other{}), make_attrs(Same{})));
  EXPECT_TRUE(attrs_equal(nullptr, nullptr));
  EXPECT_FALSE(attrs_equal(nullptr, make_attrs(Other{}).get()));
  EXPECT_THROW(attrs_as<Same>(make_attrs(Other{}).get()), Error);
  EXPECT_THROW(attrs_as<Same>(nullptr), Error);
  EXPECT_EQ(attrs_as<Probe>(make_attrs(Probe{.n = 9}).get()).n, 9);
}

// A trace compares attributes on every call: full(value=nan) must match itself, and -0 must not match +0.
TEST(AttrsTest, DoublesCompareByMeaningOfTheirBits) {
  double nan = std::nan(""), minus_nan = std::copysign(nan, -1.0);
  EXPECT_TRUE(equal(make_attrs(Probe{.x = nan}), make_attrs(Probe{.x = nan})));
  EXPECT_TRUE(equal(make_attrs(Probe{.x = nan}), make_attrs(Probe{.x = minus_nan})));
  EXPECT_FALSE(equal(make_attrs(Probe{.x = nan}), make_attrs(Probe{.x = 1})));
  EXPECT_FALSE(equal(make_attrs(Probe{.x = 0.0}), make_attrs(Probe{.x = -0.0})));
  EXPECT_TRUE(equal(make_attrs(Probe{.x = INFINITY}), make_attrs(Probe{.x = INFINITY})));
}

TEST(AttrsTest, Print) {
  EXPECT_EQ(make_attrs(Probe{})->print(), R"({flag=false, n=3, x=0.5, mode="sum", axes=[0,1], dtype=float32})");
  EXPECT_EQ(make_attrs(Probe{true, -7, 2, "a\"b\\c\nd", {}, DType::QI4})->print(),
            R"({flag=true, n=-7, x=2.0, mode="a\"b\\c\nd", axes=[], dtype=qint4})");
}

AttrValue round_trip(const AttrValue& v) { return parse_attr("test", print_attr(v), v); }

TEST(AttrsTest, PrintAndParseAreInverse) {
  std::vector<AttrValue> values{true, false};
  for (int64_t i : {int64_t{0}, int64_t{-1}, INT64_MAX, INT64_MIN}) values.push_back(i);
  for (double d :
       {0.0, -0.0, 1.0, -2.5, 0.1, 1e300, 5e-324, 1.0 / 3, 1e22, 123456789.0, double(INFINITY), -double(INFINITY)})
    values.push_back(d);
  for (const char* s : {"", "sum", "a b", "\"", "\\", "\\\"", "a\\", "[1,2]", "}, x=1", "line\nbreak",
                        "tab\tand\rreturn", "\xc3\xa9", "n", "\\n"})
    values.push_back(std::string(s));
  values.push_back(std::string("with\0zero", 9));
  values.push_back(Ints{});
  values.push_back(Ints{1, -2, INT64_MAX, 4, 5, 6, 7, 8});
  for (int i = 0; i < kDTypeCount; ++i) values.push_back(static_cast<DType>(i));
  for (auto& v : values) {
    std::string text = print_attr(v);
    EXPECT_EQ(text.find('\n'), std::string::npos) << "IR text is one line per node: " << text;
    EXPECT_EQ(round_trip(v), v) << text;
    EXPECT_EQ(hash_attr(round_trip(v)), hash_attr(v)) << text;
    EXPECT_EQ(parse_attr("test", "  " + text + " ", v), v) << "spaces around " << text;
  }
  EXPECT_TRUE(std::signbit(std::get<double>(round_trip(AttrValue(-0.0)))));
  EXPECT_TRUE(std::isnan(std::get<double>(round_trip(AttrValue(std::nan(""))))));
}

TEST(AttrsTest, AFloatStaysAFloatInText) {
  EXPECT_EQ(print_attr(AttrValue(2.0)), "2.0");
  EXPECT_EQ(print_attr(AttrValue(1e22)), "1e+22");
  EXPECT_EQ(print_attr(AttrValue(std::nan(""))), "nan");
  EXPECT_EQ(print_attr(AttrValue(-double(INFINITY))), "-inf");
  EXPECT_EQ(std::get<double>(parse_attr("t", "3", AttrValue(0.0))), 3.0);
}

TEST(AttrsTest, ParseErrorsSayWhatWasExpected) {
  auto bad = [](const char* text, AttrValue like, const std::string& want) {
    expect_error([&] { parse_attr("conv2d groups", text, like); }, ErrorKind::Value, want);
  };
  bad("yes", false, "conv2d groups: 'yes' is not a bool.");
  bad("1.5", int64_t{0}, "conv2d groups: '1.5' is not an int.");
  bad("", int64_t{0}, "conv2d groups: '' is not an int.");
  bad("99999999999999999999", int64_t{0}, "conv2d groups: '99999999999999999999' is not an int.");
  bad("one", 0.0, "conv2d groups: 'one' is not a float.");
  bad("1.5x", 0.0, "conv2d groups: '1.5x' is not a float.");
  bad("sum", std::string(), "conv2d groups: 'sum' is not a string.");
  bad("\"", std::string(), "conv2d groups: '\"' is not a string.");
  bad("\"a\"b\"", std::string(), "conv2d groups: '\"a\"b\"' is not a string.");
  bad("\"a\\\"", std::string(), "conv2d groups: '\"a\\\"' is not a string.");
  bad("1,2", Ints{}, "conv2d groups: '1,2' is not a list of ints.");
  bad("[1,x]", Ints{}, "conv2d groups: '[1,x]' is not a list of ints.");
  bad("[1,,2]", Ints{}, "conv2d groups: '[1,,2]' is not a list of ints.");
  bad("[1", Ints{}, "conv2d groups: '[1' is not a list of ints.");
  EXPECT_THROW(parse_attr("x", "float31", DType::F32), Error);
}

Attrs build(std::vector<NamedAttr> given) { return make_schema<Probe>().build("probe", given); }

TEST(AttrsTest, BuildFillsDefaultsAndCoercesLikePython) {
  EXPECT_TRUE(equal(build({}), make_attrs(Probe{})));
  Attrs a = build(
      {{"x", int64_t{2}}, {"n", true}, {"flag", int64_t{1}}, {"axes", int64_t{5}}, {"dtype", std::string("int8")}});
  EXPECT_EQ(a->print(), R"({flag=true, n=1, x=2.0, mode="sum", axes=[5], dtype=int8})");
  auto schema = make_schema<Probe>();
  ASSERT_EQ(schema.defaults.size(), 6u);
  EXPECT_EQ(schema.defaults[3].name, "mode");
  EXPECT_EQ(std::get<std::string>(schema.defaults[3].value), "sum");
}

TEST(AttrsTest, BuildErrorsNameOpAndAttribute) {
  expect_error(
      [] {
        build({{"groups", int64_t{1}}});
      },
      ErrorKind::Type, "probe: there is no attribute 'groups'; known: flag, n, x, mode, axes, dtype.");
  expect_error([] { build({{"n", 0.5}}); }, ErrorKind::Type, "probe: attribute 'n': expected an int, got 0.5.");
  expect_error(
      [] {
        build({{"x", std::string("a")}});
      },
      ErrorKind::Type, "probe: attribute 'x': expected a float, got \"a\".");
  expect_error([] { build({{"flag", 1.0}}); }, ErrorKind::Type, "probe: attribute 'flag': expected a bool, got 1.0.");
  expect_error(
      [] {
        build({{"mode", int64_t{1}}});
      },
      ErrorKind::Type, "probe: attribute 'mode': expected a string, got 1.");
  expect_error(
      [] {
        build({{"axes", 1.5}});
      },
      ErrorKind::Type, "probe: attribute 'axes': expected a list of ints, got 1.5.");
  expect_error(
      [] {
        build({{"dtype", Ints{1}}});
      },
      ErrorKind::Type, "probe: attribute 'dtype': expected a dtype, got [1].");
  try {
    build({{"dtype", std::string("f32")}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Type);
    EXPECT_THAT(e.text(), testing::StartsWith("dtype: 'f32' is not a dtype; known:"));
  }
}

// Every attribute of every op survives text and the schema, with its default and with a changed value.
TEST(AttrsTest, AllOpsRoundTrip) {
  OpRegistry& r = OpRegistry::global();
  for (size_t id = 0; id < r.size(); ++id) {
    const OpDef& op = r.at(static_cast<OpId>(id));
    if (!op.has_attrs) continue;
    Attrs defaults = op.schema.build(op.name, {});
    auto changed = op.schema.defaults;
    for (auto& a : changed) {
      EXPECT_EQ(parse_attr(op.name, print_attr(a.value), a.value), a.value) << op.name << " " << a.name;
      if (auto* i = std::get_if<int64_t>(&a.value))
        *i += 1;
      else if (auto* b = std::get_if<bool>(&a.value))
        *b = !*b;
      else if (auto* d = std::get_if<double>(&a.value))
        *d += 0.1;
      else if (auto* s = std::get_if<std::string>(&a.value))
        *s += op.name == "fused" ? "(float32) t0=reduce(i0){mode=\"max\",axes=[0],keepdims=true}"  // text of a region
                                 : "\"x\n";
      else if (auto* v = std::get_if<Ints>(&a.value))
        v->push_back(7);
      else if (auto* q = std::get_if<QType>(&a.value))
        *q = {DType::QU8, Quant::per_channel({0.1f, 1e-7f}, {3, 255}, 1, 2)};
      else
        a.value = std::get<DType>(a.value) == DType::I8 ? DType::U8 : DType::I8;
      Attrs one = op.schema.build(op.name, {&a, 1});
      EXPECT_FALSE(attrs_equal(defaults.get(), one.get())) << op.name << " ignores " << a.name;
    }
    Attrs all = op.schema.build(op.name, changed);
    std::vector<NamedAttr> parsed;
    for (auto& a : all->values()) parsed.push_back({a.name, parse_attr(op.name, print_attr(a.value), a.value)});
    EXPECT_TRUE(attrs_equal(all.get(), op.schema.build(op.name, parsed).get())) << all->print();
    EXPECT_TRUE(attrs_equal(defaults.get(), op.schema.build(op.name, op.schema.defaults).get())) << op.name;
  }
}

}  // namespace
}  // namespace mge
