#include "kernel/cuda/devices.h"

#include <cstdlib>

#include "kernel/capture.h"
#include "kernel/cuda/machine.h"

namespace mge::cuda {
namespace {

constexpr size_t kPage = 2 << 20;

class CudaBackend final : public Backend {
 public:
  bool host_access() const override { return false; }
  void* map(Device device, size_t bytes) override {
    DeviceState& d = Machine::get().device(device.index);
    const Bind bind(d.context);
    CUdeviceptr p = 0;
    if (!allocate(d, &p, bytes)) return nullptr;
    if (p % kPage == 0) return reinterpret_cast<void*>(p);
    // The driver promises less alignment than the pool asks for, and gives it all the same where it has been tried.
    driver().cuMemFree(p);
    if (!allocate(d, &p, bytes + kPage)) return nullptr;
    const CUdeviceptr aligned = (p + kPage - 1) / kPage * kPage;
    std::lock_guard<std::mutex> lock(d.mutex);
    d.base[aligned] = p;
    return reinterpret_cast<void*>(aligned);
  }
  void unmap(Device device, void* p, size_t) override {
    if (Machine::forked()) return;
    DeviceState& d = Machine::get().device(device.index);
    auto at = reinterpret_cast<CUdeviceptr>(p);
    {
      std::lock_guard<std::mutex> lock(d.mutex);
      if (auto it = d.base.find(at); it != d.base.end()) {
        at = it->second;
        d.base.erase(it);
      }
    }
    const Bind bind(d.context);
    driver().cuMemFree(at);  // of a lost device, or at exit, there is nothing to free
  }
  void poison(void*, size_t, bool) override {}
  Stream* stream(Device device, int index) override { return Machine::get().stream(device, index); }
  std::pair<size_t, size_t> memory(Device device) const override {
    const Bind bind(Machine::get().device(device.index).context);
    size_t free = 0, total = 0;
    check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return {total, free};
  }
  int count() const override { return Machine::get().count(); }

 private:
  static bool allocate(DeviceState& d, CUdeviceptr* p, size_t bytes) {
    if (d.dead) Machine::get().refuse_lost(d, "memory");
    const CUresult r = driver().cuMemAlloc(p, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) return false;
    check(r, "cuMemAlloc");
    return true;
  }
};

Backend* make_backend(std::string* why) {
  try {
    driver();
    if (Machine::get().count()) {
      register_cuda_kernels(KernelRegistry::global());
      if (!std::getenv("MGE_CUDA_NO_GRAPHS")) set_capture(DeviceKind::Cuda, cuda_capture());
      return new CudaBackend;
    }
    *why = "the driver finds no GPU";
  } catch (const Error& e) {
    *why = e.text();
  }
  return nullptr;
}

}  // namespace

void offer_devices(std::vector<std::string> folders) {
  set_package_folders(std::move(folders));
  Backend::offer(DeviceKind::Cuda, make_backend);
}

Properties properties(int device) {
  Backend::of(DeviceKind::Cuda);
  DeviceState& d = Machine::get().device(device);
  Properties p;
  char name[256] = "";
  check(driver().cuDeviceGetName(name, sizeof name, d.device), "cuDeviceGetName");
  check(driver().cuDeviceTotalMem(&p.memory, d.device), "cuDeviceTotalMem");
  p.name = name;
  p.major = d.arch.major;
  p.minor = d.arch.minor;
  p.multiprocessors = d.arch.sms;
  return p;
}

int driver_version() {
  int version = -1;
  if (!driver_library().load() || driver().cuDriverGetVersion(&version) != CUDA_SUCCESS) return -1;
  return version;
}

std::vector<Component> components() {
  std::vector<Component> out;
  for (Library* l : all_libraries()) {
    l->load();
    out.push_back({l->stem(), l->path(), l->missing()});
  }
  return out;
}

uintptr_t raw_stream(Stream& stream) { return reinterpret_cast<uintptr_t>(static_cast<CudaStream&>(stream).raw); }

void let_wait(uintptr_t raw, Stream& stream) {
  static_cast<CudaStream&>(stream).let_wait(reinterpret_cast<CUstream>(raw));
}

void wait_for_raw(Stream& stream, uintptr_t raw) {
  if (Machine::forked()) return;
  auto& s = static_cast<CudaStream&>(stream);
  const Bind bind(s.state.context);
  CUevent e = s.state.take_event();
  // An error is one of the other side's work, or the end of the process.
  if (driver().cuEventRecord(e, reinterpret_cast<CUstream>(raw)) == CUDA_SUCCESS)
    (void)driver().cuStreamWaitEvent(s.raw, e, 0);
  s.state.give_event(e);
}

void call_behind(Stream& stream, std::function<void()> fn) {
  if (Machine::forked()) return;
  OpenWork w(stream.open({}, nullptr, {}));
  keep(*w.get(), std::shared_ptr<const void>(nullptr, [f = std::move(fn)](const void*) { f(); }));
}

}  // namespace mge::cuda
