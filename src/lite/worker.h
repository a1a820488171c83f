// The thread of a network that runs aside.
//   Worker w;  w.post(job);  w.wait();
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "lite/waiting.h"

namespace lite {

/// An error when a network that is going is asked to run.
void check_open(bool closed);

/// Runs one job at a time on a thread of its own. Made on the first async forward. Its last job may end it.
class Worker {
 public:
  Worker();
  ~Worker();
  /// Waits for the job before it, if any.
  void post(std::function<void()> job);
  /// Until idle; rethrows what the last job threw, once.
  void wait();
  /// Until idle, whatever came out of it.
  void drain();
  /// No more jobs; returns when the last one is done, whatever came out of it. When it throws there may be jobs again.
  void close();
  /// The process was forked, and the thread belongs to the parent: nothing else may be asked, and it may only go.
  bool lost() const { return born_ != mge::fork_generation(); }
  bool on_this_thread() const { return std::this_thread::get_id() == state_->busy.owner.load(); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> job;
    std::exception_ptr error;
    bool running = false, stop = false;  // running: from post to behind the end of the job and all that it held
    bool closed = false;
    Awaited busy;  // its owner is the thread below, whose own copy of its id is not there before it starts
    void wait_idle(std::unique_lock<std::mutex>& lock);
  };
  static void loop(const std::shared_ptr<State>& state);
  const uint64_t born_ = mge::fork_generation();
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace lite
