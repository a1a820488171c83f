#include "kernel/cuda/driver.h"

#include "base/error.h"
#include "kernel/cuda/library.h"

namespace mge::cuda {

const Driver& driver() {
  static const Driver* table = [] {
    auto* d = new Driver;
#define MGE_CUDA_FIND(name, symbol_name, arguments) \
  d->name = reinterpret_cast<CUresult(*) arguments>(driver_library().symbol(symbol_name));
    MGE_CUDA_DRIVER(MGE_CUDA_FIND)
#undef MGE_CUDA_FIND
    return d;
  }();
  return *table;
}

std::string error_text(CUresult r) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(r, &name);
  driver().cuGetErrorString(r, &text);
  return format("{} ({})", name ? name : std::to_string(r), text ? text : "unknown");
}

void check(CUresult r, const char* what) {
  if (__builtin_expect(r == CUDA_SUCCESS, 1)) return;
  MGE_CHECK(
      r != CUDA_ERROR_NOT_INITIALIZED, Env,
      "gpu: a forked process cannot use CUDA, and {} says that this is one. Start processes by spawn, or fork before "
      "the first use of a GPU.",
      what);
  fail(r == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::Memory : ErrorKind::Env, "{}: {}.", what, error_text(r));
}

// Of the numbers in cuda.h: ECC and NVLink errors (214, 220, 226), and what a kernel can do to its context, 700 to 720
// without those that only refuse a call (launch out of resources, peer access, contexts that are in use).
bool is_fatal(CUresult r) {
  switch (r) {
    case 214:
    case 220:
    case 226:
    case 700:  // illegal address
    case 702:  // timeout
    case 709:  // context destroyed
    case 710:  // assert
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
    case 999:
      return true;
    default:
      return false;
  }
}

}  // namespace mge::cuda
