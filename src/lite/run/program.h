// What the main functions of the command lines share.
//   int main(int argc, char** argv) { return lite::run_program("mge-lite", 2, [&] { return run(argc, argv); }); }
#pragma once
#include "base/function_ref.h"

namespace lite {

/// The exit status: of `body`, or `failed` when it throws or when not all that it printed could be written. Both are
/// told on stderr, beginning with the name.
int run_program(const char* name, int failed, mge::FunctionRef<int()> body);

}  // namespace lite
