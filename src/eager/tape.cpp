#include "eager/tape.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <queue>
#include <unordered_set>

namespace mge {
namespace {

// Sessions belong to the thread that started them: it alone records for them.
thread_local SessionList* t_sessions = nullptr;  // active ones, outermost first; null until the first session
thread_local int t_group_depth = 0, t_group_level = 0;
thread_local LocId t_backward_loc = 0;
thread_local uint64_t t_rerun = 0;
std::atomic<uint64_t> g_next_id{1}, g_next_seq{1};

// A session that outlives its thread, or is stopped by another one, still finds the list it is in.
std::shared_ptr<SessionList> this_threads_list() {
  static thread_local std::shared_ptr<SessionList> list = std::make_shared<SessionList>();
  t_sessions = list.get();
  return list;
}
std::span<GradSession* const> sessions() {
  return t_sessions ? std::span<GradSession* const>(*t_sessions) : std::span<GradSession* const>();
}

// Ids of the active sessions of all threads: asked only for links that are not of this thread.
struct ActiveIds {
  std::mutex mutex;
  std::unordered_set<uint64_t> ids;
};
ActiveIds& active_ids() {
  static ActiveIds* a = new ActiveIds;
  return *a;
}

const GradLink* find_link(const Tensor& t, uint64_t session_id) {
  for (auto& l : t.links)
    if (l.session_id == session_id) return &l;
  return nullptr;
}

bool has_gradient(DType t) { return is_float(t) || t == DType::C64; }

// The tensor as an outer session sees it: same value, links of sessions below `level` only. Breaks the cycle
// node -> saved output -> node, and keeps what higher-order gradients need.
TensorPtr saved_view(const Tensor& t, int level) {
  auto s = Tensor::alias(t);
  for (auto& l : t.links)
    for (auto* g : sessions())
      if (g->id() == l.session_id && g->level() < level) s->links.push_back(l);
  return s;
}

bool stale(const GradLink& l) {
  for (auto* g : sessions())
    if (g->id() == l.session_id) return false;
  std::lock_guard<std::mutex> lock(active_ids().mutex);
  return !active_ids().ids.count(l.session_id);
}

void add_link(Tensor& t, GradLink link) {
  for (size_t i = 0; i < t.links.size();)
    if (t.links[i].session_id == link.session_id || stale(t.links[i]))
      t.links.erase_at(i);
    else
      ++i;
  t.links.push_back(std::move(link));
}

// A rule knows metas alone; in a recorded call the numbers in them are those of this call.
void save_sizes(GradNode& n, std::span<Tensor* const> in, std::span<TensorPtr> out) {
  Tracer* tracer = active_tracer();
  n.sizes = std::make_unique<GradSizes>();
  n.sizes->in.resize(in.size());
  for (size_t i = 0; i < in.size(); ++i)
    if (tracer->any_size(*in[i])) n.sizes->in[i] = tracer->sizes_of(*in[i]);
  if (tracer->any_size(*out[0])) n.sizes->out = tracer->sizes_of(*out[0]);
}

RefPtr<GradNode> new_node(const GradSession& s) {
  auto node = make_ref<GradNode>();
  node->session_id = s.id();
  node->seq = g_next_seq.fetch_add(1, std::memory_order_relaxed);
  node->rerun = t_rerun;
  return node;
}

bool is_attachment(const GradNode& n) { return !n.op && !n.custom; }

[[noreturn]] void refuse_outside_tensor() {
  fail(ErrorKind::Env,
       "checkpoint: the function uses a tensor that has a gradient but is neither an argument nor attached to the "
       "GradManager, so its gradient would be lost. Pass it as an argument.");
}

// Uses come in the order of seq, but for those of a second run, which come after the first noted this one.
void note_use(GradNode& n, uint64_t seq, size_t input) {
  if (is_attachment(n) && !n.first_use && !n.queued) n.first_use = seq, n.first_input = input;
}

// The latest op comes first, and an attached tensor right after the last op that adds to its gradient: what a callback
// starts then goes on beside the rest of backward. Tensors of one op go in the order of its inputs.
struct Older {
  bool operator()(const GradNode* a, const GradNode* b) const {
    const uint64_t at = a->first_use ? a->first_use : a->seq, bt = b->first_use ? b->first_use : b->seq;
    if (at != bt) return at < bt;
    return a->first_use && (!b->first_use || a->first_input > b->first_input);
  }
};

}  // namespace

// Long chains must not free recursively: a 100k-op loop would overflow the stack. A custom rule may hold the tensors it
// was made from, and through them the next node: rules are put aside and freed by the outermost destructor.
GradNode::~GradNode() {
  static thread_local std::vector<CustomVjp>* later = nullptr;
  if (custom && later) {
    later->push_back(std::move(custom));
  } else if (custom) {
    std::vector<CustomVjp> rules;
    rules.push_back(std::move(custom));
    later = &rules;
    while (!rules.empty()) {
      CustomVjp rule = std::move(rules.back());
      rules.pop_back();
    }
    later = nullptr;
  }
  SmallVec<GradEdge, 2> work = std::move(edges);
  while (!work.empty()) {
    GradEdge e = std::move(work.back());
    work.pop_back();
    if (e.node && e.node->ref_count() == 1) {
      for (auto& inner : e.node->edges) work.push_back(std::move(inner));
      e.node->edges.clear();
    }
  }
}

GradSession::GradSession() = default;
GradSession::~GradSession() { stop(); }

void GradSession::begin_group() {
  if (t_group_depth++ == 0) t_group_level = sessions().empty() ? 1 : sessions().back()->level() + 1;
}
void GradSession::end_group() { --t_group_depth; }

void GradSession::start() {
  MGE_CHECK(!active_, Env, "already recording");
  home_ = this_threads_list();
  id_ = g_next_id.fetch_add(1, std::memory_order_relaxed);
  level_ = t_group_depth ? t_group_level : home_->empty() ? 1 : home_->back()->level() + 1;
  suppressed_ = 0;
  attached_ = 0;
  noting_ = false;
  gap_begin_ = gap_end_ = 0;
  active_ = true;
  home_->push_back(this);
  mode::t_word |= mode::kGrad;
  std::lock_guard<std::mutex> lock(active_ids().mutex);
  active_ids().ids.insert(id_);
}

void GradSession::stop() {
  if (!active_) return;
  active_ = false;
  home_->erase(std::find(home_->begin(), home_->end(), this));
  // Stopped by another thread, the bit of its own goes when that one asks the tape next.
  if (home_.get() == t_sessions && home_->empty()) mode::t_word &= ~mode::kGrad;
  home_ = nullptr;
  std::lock_guard<std::mutex> lock(active_ids().mutex);
  active_ids().ids.erase(id_);
}

void GradSession::attach(Tensor& t, GradCallback on_grad) {
  MGE_CHECK(active_, Env, "attach: the session is not recording.");
  auto node = new_node(*this);
  node->callback = std::move(on_grad);
  node->out_metas.push_back(t.meta());
  if (auto* l = find_link(t, id_)) node->edges.push_back({l->node, l->index});
  attached_ += hash_mix(0, reinterpret_cast<uint64_t>(&t));
  add_link(t, {this, id_, std::move(node), 0});
}

bool GradSession::is_attached(const Tensor& t) const { return find_link(t, id_) != nullptr; }

const GradLink* GradSession::link_of(const Tensor& t) {
  if (!listening()) return nullptr;
  const GradLink* l = find_link(t, id_);
  if (!l) return nullptr;
  GradNode& n = *l->node;
  if (noting_) {
    if (!is_attachment(n)) refuse_outside_tensor();
    note_use(n, g_next_seq.load(std::memory_order_relaxed), 0);
    noted_ = true;
    return nullptr;
  }
  if (n.seq > gap_begin_ && n.seq < gap_end_) {  // not there in the first run
    if (!is_attachment(n) || n.spent) refuse_outside_tensor();
    return nullptr;
  }
  return l;
}

bool any_grad_session() { return t_sessions && !t_sessions->empty(); }
bool any_recording() {
  return std::any_of(sessions().begin(), sessions().end(), [](auto* s) { return s->recording(); });
}
uint64_t grad_context() {
  uint64_t h = 0;
  for (auto* s : sessions())
    if (s->recording()) h = hash_mix(h, s->attached() + static_cast<uint64_t>(s->level()));
  return h;
}
void drop_stale_links(Tensor& t) {
  for (size_t i = 0; i < t.links.size();)
    if (stale(t.links[i]))
      t.links.erase_at(i);
    else
      ++i;
}
uint64_t link_mask(const Tensor& t) {
  uint64_t mask = 0;
  for (auto* s : sessions())
    if (s->recording()) mask = mask << 1 | (find_link(t, s->id()) != nullptr);
  return mask;
}
LocId backward_location() { return t_backward_loc; }
uint64_t current_rerun() { return t_rerun; }

bool tape_wants(const OpDef& op, std::span<Tensor* const> in) {
  if (!any_grad_session()) return mode::t_word &= ~mode::kGrad, false;
  if (op.is(kNoGrad)) return false;
  for (auto* s : sessions())
    for (auto* t : in)
      if (s->link_of(*t)) return true;
  return false;
}

void tape_record(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) {
  // Integers have a gradient among themselves, for who attaches them: moved and added, never through floats.
  bool real_out = false, whole_out = false;
  for (auto& o : out) {
    real_out |= has_gradient(o->meta().dtype);
    whole_out |= is_int(o->meta().dtype);
  }
  if (!real_out && !whole_out) return;
  const Saves all = op.saves_of ? op.saves_of(attrs.get()) : op.saves;
  for (auto* s : sessions()) {
    RefPtr<GradNode> node;
    bool from_whole = false, from_real = false;
    uint32_t wanted = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      auto* l = s->link_of(*in[i]);
      if (!l) continue;
      const bool whole = is_int(in[i]->meta().dtype);
      if (!(whole ? whole_out : real_out && has_gradient(in[i]->meta().dtype))) continue;
      (whole ? from_whole : from_real) = true;
      if (!node) {
        node = new_node(*s);
        node->edges.resize(in.size());
      }
      node->edges[i] = {l->node, l->index};
      if (i < 32) wanted |= 1u << i;
      note_use(*l->node, node->seq, i);
    }
    if (!node) continue;
    const Saves saves = all.for_gradients(wanted);
    node->op = &op;
    node->attrs = attrs;
    node->loc = t_backward_loc ? t_backward_loc : current_location();
    node->saved_in.resize(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      node->in_metas.push_back(in[i]->meta());
      if (i < 32 && (saves.inputs >> i & 1)) node->saved_in[i] = saved_view(*in[i], s->level());
    }
    node->saved_out.resize(out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      node->out_metas.push_back(out[i]->meta());
      if (saves.outputs >> i & 1) node->saved_out[i] = saved_view(*out[i], s->level());
    }
    if (mode::t_word & mode::kTrace) save_sizes(*node, in, out);
    for (size_t i = 0; i < out.size(); ++i)
      if (is_int(out[i]->meta().dtype) ? from_whole : from_real && has_gradient(out[i]->meta().dtype))
        add_link(*out[i], {s, s->id(), node, static_cast<uint32_t>(i)});
  }
}

void tape_record_custom(CustomVjp rule, std::span<Tensor* const> in, std::span<Tensor* const> out) {
  for (auto* s : sessions()) {
    RefPtr<GradNode> node;
    for (size_t i = 0; i < in.size(); ++i)
      if (auto* l = s->link_of(*in[i])) {
        if (!node) {
          node = new_node(*s);
          node->edges.resize(in.size());
        }
        node->edges[i] = {l->node, l->index};
        note_use(*l->node, node->seq, i);
      }
    if (!node) continue;
    node->custom = rule;
    for (auto* t : in) node->in_metas.push_back(t->meta());
    for (auto* t : out) node->out_metas.push_back(t->meta());
    for (size_t i = 0; i < out.size(); ++i) add_link(*out[i], {s, s->id(), node, static_cast<uint32_t>(i)});
  }
}

GradSession* tracking_session(std::span<Tensor* const> in) {
  auto list = sessions();
  for (auto it = list.rbegin(); it != list.rend(); ++it)
    for (auto* t : in)
      if ((*it)->link_of(*t)) return *it;
  return nullptr;
}

Unrecorded::Unrecorded() {
  for (auto* s : sessions())
    if (s->recording()) {
      s->noting_ = true;
      s->noted_ = false;
      open_.push_back({s, s->id()});
    }
}

void Unrecorded::end() {
  for (auto* s : sessions())
    for (auto& [was, id] : open_)
      if (s == was && s->id() == id) {
        s->noting_ = false;
        if (s->noted_) noted_.push_back(id);
      }
  open_.clear();
}

void Unrecorded::record(CustomVjp again, std::span<Tensor* const> in, std::span<Tensor* const> out) {
  for (auto* s : sessions()) {
    bool wanted = std::find(noted_.begin(), noted_.end(), s->id()) != noted_.end();
    for (auto* t : in) wanted |= s->link_of(*t) != nullptr;
    if (!wanted || !s->recording()) continue;
    auto node = new_node(*s);
    for (size_t i = 0; i < in.size(); ++i)
      if (auto* l = s->link_of(*in[i])) note_use(*l->node, node->seq, i);
    node->custom = again;
    node->unrecorded = true;
    for (auto* t : out) node->out_metas.push_back(t->meta());
    for (size_t i = 0; i < out.size(); ++i) add_link(*out[i], {s, s->id(), node, static_cast<uint32_t>(i)});
  }
}

/// Session `s` records again although its backward is running; what came after node `n` is not to be seen.
class SecondRun {
 public:
  SecondRun(GradSession& s, const GradNode& n) : id_(s.id()), suppressed_(s.suppressed_), rerun_(t_rerun) {
    s.suppressed_ = 0;
    s.gap_begin_ = n.seq;
    s.gap_end_ = g_next_seq.load(std::memory_order_relaxed);
    t_rerun = n.seq;
  }
  ~SecondRun() {
    t_rerun = rerun_;
    for (auto* s : sessions())  // unless the function stopped it
      if (s->id() == id_) {
        s->suppressed_ = suppressed_;
        s->gap_begin_ = s->gap_end_ = 0;
      }
  }
  SecondRun(const SecondRun&) = delete;

 private:
  uint64_t id_;
  int suppressed_;
  uint64_t rerun_;
};

namespace {

// `sum` += g, in the memory of the sum when nobody else holds it.
void add_grad(TensorPtr& sum, const TensorPtr& g) {
  Tensor* in[] = {sum.get(), g.get()};
  if (sum->ref_count() == 1 && sum->meta().same_type(g->meta())) {
    Tensor* cell = sum.get();
    return dispatch_update(add_op(), nullptr, in, {&cell, 1});
  }
  TensorPtr out;
  dispatch(add_op(), nullptr, in, {&out, 1});
  sum = std::move(out);
}

// The gradient of a part added to that of the whole, where others have left theirs: only the part is touched, so a loop
// over x[0], x[1], ... costs one pass over x and not one for each step.
bool add_part(TensorPtr& sum, const TensorPtr& g, const OpDef& take, const Attrs& attrs) {
  if (!sum || sum->ref_count() != 1 || sum->meta().dtype != g->meta().dtype) return false;
  TensorPtr part;
  Tensor* whole = sum.get();
  dispatch(take, attrs, {&whole, 1}, {&part, 1});
  {
    Tensor* in[] = {part.get(), g.get()};
    TensorPtr both;
    dispatch(add_op(), nullptr, in, {&both, 1});
    part = std::move(both);  // the view is gone: the memory of `sum` is its own again
  }
  Tensor* in[] = {whole, part.get()};
  dispatch_update(*take.put_back, attrs, in, {&whole, 1});
  return true;
}

class BackwardPass {
 public:
  void give(const GradEdge& e, TensorPtr g) {
    GradNode& n = *e.node;
    MGE_CHECK(
        !n.spent, Env,
        "backward: the history of this {} was used by an earlier backward and is gone. Compute it again, or add the "
        "losses and call backward once.",
        n.op ? n.op->name.c_str() : "tensor");
    if (n.grads.size() < n.out_metas.size()) n.grads.resize(n.out_metas.size());
    TensorPtr& slot = n.grads[e.index];
    slot ? add_grad(slot, g) : void(slot = std::move(g));
    if (!n.queued) {
      n.queued = true;
      heap_.push(e.node.get());
      alive_.push_back(e.node);
    }
  }

  void run() {
    while (!heap_.empty()) {
      if (wait_hooks().check) wait_hooks().check();  // nothing else looks for Ctrl-C until the walk is over
      GradNode* n = heap_.top();
      heap_.pop();
      t_backward_loc = n->loc;
      t_rerun = n->rerun;
      step(*n);
      n->queued = false;
      n->first_use = 0;
      n->grads.clear();
      n->saved_in.clear();  // memory goes back as the walk passes
      n->saved_out.clear();
      n->sizes.reset();
      n->spent = n->op || n->custom || !n->edges.empty();  // an attached leaf serves again
      n->edges.clear();
      n->custom = nullptr;
    }
  }
  ~BackwardPass() {
    t_backward_loc = outer_loc_;
    t_rerun = outer_rerun_;
    for (auto& n : alive_) {  // after an error: no half-summed gradient may survive
      n->grads.clear();
      n->queued = false;
    }
  }

 private:
  // The gradient that a rule of the user gave for input `i`. One element is one element, whatever its rank.
  static TensorPtr fitted(TensorPtr g, size_t i, const Shape& want) {
    const Shape got = g->meta().shape;
    if (got == want) return g;
    MGE_CHECK(got.numel() == 1 && want.numel() == 1, Value,
              "Function.backward: gradient {} has shape {} but input {} has {}. Sum it over the axes that forward "
              "broadcast, or reshape it.",
              i, got.str(), i, want.str());
    EagerEmitter& em = EagerEmitter::get();
    return TensorPtr(EagerEmitter::tensor(reshape(em.val(std::move(g)), want)));
  }

  void step(GradNode& n) {
    if (!n.op && !n.custom) {  // attached
      TensorPtr g = n.grads[0];
      if (n.callback) n.callback(g);
      for (auto& e : n.edges)
        if (e.node) give(e, g);
      return;
    }
    if (n.unrecorded) return run_again(n);
    if (n.custom) {
      std::vector<TensorPtr> gys(n.grads.begin(), n.grads.end());
      auto gxs = n.custom(gys);
      for (size_t i = 0; i < n.edges.size() && i < gxs.size(); ++i)
        if (n.edges[i].node && gxs[i]) give(n.edges[i], fitted(std::move(gxs[i]), i, n.in_metas[i].shape));
      return;
    }
    MGE_CHECK(n.op->vjp, NotImplemented, "{}: this op has no gradient. Detach its inputs, or leave it out of the loss.",
              n.op->name);
    if (n.op->put_back && n.edges[0].node && !n.edges[0].node->grads.empty() &&
        add_part(n.edges[0].node->grads[n.edges[0].index], n.grads[0], *n.op, n.attrs))
      return;
    mode::RuleScope rule;
    EagerEmitter& em = EagerEmitter::get();
    auto vals = [&](const SmallVec<TensorPtr, 2>& ts, size_t count) {
      SmallVec<Val, 4> v(count);
      for (size_t i = 0; i < ts.size(); ++i)
        if (ts[i]) v[i] = em.val(ts[i]);
      return v;
    };
    auto in = vals(n.saved_in, n.in_metas.size()), out = vals(n.saved_out, n.out_metas.size());
    std::vector<Val> sizes;
    if (n.sizes)
      for (auto& t : n.sizes->in) sizes.push_back(t ? em.val(t) : Val());
    if (n.attrs)
      for (auto& s : n.attrs->sizes())
        if (!(n.op->sized_vjp >> s.field & 1)) em.fix(Val{&em, s.value});
    SmallVec<Val, 4> gys(n.out_metas.size()), gxs(n.in_metas.size());
    for (size_t i = 0; i < n.grads.size(); ++i)
      if (n.grads[i]) gys[i] = em.val(n.grads[i]);
    VjpCtx c;
    c.em = &em;
    c.op = n.op;
    c.attrs = n.attrs.get();
    c.saved_in = {in.data(), in.size()};
    c.saved_out = {out.data(), out.size()};
    c.in_metas = {n.in_metas.data(), n.in_metas.size()};
    c.out_metas = {n.out_metas.data(), n.out_metas.size()};
    c.in_sizes = {sizes.data(), sizes.size()};
    c.gys = {gys.data(), gys.size()};
    c.gxs = {gxs.data(), gxs.size()};
    c.wanted = 0;
    for (size_t i = 0; i < n.edges.size(); ++i)
      if (n.edges[i].node && i < 64) c.wanted |= uint64_t{1} << i;
    // Rules take gy(0) for granted; the gradients of further outputs may be missing.
    if (!gys[0])
      gys[0] = zeros(em.val(scalar_tensor(0, n.out_metas[0].dtype, n.out_metas[0].cn)),
                     {n.out_metas[0].shape, n.sizes && n.sizes->out ? em.val(n.sizes->out) : Val()});
    n.op->vjp(c);
    for (size_t i = 0; i < n.edges.size(); ++i) {
      if (!n.edges[i].node || !gxs[i]) continue;
      TensorPtr g(EagerEmitter::tensor(gxs[i]));
      MGE_ASSERT(g->meta().shape == n.in_metas[i].shape,
                 "vjp of {}: gradient {} of input {} has shape {} instead of {}", n.op->name, i, i,
                 g->meta().shape.str(), n.in_metas[i].shape.str());
      give(n.edges[i], std::move(g));
    }
  }

  void run_again(GradNode& n) {
    auto all = sessions();
    auto session = std::find_if(all.begin(), all.end(), [&](auto* s) { return s->id() == n.session_id; });
    MGE_CHECK(session != all.end(), Env,
              "checkpoint: backward must run on the thread that ran forward, and the recording must not be stopped "
              "before it is through.");
    std::vector<TensorPtr> out;
    {
      SecondRun here(**session, n);
      out = n.custom({});
    }
    MGE_ASSERT(out.size() == n.out_metas.size(), "a second run gave {} outputs instead of {}", out.size(),
               n.out_metas.size());
    for (size_t i = 0; i < n.grads.size(); ++i)
      if (auto* l = n.grads[i] ? find_link(*out[i], n.session_id) : nullptr)
        give({l->node, l->index}, std::move(n.grads[i]));
  }

  const mode::Scope walking_{0, mode::kBackward};
  const LocId outer_loc_ = t_backward_loc;
  const uint64_t outer_rerun_ = t_rerun;
  std::priority_queue<GradNode*, std::vector<GradNode*>, Older> heap_;
  std::vector<RefPtr<GradNode>> alive_;
};

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank > to.rank) return false;
  for (int i = 1; i <= from.rank; ++i)
    if (from[from.rank - i] != to[to.rank - i] && from[from.rank - i] != 1) return false;
  return true;
}

}  // namespace

void GradSession::backward(std::span<Tensor* const> ys, std::span<Tensor* const> dys) {
  MGE_CHECK(active_, Env, "no computation history. did you forget record() or call a method that clears the history?");
  MGE_CHECK(ys.size() == dys.size(), Value, "backward: {} tensors but {} gradients.", ys.size(), dys.size());
  for (size_t i = 0; i < ys.size(); ++i)
    MGE_CHECK(broadcasts_to(dys[i]->meta().shape, ys[i]->meta().shape), Value, "backward: y has shape {} but dy {}.",
              ys[i]->meta().shape.str(), dys[i]->meta().shape.str());
  // What backward computes is seen by sessions started earlier, not by this one, its group or later ones.
  struct Pause {
    std::vector<std::pair<GradSession*, uint64_t>> paused;
    ~Pause() {  // a callback may have stopped or freed a session
      for (auto* s : sessions())
        for (auto& [was, id] : paused)
          if (s == was && s->id() == id) s->resume();
    }
  } pause;
  for (auto* s : sessions())
    if (s->level() >= level_) {
      s->suppress();
      pause.paused.push_back({s, s->id()});
    }
  BackwardPass pass;
  for (size_t i = 0; i < ys.size(); ++i)
    if (auto* l = find_link(*ys[i], id_)) {
      EagerEmitter& em = EagerEmitter::get();
      Val dy = broadcast_to(em.val(TensorPtr(dys[i])), em.val(TensorPtr(ys[i])).sizes());
      pass.give({l->node, l->index}, TensorPtr(EagerEmitter::tensor(dy)));
    }
  pass.run();
}

}  // namespace mge
