// A recorded call in pieces: what is computed at once, where somebody reads, and parts that are not seen.
#include "eager/trace.h"

namespace mge {

// `leaves`: whether a variable that the segment computes is wanted after it.
template <class Leaves>
Recording::Segment Recording::segment_of(size_t begin, size_t end, const Leaves& leaves) const {
  Segment s{begin, end, {}, {}, 0, {}, {}};
  std::vector<bool> seen(vars_.size());
  for (size_t i = begin; i < end; ++i) {
    if (vars_[ops_[i].out[0]].at_once) continue;
    for (uint32_t v : ops_[i].in)
      if (!seen[v] && (vars_[v].external || vars_[v].at_once || vars_[v].producer < static_cast<int>(begin))) {
        seen[v] = true;
        s.in.push_back(v);
      }
    for (uint32_t v : ops_[i].out)
      if (leaves(v)) s.out.push_back(v);
  }
  if (s.out.empty())  // what acts on others does so whether or not anybody here wants what it gives
    for (size_t i = begin; i < end && s.out.empty(); ++i)
      if (ops_[i].op->is(kEffect) && !vars_[ops_[i].out[0]].at_once) s.out.push_back(ops_[i].out[0]);
  return s;
}

void Recording::make_segments() {
  segments_.clear();
  std::vector<size_t> ends = breaks_;
  if (ends.empty() || ends.back() != ops_.size()) ends.push_back(ops_.size());
  std::vector<int> last_use(vars_.size(), -1);
  for (size_t i = 0; i < ops_.size(); ++i)
    for (uint32_t v : ops_[i].in)
      if (!vars_[ops_[i].out[0]].at_once) last_use[v] = static_cast<int>(i);
  size_t begin = 0;
  for (size_t end : ends) {
    segments_.push_back(segment_of(begin, end, [&](uint32_t v) {
      return vars_[v].kept || vars_[v].read || last_use[v] >= static_cast<int>(end);
    }));
    begin = end;
  }
  find_state(segments_.back());
}

// Tensors from outside that the last segment gives another value may give it their memory, too: as state they are at
// the end of `in`, and their next values, in the same order, at the end of `out`.
void Recording::find_state(Segment& s) {
  std::vector<uint32_t> in, out;
  auto take = [](std::vector<uint32_t>& from, uint32_t v) {
    auto it = std::find(from.begin(), from.end(), v);
    return it == from.end() ? false : (from.erase(it), true);
  };
  auto has = [](const std::vector<uint32_t>& of, uint32_t v) { return std::find(of.begin(), of.end(), v) != of.end(); };
  for (auto& c : commits_) {
    auto it = c.cell ? captured_cells_.find(c.cell.get()) : captured_cells_.end();
    if (it == captured_cells_.end()) continue;
    const auto was = static_cast<uint32_t>(it->second);
    const Var &from = vars_[was], &to = vars_[c.var];
    if (!to.meta.same_type(from.meta) || to.meta.cn != from.meta.cn) continue;
    if (!has(s.in, was) || !take(s.out, c.var)) continue;
    take(s.in, was);
    in.push_back(was);
    out.push_back(c.var);
    vars_[c.var].state_of = static_cast<int>(was);
  }
  s.n_state = in.size();
  s.in.insert(s.in.end(), in.begin(), in.end());
  s.out.insert(s.out.end(), out.begin(), out.end());
}

// What was recorded since the last time is computed now: everything that somebody still holds.
void Recording::flush() {
  if (flushed_ == ops_.size()) return;
  if (opt_.record_only) refuse_early_read();
  if (breaks_.empty() || breaks_.back() != ops_.size()) breaks_.push_back(ops_.size());
  segments_.push_back(segment_of(flushed_, ops_.size(), [&](uint32_t v) { return lives(vars_[v]); }));
  flushed_ = ops_.size();
  run_segment(segments_.size() - 1);
}

// The end of a call that was only written down so far. With record_only it is all there is: state is as it was.
void Recording::compute_recorded() {
  if (opt_.record_only) return take_back();
  for (size_t i = 0; i < segments_.size(); ++i)
    // As in host mode, state is given away when nothing but the program can fail any more. A file wants what the call
    // began with.
    if (segments_[i].begin >= flushed_) run_segment(i, i + 1 == segments_.size() && !opt_.capture_as_const);
  if (opt_.replay && host_only_.empty())  // from now on the whole call is one program
    for (auto& s : segments_) {
      s.programs.clear();
      s.exact = nullptr;
    }
  undo_.clear();
  fail_uncomputed();
}

// ---- parts that are not seen

void Recording::exclude_begin() {
  if (state_ == State::Recording) {
    if (opt_.replay) set_host_only("exclude_from_trace", current_location());
    if (opt_.lazy) flush();
    boundaries_.push_back(ops_.size());
    if (breaks_.empty() || breaks_.back() != ops_.size()) breaks_.push_back(ops_.size());
    drain_executor();
    for (auto& v : vars_)
      if (!v.external && lives(v)) v.read = true;
    return;
  }
  if (boundary_ >= boundaries_.size() || boundaries_[boundary_] != pc_)
    mismatch("operator mismatch", "exclude_from_trace is at another place than in the recorded call", 0);
  ++boundary_;
  while (segment_ < segments_.size() && segments_[segment_].end <= pc_) run_segment(segment_++);
  fail_uncomputed();
}

void Recording::exclude_end() {
  next_epoch();
  externals_.clear();
}

void Recording::needs_host(const std::string& why) {
  if (state_ == State::Recording && opt_.replay) set_host_only(why, current_location());
}

}  // namespace mge
