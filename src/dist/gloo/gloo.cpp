#include "dist/gloo/gloo.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <signal.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace mge::dist {
namespace {

using Unbound = std::unique_ptr<::gloo::transport::UnboundBuffer>;

class StoreOfOurs final : public ::gloo::rendezvous::Store {
 public:
  explicit StoreOfOurs(const GlooStore& s) : s_(s) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    s_.set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string v = s_.get(key);
    return {v.begin(), v.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (auto& k : keys) s_.get(k);
  }
  void wait(const std::vector<std::string>& keys, const Millis&) override { wait(keys); }

 private:
  const GlooStore& s_;
};

// The first part of a message has one size, whatever the rest: a tag and what fits of the data. Short messages are done
// with it, and ranks that disagree can still read what the other says.
constexpr size_t kFirst = 8192;
constexpr size_t kRoom = kFirst - sizeof(Tag);
size_t in_first(size_t bytes) { return std::min(bytes, kRoom); }
void write_first(char* to, const Tag& tag, const Outgoing& o) {
  std::memcpy(to, &tag, sizeof tag);
  if (o.bytes) std::memcpy(to + sizeof tag, o.data, in_first(o.bytes));
}

// Gloo writes to connections that a peer may have closed, which ends a process that has not said otherwise (Python
// has).
void survive_closed_connections() {
  struct sigaction now {};
  sigaction(SIGPIPE, nullptr, &now);
  if (now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

[[noreturn]] void lost(int peer, const std::exception& e) {
  const std::string why = e.what();
  const bool silent = why.find("imed out") != std::string::npos;
  throw PeerLost(peer, silent ? PeerLost::Silent : PeerLost::Broken, why);
}

class GlooTransport final : public Transport {
 public:
  GlooTransport(const GlooPlace& place, const GlooStore& store) : sent_(place.size), received_(place.size) {
    survive_closed_connections();
    ::gloo::transport::tcp::attr attr;
    attr.hostname = place.host;
    auto device = ::gloo::transport::tcp::CreateDevice(attr);
    context_ = std::make_shared<::gloo::rendezvous::Context>(place.rank, place.size);
    context_->setTimeout(place.timeout);
    StoreOfOurs ours(store);
    context_->connectFullMesh(ours, device);
  }
  ~GlooTransport() override {
    close(false);
    if (poster_.joinable()) poster_.join();
  }
  const char* name() const override { return "gloo"; }

  void exchange(const Tag& tag, std::span<const Outgoing> out, std::span<const Incoming> in,
                const Watch& watch) override {
    watch.look();
    std::vector<char> mine(out.size() * kFirst), theirs(in.size() * kFirst);
    std::vector<Unbound> sends, heads, bodies(in.size());
    std::vector<int> to;
    std::vector<std::vector<char>> scratch(in.size());
    int peer = -1;
    try {
      for (size_t i = 0; i < out.size(); ++i) {
        peer = out[i].peer;
        Tag first = tag;
        first.bytes = out[i].bytes;
        write_first(&mine[i * kFirst], first, out[i]);
        const uint64_t slot = 2 * sent_[static_cast<size_t>(peer)]++;
        auto send = [&](const void* data, size_t bytes, uint64_t at) {
          sends.push_back(context_->createUnboundBuffer(const_cast<void*>(data), bytes));
          sends.back()->send(peer, at);
          to.push_back(peer);
        };
        send(&mine[i * kFirst], kFirst, slot);
        if (const size_t n = in_first(out[i].bytes); n < out[i].bytes)
          send(static_cast<const char*>(out[i].data) + n, out[i].bytes - n, slot + 1);
      }
      for (size_t i = 0; i < in.size(); ++i) {
        peer = in[i].peer;
        heads.push_back(context_->createUnboundBuffer(&theirs[i * kFirst], kFirst));
        heads.back()->recv(peer, 2 * received_[static_cast<size_t>(peer)]);
      }
      for (size_t i = 0; i < in.size(); ++i) {
        peer = in[i].peer;
        heads[i]->waitRecv(watch.timeout);
        Tag said;
        std::memcpy(&said, &theirs[i * kFirst], sizeof said);
        watch.met(peer, said);
        const uint64_t slot = 2 * received_[static_cast<size_t>(peer)]++;
        const size_t here = in_first(in[i].bytes), rest = in[i].bytes - here;
        if (!rest) continue;
        char* into = in[i].into + here;
        if (in[i].combine) {
          scratch[i].resize(rest);
          into = scratch[i].data();
        }
        bodies[i] = context_->createUnboundBuffer(into, rest);
        bodies[i]->recv(peer, slot + 1);
      }
      for (size_t i = 0; i < in.size(); ++i) {  // in the order of the list: `behind` holds
        peer = in[i].peer;
        const size_t here = in_first(in[i].bytes);
        if (here) in[i].take(&theirs[i * kFirst + sizeof(Tag)], 0, here);
        if (!bodies[i]) continue;
        bodies[i]->waitRecv(watch.timeout);
        if (in[i].combine) in[i].take(scratch[i].data(), here, in[i].bytes - here);
      }
      for (size_t i = 0; i < sends.size(); ++i) {
        peer = to[i];
        sends[i]->waitSend(watch.timeout);
      }
    } catch (const ::gloo::Exception& e) {
      lost(peer, e);
    }
  }

  // Gloo sends when the peer receives, so the message is kept until then by a thread that waits for it.
  void post(const Tag& tag, const Outgoing& out, const Watch& watch) override {
    watch.look();
    const size_t here = in_first(out.bytes);
    Posted p{std::vector<char>(kFirst + out.bytes - here), {}, watch.timeout};
    Tag first = tag;
    first.bytes = out.bytes;
    write_first(p.data.data(), first, out);
    if (here < out.bytes)
      std::memcpy(p.data.data() + kFirst, static_cast<const char*>(out.data) + here, out.bytes - here);
    std::unique_lock<std::mutex> lock(mutex_);
    if (posts_failed_) throw PeerLost(out.peer, PeerLost::Broken, "an earlier message was not received");
    posted_.push_back(std::move(p));
    Posted& kept = posted_.back();
    const uint64_t slot = 2 * sent_[static_cast<size_t>(out.peer)]++;
    try {
      kept.buffers.push_back(context_->createUnboundBuffer(kept.data.data(), kFirst));
      kept.buffers.back()->send(out.peer, slot);
      if (here < out.bytes) {
        kept.buffers.push_back(context_->createUnboundBuffer(kept.data.data() + kFirst, out.bytes - here));
        kept.buffers.back()->send(out.peer, slot + 1);
      }
    } catch (const ::gloo::Exception& e) {
      lost(out.peer, e);
    }
    if (!poster_.joinable()) poster_ = std::thread([this] { wait_for_posts(); });
    lock.unlock();
    wake_.notify_one();
  }

  void close(bool) noexcept override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (std::exchange(closed_, true)) return;
    }
    wake_.notify_one();
    try {
      context_->closeConnections();
    } catch (...) {
    }
  }

 private:
  struct Posted {
    std::vector<char> data;
    std::vector<Unbound> buffers;
    Millis timeout;
  };

  void wait_for_posts() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return closed_ || !posted_.empty(); });
      if (closed_) return;
      Posted& p = posted_.front();  // stays where it is: a deque grows at its end
      lock.unlock();
      bool good = true;
      try {
        for (auto& b : p.buffers) b->waitSend(p.timeout);
      } catch (const std::exception&) {
        good = false;
      }
      lock.lock();
      if (!good) posts_failed_ = true;
      posted_.pop_front();
    }
  }

  std::shared_ptr<::gloo::rendezvous::Context> context_;
  std::vector<uint64_t> sent_, received_;  // messages, by peer
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Posted> posted_;
  std::thread poster_;
  bool closed_ = false, posts_failed_ = false;
};

}  // namespace
}  // namespace mge::dist

extern "C" __attribute__((visibility("default"))) mge::dist::Transport* mge_gloo_connect(
    const mge::dist::GlooPlace& place, const mge::dist::GlooStore& store, std::string* why) {
  try {
    return new mge::dist::GlooTransport(place, store);
  } catch (const std::exception& e) {
    *why = e.what();
    return nullptr;
  }
}
