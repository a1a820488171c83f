// The devices of this process, their streams and the work in flight. Seen by the files of this folder that are the
// device; kernels see api.h.
//
// A stream runs what it is given in order, so work carries no event of its own: closing it gives it a number, and an
// event is recorded behind every few of them, or when somebody waits. Work is *complete* when such an event has come,
// and *finished* when the host has looked: copies to the host are in place, words of errors are read, and failures of
// work it came after are passed on. One thread at a time does that (`Machine::reaping`), for whoever asks next.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "kernel/cuda/api.h"
#include "kernel/cuda/pinned.h"

namespace mge {
struct Capture;
}

namespace mge::cuda {

class CudaStream;
class CudaWork;

/// What dies after the lock: memory and what it belongs to have locks of their own.
struct Garbage {
  std::vector<RefPtr<CudaWork>> works;
  std::vector<RefPtr<Work>> after;
  std::vector<std::shared_ptr<const void>> kept;
};

/// Words through which code on the device tells of an error, and what throws it.
struct Alarm {
  std::shared_ptr<Pinned> words;
  std::function<void(const int64_t*)> raise;
};

/// A graph of the device, and what it needs to stay where it is.
struct Recording {
  CUgraphExec exec = nullptr;
  std::vector<Alarm> alarms;
  std::vector<RefPtr<Storage>> scratch;
  std::vector<std::shared_ptr<const void>> kept;
  bool refused = false;  // something in it is not to be repeated
  ~Recording();
};

class CudaWork final : public Work {
 public:
  CudaWork(CudaStream& s, const char* op, Explain e);
  ~CudaWork() override;
  void call(std::function<void()> fn) override;
  void copy(const RefPtr<Storage>& to, size_t to_offset, const RefPtr<Storage>& from, size_t from_offset,
            size_t bytes) override;
  void depend(const RefPtr<Work>& on) override;
  void close() override;
  bool wait_for(std::chrono::milliseconds patience) override;
  std::shared_ptr<const ExecError> error() const override;

  CudaStream& queue() const;
  /// The words of an error that code on the device may set, and what throws it.
  int64_t* words(std::function<void(const int64_t*)> raise);
  void keep(std::shared_ptr<const void> what);
  /// Memory of one call; while work is recorded it belongs to the recording.
  RefPtr<Storage> scratch(size_t bytes);

  bool begin_capture();
  std::shared_ptr<const void> end_capture();
  void replay(const std::shared_ptr<const void>& recording);

  CUstream raw;  // where it is enqueued: the stream's own, or the one that records

 private:
  friend class CudaStream;
  friend class Machine;
  struct ReadBack {
    Pinned from;
    RefPtr<Storage> to;
    size_t offset, bytes;
  };
  // All below are called by whoever reaps.
  void look() const;  // sets `failure_` when something is known to have gone wrong
  void finish(std::shared_ptr<const ExecError> lost, Garbage& garbage);

  std::string op_;
  Explain explain_;
  std::vector<RefPtr<Work>> after_;
  std::vector<Alarm> alarms_;
  std::vector<ReadBack> reads_;
  std::vector<Pinned> staged_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::shared_ptr<Recording> recording_;
  uint64_t ticket_ = 0;  // 0: open
  CUcontext before_ = nullptr;
  bool bound_ = false;
  std::atomic<bool> finished_{false};
  mutable std::shared_ptr<const ExecError> failure_;  // settled when finished
};

struct DeviceState;

class CudaStream final : public Stream {
 public:
  CudaStream(DeviceState& state, Device d, int i);
  RefPtr<Work> open(std::span<Work* const> after, const char* op, Explain explain) override;
  void wait_for_stream(Stream& other) override;
  void drain() override;
  /// Makes a stream of the driver wait for all that is enqueued here now.
  void let_wait(CUstream other);

  DeviceState& state;
  CUstream raw = nullptr;
  CUstream aside = nullptr;  // for recordings

 private:
  friend class CudaWork;
  friend class Machine;
  struct Mark {
    CUevent event;
    uint64_t upto;  // works that are complete when it has come
  };
  void enlist(RefPtr<CudaWork> w);  // gives the work its number
  void mark();                      // an event behind all that is enqueued; under the lock
  void poll();                      // how far the device has come; throws DeviceLost
  void wait_for_space();

  std::mutex mutex_;
  std::deque<RefPtr<CudaWork>> flying_;  // closed, and not known to be complete
  std::deque<Mark> marks_;               // recorded, and not known to have come
  uint64_t closed_ = 0, complete_ = 0;   // works
  uint64_t look_at_ = 0;                 // when so many are closed, see how far the device is
};

/// Thrown to whoever reaps: the context has failed.
struct DeviceLost {
  DeviceLost(DeviceState& d, CUresult r) : device(&d), result(r) {}
  DeviceState* device;
  CUresult result;
};

struct DeviceState {
  int index = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  Arch arch;
  std::map<int, CudaStream*> streams;
  std::mutex mutex;                         // of the two below
  std::vector<CUevent> events;              // to be used again
  std::map<CUdeviceptr, CUdeviceptr> base;  // of memory that did not come aligned: what the driver gave
  std::atomic<bool> dead{false};
  std::shared_ptr<const ExecError> lost;  // written while reaping
  CUevent take_event();
  void give_event(CUevent e);
};

class Machine {
 public:
  static Machine& get();
  int count() const { return static_cast<int>(devices_.size()); }
  /// Its context is made when it is first asked for.
  DeviceState& device(int index);
  CudaStream* stream(Device d, int index);
  /// Settles what the device has completed. False: somebody else is at it, or nothing was to be done.
  bool reap(CudaStream& s);
  /// Throws what the call failed with; an error that the context does not survive takes the device with it.
  void check(DeviceState& d, CUresult r, const char* what);
  [[noreturn]] void refuse_lost(DeviceState& d, const char* op);
  /// In a forked child: CUDA does not go along.
  static bool forked();

  std::mutex reaping;

 private:
  Machine();
  friend class CudaWork;
  void settle(CudaStream& s, Garbage& garbage);  // while reaping
  void finish(CudaWork& w, Garbage& garbage);    // while reaping
  void lose(DeviceState& d, CUresult r, Garbage& garbage);
  static void before_fork();
  static void after_fork();
  static void start_over();

  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceState>> devices_;
};

const Capture* cuda_capture();

}  // namespace mge::cuda
