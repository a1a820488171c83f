#include "plan/program.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/pool.h"
#include "kernel/copy.h"
#include "kernel/launch_timer.h"
#include "plan/program_impl.h"

namespace mge {
namespace {

// Copies into memory laid out as the program expects. Only contiguous and permuted layouts ever get here with values to
// move.
Buffer as_declared(const Meta& m, const Buffer& b, const Layout& want) {
  if (want.is_contiguous(m.shape)) return make_contiguous(m, b);
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < m.shape.rank; ++i) (want.stride[i] < 0 ? lo : hi) += want.stride[i] * (m.shape[i] - 1);
  Buffer out{allocate_storage(device_of(m), dtype_bytes(m.dtype, m.shape.numel() ? hi - lo + 1 : 0), queue_of(m)),
             want};
  out.layout.offset = -lo;
  Work* after = b.work.get();
  OpenWork own(queue_of(m) ? queue_of(m)->open({&after, 1}, nullptr, {}) : nullptr);
  copy_strided(make_arg(m, b), make_arg(m, out), own.get());
  out.work = RefPtr<Work>(own.get());
  return out;
}

}  // namespace

Program::Program() : impl_(new Impl) {}
Program::~Program() = default;

const ir::Graph& Program::graph() const { return impl_->graph; }
size_t Program::n_inputs() const { return impl_->in.size(); }
size_t Program::n_vars() const { return impl_->var.size(); }
size_t Program::n_outputs() const { return impl_->graph.outputs().size(); }
const Meta& Program::input_meta(size_t i) const { return impl_->graph.meta(impl_->graph.inputs()[i]); }
const Meta& Program::var_meta(size_t i) const { return impl_->graph.meta(impl_->graph.vars()[i].in); }
const Meta& Program::output_meta(size_t i) const { return impl_->graph.meta(impl_->graph.outputs()[i].value); }
size_t Program::n_instrs() const { return impl_->code.size(); }
size_t Program::input_needed_at(size_t i) const { return static_cast<size_t>(impl_->input_needed[i]); }
size_t Program::output_ready_at(size_t i) const {
  return static_cast<size_t>(impl_->ready[impl_->graph.outputs()[i].value]);
}
const PlanReport& Program::report() const { return impl_->report; }

void* Program::Impl::base_of(int buffer) const {
  const PlanBuffer& b = buffers[static_cast<size_t>(buffer)];
  switch (b.where) {
    case Where::Arena:
      return static_cast<char*>(homes[b.home].arena->ptr) + b.offset;
    case Where::Input:
      return in[b.index].data(graph.meta(graph.inputs()[b.index]).dtype);
    case Where::Var:
      return var[b.index].data(graph.meta(graph.vars()[b.index].in).dtype);
    case Where::Const:
      return consts[b.index]->ptr;
    case Where::Output:
      return out_storage[static_cast<size_t>(buffer)]->ptr;
  }
  return nullptr;
}

Buffer Program::Impl::buffer_of(ir::ValueId v) const {
  const Place& at = place[v];
  const PlanBuffer& b = buffers[at.buffer];
  Buffer out{nullptr, at.layout};
  switch (b.where) {
    case Where::Input:
      out.storage = in[b.index].storage;
      out.layout.offset += in[b.index].layout.offset;
      break;
    case Where::Var:
      out.storage = var[b.index].storage;
      out.layout.offset += var[b.index].layout.offset;
      break;
    case Where::Const:
      out.storage = consts[b.index];
      break;
    case Where::Output:
      out.storage = out_storage[at.buffer];
      // Donated memory may start inside its storage.
      if (b.donor >= 0 && out.storage && out.storage == var[b.donor].storage)
        out.layout.offset += var[b.donor].layout.offset;
      break;
    case Where::Arena:
      break;
  }
  MGE_ASSERT(out.storage, "program {}: value %{} is not available now", graph.name(), v);
  out.work = homes[b.home].work;
  return out;
}

std::pair<RefPtr<Storage>, size_t> Program::Impl::memory_of(const ArgRef& r) const {
  const PlanBuffer& b = buffers[static_cast<size_t>(r.buffer)];
  const RefPtr<Storage>& s = b.where == Where::Arena   ? homes[b.home].arena
                             : b.where == Where::Input ? in[b.index].storage
                             : b.where == Where::Var   ? var[b.index].storage
                             : b.where == Where::Const ? consts[b.index]
                                                       : out_storage[static_cast<size_t>(r.buffer)];
  return {s, static_cast<size_t>(static_cast<char*>(base_of(r.buffer)) - static_cast<char*>(s->ptr) + r.offset)};
}

void Program::bind_input(size_t i, Buffer b) {
  Impl& p = *impl_;
  MGE_ASSERT(i < p.in.size() && b.storage, "program {}: bind_input({}) of {}", p.graph.name(), i, p.in.size());
  const Meta& m = input_meta(i);
  const Layout& want = p.place[p.graph.inputs()[i]].layout;
  if (!b.layout.same_strides(m.shape, want)) b = as_declared(m, b, want);
  if (!p.in[i].storage) --p.unbound_inputs;
  p.in[i] = std::move(b);
  p.set_base(p.input_buffer[i], p.in[i].data(m.dtype));
}

void Program::bind_var(size_t i, Buffer b) {
  Impl& p = *impl_;
  MGE_ASSERT(i < p.var.size() && b.storage, "program {}: bind_var({}) of {}", p.graph.name(), i, p.var.size());
  const Meta& m = var_meta(i);
  p.var[i] = b.layout.is_contiguous(m.shape) ? std::move(b) : make_contiguous(m, b);
  p.set_base(p.var_buffer[i], p.var[i].data(m.dtype));
}

// Between runs the memory is the pool's, for whoever needs it meanwhile; the same block comes back as a rule.
void Program::Impl::take_arenas() {
  for (auto& h : homes) {
    if (h.arena) continue;  // record
    try {
      h.arena = allocate_storage(h.device, h.bytes, h.queue);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Memory) throw;
      rethrow_no_memory(h);
    }
    if (h.arena->ptr == std::exchange(h.base, h.arena->ptr)) continue;
    const int home = static_cast<int>(&h - homes.data());
    for (size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b].where == Where::Arena && buffers[b].home == home)
        set_base(static_cast<int>(b), base_of(static_cast<int>(b)));
    for (Instr& c : code)
      if (c.workspace >= 0 && buffers[c.workspace].home == home) c.args.workspace = base_of(c.workspace);
  }
}

// Fresh memory, or that of the var which gives way to the result.
void Program::Impl::take_outputs() {
  for (int b : out_buffers) out_storage[b].reset();  // the last run's result may be this run's var
  for (int b : out_buffers) {
    PlanBuffer& x = buffers[b];
    if (x.donor >= 0) {
      const Buffer& v = var[x.donor];
      if (v.storage->ref_count() == 1 && v.storage->writable) {
        out_storage[b] = v.storage;
        set_base(b, v.data(graph.meta(graph.vars()[x.donor].in).dtype));
        continue;
      }
    }
    const Home& h = homes[x.home];
    try {
      out_storage[b] = allocate_storage(h.device, x.bytes + (opt.poison ? kCanaryBytes : 0), h.queue);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Memory && x.first >= 0) rethrow(static_cast<size_t>(x.first));
      throw;
    }
    set_base(b, out_storage[b]->ptr);
  }
}

// One command on each stream: behind the work that fills what was bound.
void Program::Impl::open_work(Work* command, const Explain& explain) {
  if (!has("streams")) return;
  std::vector<Work*> after;
  for (auto* bound : {&in, &var})
    for (auto& b : *bound)
      if (b.work) after.push_back(b.work.get());
  for (auto& h : homes) {
    if (!h.queue) continue;
    MGE_CHECK(!checked() && !compared(), NotImplemented,
              "program {}: checked execution looks at memory, which the host cannot on {}.", graph.name(),
              h.device.name());
    h.borrowed = command && &command->stream == h.queue;
    h.work = h.borrowed ? RefPtr<Work>(command) : h.queue->open({after.data(), after.size()}, "program", explain);
  }
}

void Program::Impl::close_work() {
  if (!has("streams")) return;
  for (auto& h : homes)
    if (h.work && !std::exchange(h.borrowed, true)) h.work->close();
}

void Program::begin(Work* command, Explain explain) { prepare(command, explain); }

void Program::prepare(Work* command, const Explain& explain) {
  Impl& p = *impl_;
  MGE_CHECK(
      !p.busy.exchange(true), Assertion,
      "program {}: is running already, on this thread or another. Finish that run first, or compile a second program.",
      p.graph.name());
  p.pc = 0;  // nothing is committed, whatever fails from here on
  try {
    for (size_t i = 0; i < p.var.size(); ++i)
      MGE_CHECK(p.var[i].storage, Value, "program {}: var '{}' is not bound.", p.graph.name(),
                p.graph.value(p.graph.vars()[i].in).name);
    p.take_arenas();
    if (p.compared()) {
      p.oracle_vars.clear();
      for (size_t i = 0; i < p.var.size(); ++i) {
        Buffer copy = allocate_buffer(var_meta(i));
        std::memcpy(copy.storage->ptr, p.var[i].data(var_meta(i).dtype), var_meta(i).bytes());
        p.oracle_vars.push_back(copy);
      }
    }
    p.take_outputs();
    if (has("checks") && p.opt.poison) p.poison_all();
    p.open_work(command, explain);
  } catch (...) {
    p.abandon();
    throw;
  }
}

ir::Told Program::Impl::tell(size_t instr) const {
  return told.empty() ? ir::tell(graph, code[instr].node) : told[instr];
}

void Program::Impl::drop_graph() {
  std::vector<ir::Told> all;
  for (size_t t = 0; t < code.size(); ++t) {
    all.push_back(tell(t));
    attrs.push_back(graph.node(code[t].node).attrs);
  }
  told = std::move(all);
  graph.drop_nodes();
}

void Program::Impl::check_graph() const {
  MGE_CHECK(told.empty() || code.empty(), Value,
            "program {}: its graph was dropped (record level 2), so there is nothing to list. Use record level 1.",
            graph.name());
}

// Called inside a catch block: adds what the kernel could not know.
void Program::Impl::rethrow(size_t instr) const {
  ir::Told t = tell(instr);
  t.call += state_left(instr);
  ir::rethrow(t);
}

// Of a failure that could not be foreseen, such as a lost connection or a library out of memory: which vars hold their
// next values by then. Empty when none does.
std::string Program::Impl::state_left(size_t instr) const {
  constexpr size_t kNamed = 8;
  std::string names;
  size_t changed = 0, all = 0;
  for (auto& v : graph.vars()) {
    if (v.out == ir::kNone) continue;
    ++all;
    if (!is_committed(v, instr)) continue;
    if (changed++ < kNamed) names += (names.empty() ? "" : ", ") + graph.value(v.in).name;
  }
  if (!changed) return {};
  return format("\n  after {} of {} tensors were assigned: {}{}", changed, all, names, changed > kNamed ? ", ..." : "");
}

// Inside a catch block: who wants the memory is the instruction that needs most of it at once.
void Program::Impl::rethrow_no_memory(const Home& h) const {
  try {
    throw;
  } catch (const Error& e) {
    if (h.peak < 0) throw;
    const ir::Told t = tell(static_cast<size_t>(h.peak));
    size_t largest = 0;
    for (auto& b : buffers)
      if (b.where == Where::Arena && &homes[b.home] == &h && b.first <= h.peak && h.peak <= b.last)
        largest = std::max(largest, b.bytes);
    Error named(e.kind(),
                format("{}: program {} needs {} bytes at once for what it computes in between, when it comes to "
                       "this op (the largest value has {}); {}\n  in {}",
                       t.op, graph.name(), h.bytes, largest, e.text(), t.call));
    named.set_location(t.where);
    throw named;
  }
}

profile::Event Program::Impl::event_of(size_t instr) {
  static const std::string kCopy = "copy", kNowhere;
  const Instr& c = code[instr];
  if (c.node == ir::kNone) return profile::Event(&kCopy);
  if (where.empty()) where.resize(code.size());
  if (!where[instr]) where[instr] = profile::intern(told.empty() ? graph.location_of(c.node).str() : told[instr].where);
  profile::Event e(c.kernel ? &c.args.op->name : &kCopy);
  e.where = where[instr];
  e.scope = profile::scope();
  if (!told.empty()) {
    e.begin = profile::now();
    return e;
  }
  const ir::Node& n = graph.node(c.node);
  for (auto v : n.inputs) e.add(graph.meta(v));
  for (auto v : n.outputs) e.add(graph.meta(v), true);
  e.begin = profile::now();  // without what was done here
  return e;
}

void Program::Impl::take_time(size_t instr) {
  InstrTime& t = times[instr];
  t.end = profile::now();
  t.total += t.end - t.begin;
  ++t.runs;
}

void Program::watch(bool on) {
  require("profiling", "times of instructions");
  MGE_CHECK(!impl_->busy, Assertion, "program {}: watch during a run.", impl_->graph.name());
  impl_->times.assign(on ? impl_->code.size() : 0, InstrTime{});
}
bool Program::watched() const { return !impl_->times.empty(); }
int64_t Program::last_begin() const { return impl_->times.empty() ? 0 : impl_->times[0].begin; }

void Program::run_until(size_t end) {
  Impl& p = *impl_;
  MGE_ASSERT(p.busy && end <= p.code.size(), "program {}: run_until({}) of {} outside a run", p.graph.name(), end,
             p.code.size());
  if (p.unbound_inputs)
    for (size_t i = 0; i < p.in.size(); ++i)
      if (!p.in[i].storage && static_cast<size_t>(p.input_needed[i]) < end) {
        p.abandon();
        fail(ErrorKind::Value, "program {}: input '{}' is not bound.", p.graph.name(),
             p.graph.value(p.graph.inputs()[i]).name);
      }
  if (has("streams") && __builtin_expect(!p.homes.empty() && p.homes[0].work && p.pc == 0 && end == p.code.size(), 0) &&
      p.run_recorded(*this))
    return;
  const bool checked = p.checked(), profiled = has("profiling") && profile::on(),
             timed = has("profiling") && !p.times.empty();
  const bool watched = checked || profiled || timed;
  std::optional<profile::Event> event;
  // Estimates say how often to look at the clock, which would show beside short kernels.
  constexpr double kLookNs = 1e6;
  std::optional<Patience> patience;
  if (p.total_ns > kLookNs) patience.emplace();
  double since = 0;
  try {
    for (; p.pc < end; ++p.pc) {
      Instr& c = p.code[p.pc];
      // Ctrl-C comes before the first tensor is assigned, or after the last.
      if (__builtin_expect(patience && (since += c.ns) > kLookNs && static_cast<int>(p.pc) <= p.first_commit, 0)) {
        since = 0;
        patience->look();
      }
      if (has("streams") && __builtin_expect(!p.flying.empty(), 0)) p.land(p.pc);
      if (has("streams") && __builtin_expect(c.domain >= 0, 0) && p.launch_beside(p.pc)) continue;
      if (has("bands") && c.chain >= 0 && !checked && p.pc + p.chains[c.chain].count <= end &&
          p.run_chain(p.chains[c.chain], profiled)) {
        p.pc += static_cast<size_t>(p.chains[c.chain].count) - 1;
        continue;
      }
      if (__builtin_expect(watched, 0)) {
        if (checked) p.before_instr(p.pc);
        if (profiled) event.emplace(p.event_of(p.pc));
        if (timed) p.times[p.pc].begin = profile::now();
      }
      if (has("streams") && __builtin_expect(p.homes[c.home].work || c.home != c.from, 0))
        p.enqueue(p.pc, RefPtr<Program>(this));
      else if (c.kernel)
        c.kernel->run(c.args);
      else
        copy_strided(c.args.in[0], c.args.out[0]);
      if (__builtin_expect(watched, 0)) {
        if (timed) p.take_time(p.pc);
        if (profiled) profile::finish(std::move(*event), p.homes[c.home].device);
        if (checked) p.after_instr(p.pc);
      }
    }
    if (has("streams")) p.land(p.code.size());  // whoever asked to come this far may read what has been computed
  } catch (...) {
    size_t at = p.pc;
    p.abandon();
    p.rethrow(at);
  }
}

bool Program::Impl::run_chain(const Chain& chain, bool profiled) {
  SmallVec<ChainStage, 8> stages;
  for (int i = 0; i < chain.count; ++i) {
    Instr& c = code[chain.first + i];
    stages.push_back({&c.args, chain.kernel[i], c.ns});
  }
  const bool timed = !times.empty() || profiled;
  int64_t spent[kMostInChain] = {};
  std::vector<profile::Event> events;
  for (int i = 0; profiled && i < chain.count; ++i) events.push_back(event_of(static_cast<size_t>(chain.first + i)));
  int64_t at = timed ? profile::now() : 0;
  if (!run_bands({stages.data(), stages.size()}, chain, timed ? spent : nullptr)) return false;
  for (int i = 0; timed && i < chain.count; ++i) {  // as if they had come one after the other
    const int64_t begin = at;
    at += spent[i];
    if (!times.empty()) {
      InstrTime& t = times[static_cast<size_t>(chain.first + i)];
      t.begin = begin, t.end = at, t.total += spent[i], ++t.runs;
    }
    if (profiled) {
      events[i].begin = begin, events[i].end = at;
      profile::finish(std::move(events[i]), homes[code[chain.first + i].home].device);
    }
  }
  return true;
}

bool Program::Impl::run_recorded(Program& self) {
  const Home& h = homes[0];
  const Capture* capture = capture_of(h.device.kind);
  constexpr size_t kFew = 4;  // launches that are not worth it
  if (!capture || homes.size() != 1 || code.size() < kFew || profile::on() || launch_timer() || !times.empty())
    return false;
  std::vector<const void*> at{h.base};
  for (auto* bound : {&in, &var})
    for (auto& b : *bound) {
      at.push_back(b.storage ? b.storage->ptr : nullptr);
      at.push_back(reinterpret_cast<const void*>(b.layout.offset));
    }
  for (int b : out_buffers) at.push_back(base_of(b));
  const Replays::Plan plan = replays.plan(at);
  if (plan == Replays::Plan::Plain) return false;
  Work& work = *h.work;
  if (plan == Replays::Plan::Record) {
    if (!capture->begin(work)) {
      replays.keep(nullptr);
      return false;
    }
    bool whole = true;
    try {
      for (size_t i = 0; i < code.size() && whole; ++i) {
        whole = code[i].domain < 0;
        if (whole) enqueue(i, RefPtr<Program>(&self));
      }
    } catch (...) {  // it comes again when the program is run plainly
      whole = false;
    }
    std::shared_ptr<const void> made = capture->end(work);
    replays.keep(whole ? std::move(made) : nullptr);
    if (!replays.recording()) return false;
  }
  capture->replay(work, replays.recording());
  pc = code.size();
  return true;
}

namespace {
RunBeside g_run_beside = nullptr;
}
void set_run_beside(RunBeside run) { g_run_beside = run; }

// False: to be run here.
bool Program::Impl::launch_beside(size_t instr) {
  if (!g_run_beside || checked() || compared()) return false;
  const Instr& c = code[instr];
  flying.push_back({instr, g_run_beside(domains[static_cast<size_t>(c.domain)], [&c] { c.kernel->run(c.args); })});
  return true;
}

// Waits for the effects that instruction `before` needs.
void Program::Impl::land(size_t before) {
  for (size_t i = 0; i < flying.size();) {
    if (static_cast<size_t>(code[flying[i].instr].join) > before) {
      ++i;
      continue;
    }
    const Flying f = flying[i];
    try {
      f.wait();
    } catch (const Error&) {
      flying.erase(flying.begin() + static_cast<int>(i));
      pc = f.instr;  // nothing from there on counts as computed
      throw;
    }
    flying.erase(flying.begin() + static_cast<int>(i));
  }
}

void Program::Impl::enqueue(size_t instr, RefPtr<Program> keep) {
  Instr& c = code[instr];
  Work* work = homes[c.home].work.get();
  if (c.home != c.from) return move_between(c);
  if (!c.kernel) return copy_strided(c.args.in[0], c.args.out[0], work);
  c.args.work = work;
  launch(*c.kernel, c.args, [this, keep = std::move(keep), instr] { rethrow(instr); });
}

// A value comes from another device or stream: memory is moved by the stream it comes from, behind what its new home
// has enqueued so far, and before what follows there.
void Program::Impl::move_between(const Instr& c) {
  Home &from = homes[c.from], &to = homes[c.home];
  auto [source, source_at] = memory_of(refs[c.first_arg]);
  auto [target, target_at] = memory_of(refs[c.first_arg + 1]);
  const size_t bytes = dtype_bytes(c.args.out[0].dtype, c.args.out[0].numel());
  if (from.queue && to.queue) from.queue->wait_for_stream(*to.queue);
  (from.work ? from.work : to.work)->copy(target, target_at, source, source_at, bytes);
  if (from.queue && to.queue) to.queue->wait_for_stream(*from.queue);
  if (to.queue) return;
  // The host goes on when it is there: the work so far ends, and what follows is another.
  Work* before = from.work.get();
  if (!from.borrowed) from.work->close();
  RefPtr<Work> mark = from.borrowed ? from.queue->open({}, nullptr, {}) : from.work;
  if (from.borrowed) mark->close();
  wait_for(*mark);
  if (auto e = before->error()) throw_stored(e);
  if (!from.borrowed) from.work = from.queue->open({&before, 1}, nullptr, {});
}

void Program::Impl::abandon() {
  for (auto& f : flying) {  // they work on memory of this run
    for (bool done = !has("streams"); !done;) {
      try {
        f.wait();
        done = true;
      } catch (const Error&) {
        done = true;
      } catch (...) {  // Ctrl-C again
      }
    }
  }
  flying.clear();
  close_work();
  end_run();
}

// Work that is enqueued by now may still use the memory (core/storage.h).
void Program::Impl::end_run() {
  if (!opt.record)
    for (auto& h : homes) h.arena.reset();
  busy = false;
}

void Program::finish() {
  Impl& p = *impl_;
  MGE_ASSERT(p.busy && p.pc == p.code.size(), "program {}: finish at instruction {} of {}", p.graph.name(), p.pc,
             p.code.size());
  if (p.compared()) {
    try {
      p.compare_with_oracle();
    } catch (...) {
      p.abandon();
      throw;
    }
  }
  p.close_work();
  p.end_run();
}

void Program::run(Work* command, Explain explain) {
  if (has("recompute") && __builtin_expect(roomy_ != nullptr, 0)) widen();
  try {
    prepare(command, explain);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Memory || !has("recompute") || !shrink()) throw;
    prepare(command, explain);
  }
  run_until(n_instrs());
  finish();
}

// ---- memory that is scarce

namespace {

// What may still be allocated; 0: nobody knows.
size_t room(Device device) {
  const PoolStats s = Pool::of(device).stats();
  return s.limit ? s.limit - s.allocated : 0;
}
size_t bytes_of_results(const Program::Impl& p) {
  size_t bytes = 0;
  for (int b : p.out_buffers) bytes += p.buffers[static_cast<size_t>(b)].bytes;
  return bytes;
}

}  // namespace

// There was not enough for this plan: true when there is one that needs less, which is in its place now. Work that was
// enqueued before knows the old one, so this is for programs that run where they are called.
bool Program::shrink() {
  Impl& p = *impl_;
  for (int b : p.out_buffers) p.out_storage[static_cast<size_t>(b)].reset();
  const bool enqueued = std::ranges::any_of(p.homes, [](const Home& h) { return h.queue; });
  if (roomy_ || enqueued || p.homes.size() != 1 || p.opt.record || !p.told.empty()) return false;
  CompileOptions opt = p.opt;
  const size_t free = room(p.homes[0].device), results = bytes_of_results(p);
  opt.recompute_to = free > results ? free - results : 0;
  RefPtr<Program> less = compile(p.graph, opt);
  if (less->report().arena_bytes >= p.report.arena_bytes) return false;
  roomy_ = std::move(less->impl_);
  swap_plans();
  return true;
}

// Back to the faster plan when there is memory for it again.
void Program::widen() {
  const size_t limit = Pool::of(impl_->homes[0].device).stats().limit;
  if (impl_->busy || (limit && room(impl_->homes[0].device) < roomy_->homes[0].bytes + bytes_of_results(*roomy_)))
    return;
  swap_plans();
  roomy_ = nullptr;
}

void Program::swap_plans() {
  impl_.swap(roomy_);
  Impl& from = *roomy_;
  for (size_t i = 0; i < from.in.size(); ++i)
    if (from.in[i].storage) bind_input(i, std::move(from.in[i]));
  for (size_t i = 0; i < from.var.size(); ++i)
    if (from.var[i].storage) bind_var(i, std::move(from.var[i]));
  for (auto* bound : {&from.in, &from.var}) std::ranges::fill(*bound, Buffer{});
  from.unbound_inputs = from.in.size();
  if (!from.times.empty()) watch(true);
}

bool Program::has_effects() const { return !impl_->domains.empty(); }
double Program::estimated_ns() const { return impl_->total_ns; }

Buffer Program::output(size_t i) const { return impl_->buffer_of(impl_->graph.outputs()[i].value); }

Buffer Program::var(size_t i) const {
  const Impl& p = *impl_;
  const ir::Var& v = p.graph.vars()[i];
  return p.is_committed(v, p.pc) ? p.buffer_of(v.out) : p.var[i];
}

void Program::release_buffers() {
  Impl& p = *impl_;
  MGE_ASSERT(!p.busy, "program {}: release_buffers during a run", p.graph.name());
  for (auto& b : p.var) b = {};
  for (int b : p.out_buffers) p.out_storage[b].reset();
  for (auto& h : p.homes) h.work = nullptr;
  if (p.opt.keep_inputs) return;
  for (auto& b : p.in) b = {};
  p.unbound_inputs = p.in.size();
}

}  // namespace mge
