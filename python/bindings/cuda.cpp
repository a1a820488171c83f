// CUDA devices, as the package sees them. Nothing of CUDA is loaded before one is asked for.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "common.h"
#include "cuda.h"

#ifdef MGE_WITH_CUDA
#include "kernel/cuda/devices.h"
#endif

namespace nb = nanobind;

namespace mge::py {

#ifdef MGE_WITH_CUDA
namespace {

std::vector<std::string> package_folders() {
  std::vector<std::string> out;
  for (nb::handle p : nb::module_::import_("sys").attr("path"))
    if (std::string text; nb::try_cast(p, text) && !text.empty()) out.push_back(std::move(text));
  return out;
}

}  // namespace

uintptr_t raw_stream(Stream& stream) { return cuda::raw_stream(stream); }
void wait_for_raw(Stream& stream, uintptr_t raw) { cuda::wait_for_raw(stream, raw); }
void call_behind(Stream& stream, std::function<void()> fn) { cuda::call_behind(stream, std::move(fn)); }
#else
uintptr_t raw_stream(Stream&) { return 0; }
void wait_for_raw(Stream&, uintptr_t) {}
void call_behind(Stream&, std::function<void()> fn) { fn(); }
#endif

void bind_cuda(nb::module_& m) {
#ifdef MGE_WITH_CUDA
  cuda::offer_devices(package_folders());
#endif
  m.def(
      "cuda_components",
      [] {
        nb::list out;
#ifdef MGE_WITH_CUDA
        for (auto& c : cuda::components()) out.append(nb::make_tuple(c.name, c.path, c.missing));
#endif
        return out;
      },
      "(name, path, why it is missing) of each library of NVIDIA; an empty list in a build without CUDA.");
  m.def(
      "cuda_properties",
      [](int device) {
        nb::dict d;
#ifdef MGE_WITH_CUDA
        const cuda::Properties p = cuda::properties(device);
        d["name"] = p.name;
        d["total_memory"] = p.memory;
        d["major"] = p.major;
        d["minor"] = p.minor;
        d["multiprocessors"] = p.multiprocessors;
#else
        fail(ErrorKind::Env, "gpu{}: this build has no CUDA.", device);
#endif
        return d;
      },
      nb::arg("device"));
  m.def("cuda_driver_version", [] {
#ifdef MGE_WITH_CUDA
    return cuda::driver_version();
#else
    return -1;
#endif
  });
  m.def(
      "cuda_stream",
      [](nb::handle device) {
        const CompNode* cn = to_comp_node(device.ptr());
        MGE_CHECK(cn->device.kind == DeviceKind::Cuda, Value, "cuda_stream: {} is not a CUDA device.", cn->logical);
        return raw_stream(*cn->queue);
      },
      nb::arg("device"), "The handle of the stream that a device's work is enqueued on, for DLPack.");
  m.def("cuda_times_start", [] {
#ifdef MGE_WITH_CUDA
    cuda::start_times();
#endif
  });
  m.def(
      "cuda_times_stop",
      [] {
        nb::list out;
#ifdef MGE_WITH_CUDA
        for (auto& t : cuda::stop_times()) out.append(nb::make_tuple(t.what, t.count, t.ms));
#endif
        return out;
      },
      "(op and kernel, launches, milliseconds on the device) since cuda_times_start, the most expensive first.");
  m.def("why_no_gpu", [] { return Backend::has(DeviceKind::Cuda) ? "" : Backend::missing(DeviceKind::Cuda); });
}

}  // namespace mge::py
