// Groups whose data is in host memory: collectives over a Transport.
#pragma once
#include "dist/group.h"

namespace mge::dist {

std::shared_ptr<ProcessGroup> make_host_group(const GroupOptions& o, std::shared_ptr<Store> store);

class HostGroup final : public ProcessGroup {
 public:
  /// No transport: a group of one.
  HostGroup(const GroupOptions& o, std::shared_ptr<Store> store, std::unique_ptr<Transport> transport);
  const char* backend() const override { return transport_ ? transport_->name() : "local"; }

 protected:
  void perform(const Call& c) override;
  std::vector<std::string> perform_exchange(const std::string& mine) override;
  void leave(bool failed) noexcept override {
    if (transport_) transport_->close(failed);
  }

 private:
  struct Step;
  void exchange(const Tag& tag, const std::vector<Outgoing>& out, const std::vector<Incoming>& in);
  Tag tag_of(const Call& c) const;
  void met(const Tag& mine, int peer, const Tag& theirs) const;
  std::vector<Incoming> reduction(char* into, const char* own, size_t bytes, Combine f) const;
  template <class F>
  void each_peer(F f) const;

  void all_reduce(const Call& c, Tag tag);
  void reduce(const Call& c, Tag tag);
  void broadcast(const Call& c, Tag tag);
  void all_gather(const Call& c, Tag tag);
  void reduce_scatter(const Call& c, Tag tag);
  void gather(const Call& c, Tag tag);
  void scatter(const Call& c, Tag tag);
  void all_to_all(const Call& c, Tag tag);
  void send(const Call& c, Tag tag);
  void recv(const Call& c, Tag tag);
  void barrier(Tag tag);

  std::unique_ptr<Transport> transport_;
  std::vector<uint64_t> sent_, received_;  // messages of dist_send, by peer
  std::vector<char> scratch_;
};

}  // namespace mge::dist
