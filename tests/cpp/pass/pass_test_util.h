// Pass tests compare text: run the pass on `before`, expect `after`.
#pragma once
#include <gmock/gmock.h>

#include "ir/text.h"
#include "ir/verify.h"

namespace mge::pass {

template <class F>
void expect_rewrite(F pass, const std::string& before, const std::string& after) {
  Graph g = ir::parse(before);
  EXPECT_TRUE(pass(g)) << "nothing changed";
  ir::verify(g);
  EXPECT_EQ(ir::print(g), after);
}
template <class F>
void expect_unchanged(F pass, const std::string& text) {
  Graph g = ir::parse(text);
  std::string before = ir::print(g);
  EXPECT_FALSE(pass(g));
  EXPECT_EQ(ir::print(g), before);
}

}  // namespace mge::pass
