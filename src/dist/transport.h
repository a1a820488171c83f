// How the ranks of a group reach each other: messages between pairs, in order. Collectives (collectives.cpp) are
// written over this, once; a backend moves bytes. One thread at a time uses a transport; close() may come from any.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>

namespace mge::dist {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

/// Goes before every message and says what its sender is doing: two ranks that do different things learn it here,
/// before a byte is taken for something else.
struct Tag {
  uint32_t op = 0;     // row of the table in group.cpp
  uint32_t mode = 0;   // of a reduction
  uint64_t seq = 0;    // how many collectives of the group (messages of the pair) came before
  int32_t root = 0;    // or -1
  uint32_t dtype = 0;  // of x
  uint32_t phase = 0;  // an op may exchange more than once
  uint32_t rank = 0;   // number of axes of x
  int64_t dims[8] = {};
  uint64_t bytes = 0;  // that follow; not part of what ranks agree on
  bool agrees(const Tag& o) const { return std::memcmp(this, &o, offsetof(Tag, bytes)) == 0; }
};
static_assert(sizeof(Tag) == 104 && std::is_trivially_copyable_v<Tag>);

struct Outgoing {
  int peer;
  const void* data;
  size_t bytes;
};

/// out[i] = a[i] op b[i]; `out` may be `a` or `b`.
using Combine = void (*)(char* out, const char* a, const char* b, size_t bytes);

/// Where a message goes. Without `combine` it is copied; with it `into` = with op message (message op with, if it is
/// `first`), and then, if `then` is given, `into` = into op then. `behind` names an earlier entry of the list that must
/// be ahead of this one at every byte: so sums come in the order of ranks however messages arrive.
struct Incoming {
  int peer;
  char* into;
  size_t bytes;
  Combine combine = nullptr;
  const char* with = nullptr;
  const char* then = nullptr;
  int behind = -1;
  bool first = false;

  void take(const char* data, size_t at, size_t n) const {
    if (!combine)
      std::memcpy(into + at, data, n);
    else
      combine(into + at, first ? data : with + at, first ? with + at : data, n);
    if (then) combine(into + at, into + at, then + at, n);
  }
};

/// A peer is gone or does not answer. What else is known of the reason, the group finds out.
struct PeerLost : std::exception {
  enum Kind { Died, Left, Silent, Broken };
  PeerLost(int p, Kind k, std::string w = {}) : peer(p), kind(k), why(std::move(w)) {}
  int peer;
  Kind kind;
  std::string why;
  const char* what() const noexcept override { return "peer lost"; }
};

/// What a transport asks the group while it works.
struct Watch {
  Millis timeout;                            // longest time without progress
  std::function<void(int, const Tag&)> met;  // a peer's tag has come; throws when it does not agree
  std::function<void()> look;                // about every 50 ms of waiting; throws to give up
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  /// Sends and receives all of it, each message behind `tag`. When it returns, what is sent has left the memory of the
  /// caller. At most one message each way for a peer.
  virtual void exchange(const Tag& tag, std::span<const Outgoing> out, std::span<const Incoming> in,
                        const Watch& watch) = 0;
  /// Sends one message without waiting for the peer to receive, however long it is.
  virtual void post(const Tag& tag, const Outgoing& out, const Watch& watch) = 0;
  /// Peers that wait learn that this rank left; of one that has `failed`, nothing that it sent before is taken any
  /// more.
  virtual void close(bool failed) noexcept = 0;
};

}  // namespace mge::dist
