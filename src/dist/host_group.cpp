// The collectives. A sum is computed block by block: every rank gets its block from all others and adds them up in the
// order of ranks, so the result depends neither on who comes first nor on where ranks run, and one rank computes it for
// all: the bits are the same everywhere. Traffic is that of a ring, 2 (n-1)/n of the data for an all-reduce.
#include "dist/host_group.h"

#include "core/backend.h"

namespace mge::dist {
namespace {

constexpr size_t kSmall = 16 << 10;  // below, everybody sends everything: one round instead of two
constexpr size_t kAlign = 64;

// Block r of `bytes` in `size` nearly equal parts.
struct Block {
  size_t at, bytes;
};
Block block_of(size_t bytes, int size, int r) {
  const size_t n = static_cast<size_t>(size);
  const size_t each = (bytes + n * kAlign - 1) / (n * kAlign) * kAlign;
  const size_t at = std::min(bytes, each * static_cast<size_t>(r));
  return {at, std::min(each, bytes - at)};
}

std::string told(const Tag& t) {
  if (t.op >= static_cast<uint32_t>(Op::Barrier)) return op_name(static_cast<Op>(t.op));
  Shape s;
  for (uint32_t i = 0; i < std::min<uint32_t>(t.rank, 8); ++i) s.push_back(t.dims[i]);
  const bool typed = t.dtype < static_cast<uint32_t>(kDTypeCount);
  return format("{}({}{}{}{})", op_name(static_cast<Op>(t.op)), typed ? dtype_name(static_cast<DType>(t.dtype)) : "?",
                s.str(), t.mode ? format(", mode=\"{}\"", mode_name(static_cast<Mode>(t.mode))) : "",
                t.root >= 0 ? format(", root={}", t.root) : "");
}

}  // namespace

HostGroup::HostGroup(const GroupOptions& o, std::shared_ptr<Store> store, std::unique_ptr<Transport> transport)
    : ProcessGroup(o, std::move(store)),
      transport_(std::move(transport)),
      sent_(static_cast<size_t>(o.size)),
      received_(static_cast<size_t>(o.size)) {}

Tag HostGroup::tag_of(const Call& c) const {
  Tag t;
  t.op = static_cast<uint32_t>(c.op);
  t.mode = static_cast<uint32_t>(c.mode);
  t.seq = calls_;
  t.root = c.root;
  t.dtype = static_cast<uint32_t>(c.dtype);
  t.rank = static_cast<uint32_t>(c.shape.rank);
  for (int i = 0; i < c.shape.rank; ++i) t.dims[i] = c.shape[i];
  return t;
}

void HostGroup::met(const Tag& mine, int peer, const Tag& theirs) const {
  if (mine.agrees(theirs)) return;
  const char* op = op_name(static_cast<Op>(mine.op));
  fail(ErrorKind::Env,
       "{}: the ranks of group '{}' disagree. Rank {} calls {} as call {}, rank {} calls {} as call {}. All "
       "ranks must make the same calls, in the same order, with the same shapes and dtypes.",
       op, name_, rank_, told(mine), mine.seq, peer, told(theirs), theirs.seq);
}

void HostGroup::exchange(const Tag& tag, const std::vector<Outgoing>& out, const std::vector<Incoming>& in) {
  Watch watch{timeout_, [&](int peer, const Tag& theirs) { met(tag, peer, theirs); },
              [&] {
                const std::string why = failure();
                MGE_CHECK(why.empty(), Env, "{}", why);
                if (wait_hooks().check) wait_hooks().check();
              }};
  transport_->exchange(tag, out, in, watch);
}

template <class F>
void HostGroup::each_peer(F f) const {
  for (int p = 0; p < size_; ++p)
    if (p != rank_) f(p);
}

// into = own and what each peer sends, in the order of ranks.
std::vector<Incoming> HostGroup::reduction(char* into, const char* own, size_t bytes, Combine f) const {
  std::vector<Incoming> in;
  each_peer([&](int p) {
    Incoming i{.peer = p, .into = into, .bytes = bytes};
    const bool begins = in.empty();
    if (!begins || rank_ <= 1) {
      i.combine = f;
      i.with = begins ? own : into;
      i.first = begins && rank_ == 1;
    }
    if (!begins) i.behind = static_cast<int>(in.size()) - 1;
    if (rank_ >= 2 && p == rank_ - 1) i.then = own;
    in.push_back(i);
  });
  return in;
}

void HostGroup::perform(const Call& c) {
  Tag tag = tag_of(c);
  const bool between_two = c.op == Op::Send || c.op == Op::Recv;
  if (!between_two) ++calls_;
  tag.seq = calls_;
  switch (c.op) {
    case Op::AllReduce:
      return all_reduce(c, tag);
    case Op::Reduce:
      return reduce(c, tag);
    case Op::Broadcast:
      return broadcast(c, tag);
    case Op::AllGather:
      return all_gather(c, tag);
    case Op::ReduceScatter:
      return reduce_scatter(c, tag);
    case Op::Gather:
      return gather(c, tag);
    case Op::Scatter:
      return scatter(c, tag);
    case Op::AllToAll:
      return all_to_all(c, tag);
    case Op::Send:
      return send(c, tag);
    case Op::Recv:
      return recv(c, tag);
    case Op::Barrier:
      return barrier(tag);
    default:
      break;
  }
  fail(ErrorKind::Internal, "group: no such op {}", static_cast<int>(c.op));
}

namespace {
size_t bytes_of(const Call& c) { return dtype_bytes(c.dtype, c.shape.numel()); }
const char* in_of(const Call& c) { return static_cast<const char*>(c.in); }
char* out_of(const Call& c) { return static_cast<char*>(c.out); }
void copy(char* to, const char* from, size_t n) {
  if (n) std::memcpy(to, from, n);
}
}  // namespace

void HostGroup::all_reduce(const Call& c, Tag tag) {
  const size_t n = bytes_of(c);
  if (size_ == 1) return copy(out_of(c), in_of(c), n);
  const Combine f = combine_of(c.mode, c.dtype);
  std::vector<Outgoing> out;
  if (n <= kSmall) {
    each_peer([&](int p) { out.push_back({p, c.in, n}); });
    return exchange(tag, out, reduction(out_of(c), in_of(c), n, f));
  }
  const Block mine = block_of(n, size_, rank_);
  each_peer([&](int p) {
    const Block b = block_of(n, size_, p);
    out.push_back({p, in_of(c) + b.at, b.bytes});
  });
  exchange(tag, out, reduction(out_of(c) + mine.at, in_of(c) + mine.at, mine.bytes, f));
  tag.phase = 1;
  std::vector<Incoming> in;
  out.clear();
  each_peer([&](int p) {
    const Block b = block_of(n, size_, p);
    out.push_back({p, out_of(c) + mine.at, mine.bytes});
    in.push_back({.peer = p, .into = out_of(c) + b.at, .bytes = b.bytes});
  });
  exchange(tag, out, in);
}

void HostGroup::reduce(const Call& c, Tag tag) {
  const size_t n = bytes_of(c);
  const bool root = rank_ == c.root;
  if (size_ == 1) return copy(out_of(c), in_of(c), n);
  const Combine f = combine_of(c.mode, c.dtype);
  const Block mine = block_of(n, size_, rank_);
  if (!root) scratch_.resize(std::max(scratch_.size(), mine.bytes));
  char* sum = root ? out_of(c) + mine.at : scratch_.data();
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  each_peer([&](int p) {
    const Block b = block_of(n, size_, p);
    out.push_back({p, in_of(c) + b.at, b.bytes});
  });
  exchange(tag, out, reduction(sum, in_of(c) + mine.at, mine.bytes, f));
  tag.phase = 1;
  out.clear();
  if (!root) return exchange(tag, {{c.root, sum, mine.bytes}}, {});
  each_peer([&](int p) {
    const Block b = block_of(n, size_, p);
    in.push_back({.peer = p, .into = out_of(c) + b.at, .bytes = b.bytes});
  });
  exchange(tag, out, in);
}

// Between the root and each other rank a message goes both ways, if only its tag: so all agree.
void HostGroup::broadcast(const Call& c, Tag tag) {
  const size_t n = bytes_of(c);
  const bool root = rank_ == c.root;
  if (root) copy(out_of(c), in_of(c), n);
  if (size_ == 1) return;
  const bool whole = size_ <= 3 || n <= kSmall;  // else each rank gets a block of it and hands that on to the others
  auto block = [&](int p) { return whole ? Block{0, n} : block_of(n, size_, p); };
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  if (root) {
    each_peer([&](int p) {
      out.push_back({p, out_of(c) + block(p).at, block(p).bytes});
      in.push_back({.peer = p, .into = nullptr, .bytes = 0});
    });
  } else {
    out.push_back({c.root, nullptr, 0});
    in.push_back({.peer = c.root, .into = out_of(c) + block(rank_).at, .bytes = block(rank_).bytes});
  }
  exchange(tag, out, in);
  if (whole) return;
  tag.phase = 1;
  out.clear(), in.clear();
  each_peer([&](int p) {  // the root has given every block but its own, and hands that on
    if (p != c.root) out.push_back({p, out_of(c) + block(rank_).at, block(rank_).bytes});
    if (!root) in.push_back({.peer = p, .into = out_of(c) + block(p).at, .bytes = block(p).bytes});
  });
  exchange(tag, out, in);
}

void HostGroup::all_gather(const Call& c, Tag tag) {
  const size_t n = bytes_of(c);
  auto place = [&](int p) { return out_of(c) + n * static_cast<size_t>(p); };
  copy(place(rank_), in_of(c), n);
  if (size_ == 1) return;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  each_peer([&](int p) {
    out.push_back({p, c.in, n});
    in.push_back({.peer = p, .into = place(p), .bytes = n});
  });
  exchange(tag, out, in);
}

void HostGroup::reduce_scatter(const Call& c, Tag tag) {
  const size_t n = bytes_of(c) / static_cast<size_t>(size_);
  auto block = [&](int p) { return in_of(c) + n * static_cast<size_t>(p); };
  if (size_ == 1) return copy(out_of(c), in_of(c), n);
  std::vector<Outgoing> out;
  each_peer([&](int p) { out.push_back({p, block(p), n}); });
  exchange(tag, out, reduction(out_of(c), block(rank_), n, combine_of(c.mode, c.dtype)));
}

void HostGroup::gather(const Call& c, Tag tag) {
  const size_t n = bytes_of(c);
  if (rank_ != c.root) return exchange(tag, {{c.root, c.in, n}}, {{.peer = c.root, .into = nullptr, .bytes = 0}});
  auto place = [&](int p) { return out_of(c) + n * static_cast<size_t>(p); };
  copy(place(rank_), in_of(c), n);
  if (size_ == 1) return;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  each_peer([&](int p) {
    out.push_back({p, nullptr, 0});
    in.push_back({.peer = p, .into = place(p), .bytes = n});
  });
  exchange(tag, out, in);
}

void HostGroup::scatter(const Call& c, Tag tag) {
  const size_t n = bytes_of(c) / static_cast<size_t>(size_);
  if (rank_ != c.root) return exchange(tag, {{c.root, nullptr, 0}}, {{.peer = c.root, .into = out_of(c), .bytes = n}});
  auto block = [&](int p) { return in_of(c) + n * static_cast<size_t>(p); };
  copy(out_of(c), block(rank_), n);
  if (size_ == 1) return;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  each_peer([&](int p) {
    out.push_back({p, block(p), n});
    in.push_back({.peer = p, .into = nullptr, .bytes = 0});
  });
  exchange(tag, out, in);
}

void HostGroup::all_to_all(const Call& c, Tag tag) {
  const size_t n = bytes_of(c) / static_cast<size_t>(size_);
  auto at = [&](int p) { return n * static_cast<size_t>(p); };
  copy(out_of(c) + at(rank_), in_of(c) + at(rank_), n);
  if (size_ == 1) return;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  each_peer([&](int p) {
    out.push_back({p, in_of(c) + at(p), n});
    in.push_back({.peer = p, .into = out_of(c) + at(p), .bytes = n});
  });
  exchange(tag, out, in);
}

// Both sides say the same: that the sender sends.
void HostGroup::send(const Call& c, Tag tag) {
  tag.root = rank_;
  tag.seq = ++sent_[static_cast<size_t>(c.root)];
  Watch watch{timeout_, {}, [&] { MGE_CHECK(failure().empty(), Env, "{}", failure()); }};
  transport_->post(tag, {c.root, c.in, bytes_of(c)}, watch);
}
void HostGroup::recv(const Call& c, Tag tag) {
  tag.op = static_cast<uint32_t>(Op::Send);
  tag.root = c.root;
  tag.seq = ++received_[static_cast<size_t>(c.root)];
  exchange(tag, {}, {{.peer = c.root, .into = out_of(c), .bytes = bytes_of(c)}});
}

void HostGroup::barrier(Tag tag) {
  if (size_ == 1) return;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  if (rank_) {
    exchange(tag, {{0, nullptr, 0}}, {{.peer = 0, .into = nullptr, .bytes = 0}});
    return;
  }
  each_peer([&](int p) { in.push_back({.peer = p, .into = nullptr, .bytes = 0}); });
  exchange(tag, {}, in);
  each_peer([&](int p) { out.push_back({p, nullptr, 0}); });
  exchange(tag, out, {});
}

std::vector<std::string> HostGroup::perform_exchange(const std::string& mine) {
  std::vector<std::string> all(static_cast<size_t>(size_));
  all[static_cast<size_t>(rank_)] = mine;
  if (size_ == 1) return all;
  Tag tag = tag_of({.op = Op::Exchange});
  tag.seq = ++calls_;
  uint64_t length = mine.size();
  std::vector<uint64_t> lengths(static_cast<size_t>(size_));
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  each_peer([&](int p) {
    out.push_back({p, &length, sizeof length});
    in.push_back(
        {.peer = p, .into = reinterpret_cast<char*>(&lengths[static_cast<size_t>(p)]), .bytes = sizeof length});
  });
  exchange(tag, out, in);
  tag.phase = 1;
  out.clear(), in.clear();
  each_peer([&](int p) {
    std::string& theirs = all[static_cast<size_t>(p)];
    MGE_CHECK(lengths[static_cast<size_t>(p)] <= (256u << 20), Env, "exchange: rank {} gives too much: {} bytes.", p,
              lengths[static_cast<size_t>(p)]);
    theirs.resize(lengths[static_cast<size_t>(p)]);
    out.push_back({p, mine.data(), mine.size()});
    in.push_back({.peer = p, .into = theirs.data(), .bytes = theirs.size()});
  });
  exchange(tag, out, in);
  return all;
}

}  // namespace mge::dist
