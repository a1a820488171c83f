// Constants of another machine for the length of a test.
//   const OnMachine slow({.gflops = 10});
#pragma once
#include "base/machine.h"
#include "kernel/kernel.h"

namespace mge::testing_kernels {

class OnMachine {
 public:
  explicit OnMachine(const Machine& m) : before_(machine()) { install(m); }
  ~OnMachine() { install(before_); }
  OnMachine(const OnMachine&) = delete;

 private:
  static void install(const Machine& m) {
    set_machine(m);
    forget_kernel_choices();
  }
  Machine before_;
};

}  // namespace mge::testing_kernels
