#include "base/json_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mge {
namespace {

TEST(JsonText, NestsAndSeparates) {
  JsonText j;
  j.open('{').key("shape").open('[').number(2).number(-3).close().key("x").open('{').close().key("f").real(0.5);
  j.key("b").boolean(true).key("n").null().close();
  EXPECT_EQ(j.str(), R"({"shape":[2,-3],"x":{},"f":0.5,"b":true,"n":null})");
}

TEST(JsonText, NumbersThatJsonHasNoneFor) {
  JsonText j;
  j.open('[').real(NAN).real(INFINITY).real(1e300).close();
  EXPECT_EQ(j.str(), "[null,null,1e+300]");
}

TEST(JsonText, QuotesWhatWouldEndATextAndBytesThatAreNoText) {
  JsonText j;
  j.open('[').text("a\"b\\c\n").text("\xc3\xa9\xf0\x9f\x98\x80").text("\xff\xc3").text("\xed\xa0\x80x").close();
  EXPECT_EQ(j.str(),
            "[\"a\\\"b\\\\c\\u000a\",\"\xc3\xa9\xf0\x9f\x98\x80\",\"\\ufffd\\ufffd\",\"\\ufffd\\ufffd\\ufffdx\"]");
}

}  // namespace
}  // namespace mge
