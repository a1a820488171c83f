#include "lite/worker.h"

#include <utility>

#include "base/error.h"

namespace lite {

void check_open(bool closed) { MGE_CHECK(!closed, Assertion, "lite: forward: the network was destroyed meanwhile."); }

Worker::Worker() : thread_([state = state_] { loop(state); }) { state_->busy.owner = thread_.get_id(); }

// A callback of another network may be what waits, and for that one the job of this.
void Worker::State::wait_idle(std::unique_lock<std::mutex>& lock) {
  if (!running) return;
  lock.unlock();
  const Waiting now(busy);
  lock.lock();
  changed.wait(lock, [&] { return !running; });
}

Worker::~Worker() {
  if (lost()) {
    thread_.detach();
    return;
  }
  const bool own = on_this_thread();  // the job that is running let go of the network
  {
    std::unique_lock<std::mutex> lock(state_->mutex);
    if (!own) state_->changed.wait(lock, [&] { return !state_->running; });
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (own)
    thread_.detach();
  else
    thread_.join();
}

void Worker::post(std::function<void()> job) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->wait_idle(lock);
  check_open(state_->closed);
  state_->job = std::move(job);
  state_->running = true;
  state_->changed.notify_all();
}

void Worker::wait() {
  const std::shared_ptr<State> state = state_;
  std::unique_lock<std::mutex> lock(state->mutex);
  state->wait_idle(lock);
  if (auto e = std::exchange(state->error, nullptr)) std::rethrow_exception(e);
}

void Worker::drain() {
  const std::shared_ptr<State> state = state_;
  std::unique_lock<std::mutex> lock(state->mutex);
  state->wait_idle(lock);
}

void Worker::close() {
  const std::shared_ptr<State> state = state_;
  std::unique_lock<std::mutex> lock(state->mutex);
  state->closed = true;
  try {
    state->wait_idle(lock);
  } catch (...) {
    if (!lock) lock.lock();
    state->closed = false;
    throw;
  }
}

void Worker::loop(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stop || state->job; });
    if (state->stop) return;
    std::function<void()> job = std::exchange(state->job, nullptr);
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    job = nullptr;  // it may hold the network last, which then ends this worker
    lock.lock();
    state->error = error;
    state->running = false;
    state->changed.notify_all();
  }
}

}  // namespace lite
