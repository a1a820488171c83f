#include "dist/shm.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <random>

#include "base/error.h"
#include "dist/wire.h"

namespace mge::dist {
namespace {

constexpr size_t kLine = 64;            // messages begin at multiples of it, so elements are aligned
constexpr size_t kTagBytes = 128;       // a tag with room to the next line
constexpr size_t kPiece = 128 << 10;    // moved before others get their turn
constexpr size_t kRingBytes = 4 << 20;  // for each pair and direction: a peer that is not running is not waited for
constexpr size_t kAllBytes = 48 << 20;  // of all rings together: containers have 64 MiB by default
constexpr int kSpins = 200;             // a few microseconds, before a rank sleeps
constexpr Millis kNap{50};
static_assert(sizeof(Tag) <= kTagBytes);

constexpr size_t padded(size_t n) { return (n + kLine - 1) / kLine * kLine; }

struct Ring {
  alignas(kLine) std::atomic<uint64_t> head;  // bytes written so far, by the sender
  alignas(kLine) std::atomic<uint64_t> tail;  // bytes read so far, by the owner
};
struct Inbox {
  uint64_t magic, ring_bytes;
  int32_t pid, size;
  std::atomic<uint32_t> closed;
  alignas(kLine) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> asleep;
  alignas(kLine) Ring rings[];
};
constexpr uint32_t kLeft = 1, kFailed = 2;  // closed
constexpr uint64_t kMagic = 0x316d68732065676d;
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

size_t ring_bytes(int size) {
  size_t n = kRingBytes;
  const auto pairs = static_cast<size_t>(size) * static_cast<size_t>(size);
  while (n > (32 << 10) && n * pairs > kAllBytes) n /= 2;
  return n;
}
size_t rings_at(int size) { return sizeof(Inbox) + sizeof(Ring) * static_cast<size_t>(size); }
size_t inbox_bytes(int size) { return rings_at(size) + ring_bytes(size) * static_cast<size_t>(size); }

void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}
void nap(std::atomic<uint32_t>& word, uint32_t was) {
  const timespec time{0, std::chrono::nanoseconds(kNap).count()};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, was, &time, nullptr, 0);
}
void ring_bell(Inbox& b) {
  b.bell.fetch_add(1);
  if (b.asleep.load()) wake(b.bell);
}

void* map_inbox(int fd, size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return p == MAP_FAILED ? nullptr : p;
}

// One direction of a pair.
struct Lane {
  Ring* ring = nullptr;
  char* data = nullptr;
};
struct Peer {
  int rank = 0, fd = -1;
  Inbox* box = nullptr;
  Lane to, from;
  std::vector<char> stash;  // what had to be taken out of the ring before its time, and how much of it is used up
  size_t used = 0;
};

struct Sending {
  Peer* peer;
  const Outgoing* what;
  Tag tag;
  size_t done = 0;  // of the tag and the message
  bool complete() const { return done == kTagBytes + what->bytes; }
};
struct Receiving {
  Peer* peer;
  const Incoming* what;
  bool met = false;
  size_t done = 0;
  bool complete() const { return met && done == what->bytes; }
};

}  // namespace

class ShmTransport final : public Transport {
 public:
  ShmTransport(std::unique_ptr<ShmInbox> inbox, const std::vector<std::string>& names)
      : inbox_(std::move(inbox)), mine_(static_cast<Inbox*>(inbox_->memory_)), ring_bytes_(ring_bytes(inbox_->size_)) {
    const auto me = static_cast<size_t>(inbox_->rank_);
    const size_t data = rings_at(inbox_->size_);
    peers_.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      Peer& p = peers_[i];
      p.rank = static_cast<int>(i);
      if (i == me) continue;
      p.fd = shm_open(names[i].c_str(), O_RDWR | O_CLOEXEC, 0);
      MGE_CHECK(p.fd >= 0, Env, "shared memory: cannot open that of rank {}: {}.", i, std::strerror(errno));
      own_fd(p.fd);
      struct stat info {};
      fstat(p.fd, &info);
      if (static_cast<size_t>(info.st_size) >= inbox_->bytes_)
        p.box = static_cast<Inbox*>(map_inbox(p.fd, inbox_->bytes_));
      MGE_CHECK(p.box && p.box->magic == kMagic && p.box->size == inbox_->size_ && p.box->ring_bytes == ring_bytes_,
                Env, "shared memory: that of rank {} is not made for this group.", i);
      p.to = {&p.box->rings[me], reinterpret_cast<char*>(p.box) + data + me * ring_bytes_};
      p.from = {&mine_->rings[i], reinterpret_cast<char*>(mine_) + data + i * ring_bytes_};
    }
  }
  ~ShmTransport() override {
    close(false);
    for (Peer& p : peers_) {
      if (p.box) munmap(p.box, inbox_->bytes_);
      close_fd(p.fd);
    }
  }
  const char* name() const override { return "shm"; }

  void exchange(const Tag& tag, std::span<const Outgoing> out, std::span<const Incoming> in,
                const Watch& watch) override {
    std::vector<Sending> sends;
    std::vector<Receiving> recvs;
    for (auto& o : out) {
      sends.push_back({&peers_[static_cast<size_t>(o.peer)], &o, tag});
      sends.back().tag.bytes = o.bytes;
    }
    for (auto& i : in) recvs.push_back({&peers_[static_cast<size_t>(i.peer)], &i});
    for (auto& r : recvs)
      if (r.peer->box->closed.load() == kFailed) throw PeerLost(r.what->peer, PeerLost::Left);
    auto last = Clock::now();
    bool stalled = false;
    for (;;) {
      const uint32_t bell = mine_->bell.load();
      const int gone = stalled ? first_gone(sends, recvs) : -1;
      bool moved = false, open = false;
      for (auto& r : recvs)
        if (!r.complete()) moved |= receive(r, recvs, watch), open |= !r.complete();
      for (auto& s : sends)
        if (!s.complete()) moved |= send(s), open |= !s.complete();
      if (!open) return;
      if (moved) {
        stalled = false;
        continue;
      }
      if (!stalled) {  // the clock and the others are looked at when there is time
        stalled = true;
        last = Clock::now();
        if (make_room(recvs)) continue;
      }
      if (gone >= 0)
        throw PeerLost(gone, peers_[static_cast<size_t>(gone)].box->closed.load() ? PeerLost::Left : PeerLost::Died);
      if (sleep(bell)) continue;
      make_room(recvs);
      watch.look();
      if (Clock::now() - last > watch.timeout) throw PeerLost(slowest(sends, recvs), PeerLost::Silent);
    }
  }

  void post(const Tag& tag, const Outgoing& out, const Watch& watch) override { exchange(tag, {&out, 1}, {}, watch); }

  void close(bool failed) noexcept override {
    if (mine_->pid != getpid()) return;  // a forked child's copy
    uint32_t open = 0;
    if (!mine_->closed.compare_exchange_strong(open, failed ? kFailed : kLeft)) return;
    for (Peer& p : peers_)
      if (p.box) ring_bell(*p.box);
    ring_bell(*mine_);
  }

 private:
  bool send(Sending& s) {
    Ring& ring = *s.peer->to.ring;
    const uint64_t head = ring.head.load(std::memory_order_relaxed);
    const size_t room = ring_bytes_ - (head - ring.tail.load(std::memory_order_acquire));
    uint64_t at = head;
    if (s.done == 0) {
      if (room < kTagBytes) return false;
      char line[kTagBytes] = {};
      std::memcpy(line, &s.tag, sizeof s.tag);
      for (size_t half : {size_t{0}, kLine})
        std::memcpy(s.peer->to.data + (at + half) % ring_bytes_, line + half, kLine);
      at += kTagBytes;
      s.done = kTagBytes;
    }
    const size_t left = kTagBytes + s.what->bytes - s.done;
    const size_t n = std::min({left, room - (at - head), ring_bytes_ - at % ring_bytes_, kPiece});
    if (n) {
      std::memcpy(s.peer->to.data + at % ring_bytes_, static_cast<const char*>(s.what->data) + (s.done - kTagBytes), n);
      s.done += n;
      at += padded(n);
    }
    if (at == head) return false;
    ring.head.store(at, std::memory_order_release);
    ring_bell(*s.peer->box);
    return true;
  }

  // What can be read from a peer in one piece.
  std::pair<const char*, size_t> waiting(const Peer& p) const {
    if (p.used < p.stash.size()) return {p.stash.data() + p.used, p.stash.size() - p.used};
    const uint64_t tail = p.from.ring->tail.load(std::memory_order_relaxed);
    const size_t n = p.from.ring->head.load(std::memory_order_acquire) - tail;
    return {p.from.data + tail % ring_bytes_, std::min(n, ring_bytes_ - tail % ring_bytes_)};
  }
  void consume(Peer& p, size_t n) {
    if (p.used < p.stash.size()) {
      p.used += n;
      if (p.used == p.stash.size()) p.stash.clear(), p.used = 0;
      return;
    }
    p.from.ring->tail.store(p.from.ring->tail.load(std::memory_order_relaxed) + n, std::memory_order_release);
    ring_bell(*p.box);
  }

  bool receive(Receiving& r, std::span<const Receiving> all, const Watch& watch) {
    if (!r.met) {
      char line[kTagBytes];
      const Ring& ring = *r.peer->from.ring;
      const size_t have = r.peer->stash.size() - r.peer->used + ring.head.load(std::memory_order_acquire) -
                          ring.tail.load(std::memory_order_relaxed);
      if (have < kTagBytes) return false;
      for (size_t half : {size_t{0}, kLine}) {
        std::memcpy(line + half, waiting(*r.peer).first, kLine);
        consume(*r.peer, kLine);
      }
      Tag tag;
      std::memcpy(&tag, line, sizeof tag);
      watch.met(r.what->peer, tag);
      MGE_ASSERT(tag.bytes == r.what->bytes, "rank {} sends {} bytes where {} are due", r.what->peer, tag.bytes,
                 r.what->bytes);
      r.met = true;
      return true;
    }
    const size_t limit = r.what->behind < 0 ? r.what->bytes : all[static_cast<size_t>(r.what->behind)].done;
    auto [data, n] = waiting(*r.peer);
    n = std::min({n, limit - r.done, kPiece});
    if (r.done + n < r.what->bytes) n = n / kLine * kLine;
    if (!n) return false;
    r.what->take(data, r.done, n);
    consume(*r.peer, padded(n));
    r.done += n;
    return true;
  }

  // A peer that is ahead of us and has filled its ring gets room, or two that send to each other would wait for ever.
  bool make_room(std::span<const Receiving> recvs) {
    bool made = false;
    for (Peer& p : peers_) {
      if (!p.box) continue;
      bool expected = false;
      for (auto& r : recvs) expected |= r.peer == &p && !r.complete();
      if (expected) continue;
      const uint64_t tail = p.from.ring->tail.load(std::memory_order_relaxed);
      if (p.from.ring->head.load(std::memory_order_acquire) - tail < ring_bytes_) continue;
      const size_t first = ring_bytes_ - tail % ring_bytes_;
      p.stash.insert(p.stash.end(), p.from.data + tail % ring_bytes_, p.from.data + ring_bytes_);
      p.stash.insert(p.stash.end(), p.from.data, p.from.data + (ring_bytes_ - first));
      p.from.ring->tail.store(tail + ring_bytes_, std::memory_order_release);
      ring_bell(*p.box);
      made = true;
    }
    return made;
  }

  // True: somebody rang.
  bool sleep(uint32_t bell) {
    for (int i = 0; i < kSpins; ++i) {
      if (mine_->bell.load(std::memory_order_relaxed) != bell) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    mine_->asleep.store(1);
    if (mine_->bell.load() == bell) nap(mine_->bell, bell);
    mine_->asleep.store(0);
    return mine_->bell.load() != bell;
  }

  // Files are locked by the process that made them as long as it lives; a forked child does not inherit the lock.
  static bool dead(const Peer& p) {
    if (p.box->pid == getpid()) return false;  // tests have ranks in threads
    struct flock lock {};
    lock.l_type = F_WRLCK;
    return fcntl(p.fd, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }
  // One that ended may have sent all there is to come before.
  int first_gone(std::span<const Sending> sends, std::span<const Receiving> recvs) const {
    auto gone = [](const Peer& p) { return p.box->closed.load() || dead(p); };
    for (auto& r : recvs)
      if (!r.complete() && gone(*r.peer) && !waiting(*r.peer).second) return r.what->peer;
    for (auto& s : sends)
      if (!s.complete() && gone(*s.peer)) return s.what->peer;
    return -1;
  }
  static int slowest(std::span<const Sending> sends, std::span<const Receiving> recvs) {
    for (auto& r : recvs)
      if (!r.met) return r.what->peer;
    for (auto& r : recvs)
      if (!r.complete()) return r.what->peer;
    for (auto& s : sends)
      if (!s.complete()) return s.what->peer;
    return -1;
  }

  std::unique_ptr<ShmInbox> inbox_;
  Inbox* mine_;
  size_t ring_bytes_;
  std::vector<Peer> peers_;
};

ShmInbox::ShmInbox(int rank, int size) : rank_(rank), size_(size), bytes_(inbox_bytes(size)) {
  std::random_device random;
  name_ = format("/megengine-{}-{:08x}{:08x}", getpid(), random(), random());
  fd_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  MGE_CHECK(fd_ >= 0, Env, "shared memory: cannot be made: {}.", std::strerror(errno));
  own_fd(fd_);
  // Pages are taken now: where there are none, a write into memory that is only promised would end the process.
  if (const int bad = posix_fallocate(fd_, 0, static_cast<off_t>(bytes_))) {
    hide();
    close_fd(fd_);
    MGE_FAIL_ENV("shared memory: no {} bytes to be had: {}.", bytes_, std::strerror(bad));
  }
  struct flock lock {};
  lock.l_type = F_WRLCK;
  fcntl(fd_, F_SETLK, &lock);
  memory_ = map_inbox(fd_, bytes_);
  if (!memory_) {
    hide();
    close_fd(fd_);
    MGE_FAIL_ENV("shared memory: cannot be mapped: {}.", std::strerror(errno));
  }
  auto* b = static_cast<Inbox*>(memory_);  // zeros
  b->ring_bytes = ring_bytes(size);
  b->pid = getpid();
  b->size = size;
  b->magic = kMagic;
}
void ShmInbox::hide() {
  if (!name_.empty()) shm_unlink(name_.c_str());
  name_.clear();
}
ShmInbox::~ShmInbox() {
  if (memory_ && static_cast<Inbox*>(memory_)->pid == getpid()) hide();
  if (memory_) munmap(memory_, bytes_);
  close_fd(fd_);
}

std::unique_ptr<Transport> join_shm(std::unique_ptr<ShmInbox> inbox, const std::vector<std::string>& names) {
  return std::make_unique<ShmTransport>(std::move(inbox), names);
}

std::string shm_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat where {};
  stat("/dev/shm", &where);
  return format("{}/{}/{}", boot, where.st_dev, geteuid());
}

}  // namespace mge::dist
