// Times of kernels on the device, by two events around each launch.
#include <algorithm>

#include "kernel/cuda/devices.h"
#include "kernel/cuda/machine.h"
#include "kernel/launch_timer.h"

namespace mge::cuda {
namespace {

struct Sample {
  std::string what;
  CUevent begin, end;
};
struct Samples {
  std::mutex mutex;
  std::vector<Sample> all;
};
Samples& samples() {
  static auto* s = new Samples;
  return *s;
}
thread_local CUevent t_begin = nullptr;

CUevent mark(Work& work) {
  CUevent e = nullptr;
  check(driver().cuEventCreate(&e, 0), "cuEventCreate");
  check(driver().cuEventRecord(e, stream_of(work)), "cuEventRecord");
  return e;
}

constexpr LaunchTimer kTimer{
    [](Work& work) {
      if (work.stream.device.kind == DeviceKind::Cuda) t_begin = mark(work);
    },
    [](Work& work, const char* op, const char* kernel) {
      if (work.stream.device.kind != DeviceKind::Cuda || !t_begin) return;
      Sample s{std::string(op) + " (" + kernel + ")", std::exchange(t_begin, nullptr), mark(work)};
      std::lock_guard<std::mutex> lock(samples().mutex);
      samples().all.push_back(std::move(s));
    }};

}  // namespace

void start_times() {
  std::lock_guard<std::mutex> lock(samples().mutex);
  samples().all.clear();
  set_launch_timer(&kTimer);
}

std::vector<KernelTime> stop_times() {
  set_launch_timer(nullptr);
  for (Stream* s : CompNode::queues())
    if (s->device.kind == DeviceKind::Cuda) s->drain();
  std::lock_guard<std::mutex> lock(samples().mutex);
  std::map<std::string, KernelTime> sums;
  for (auto& s : samples().all) {
    float ms = 0;
    if (driver().cuEventElapsedTime(&ms, s.begin, s.end) != CUDA_SUCCESS) continue;
    KernelTime& t = sums[s.what];
    t.what = s.what;
    t.ms += static_cast<double>(ms);
    ++t.count;
  }
  samples().all.clear();
  std::vector<KernelTime> out;
  for (auto& [what, t] : sums) out.push_back(t);
  std::sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.ms > b.ms; });
  return out;
}

}  // namespace mge::cuda
