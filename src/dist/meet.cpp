// How the members of a group find each other, and what they reach each other by.
#include <dlfcn.h>

#include "base/error.h"
#include "dist/gloo/gloo.h"
#include "dist/host_group.h"
#include "dist/shm.h"
#include "dist/wire.h"

namespace mge::dist {
namespace {

std::string g_gloo_file;

std::string beside_us(const char* file) {
  Dl_info us{};
  if (!dladdr(reinterpret_cast<const void*>(&set_gloo_file), &us) || !us.dli_fname) return file;
  const std::string here = us.dli_fname;
  const size_t slash = here.rfind('/');
  return slash == std::string::npos ? file : here.substr(0, slash + 1) + file;
}

GlooConnect load_gloo(std::string* why) {
  const std::string file = g_gloo_file.empty() ? beside_us(kGlooFile) : g_gloo_file;
  void* lib = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    *why = dlerror();
    return nullptr;
  }
  return reinterpret_cast<GlooConnect>(dlsym(lib, kGlooConnect));
}

// What each member says of itself.
struct Card {
  int64_t size = 0;
  std::string backend, machine, inbox;
  std::string write() const {
    std::string s;
    put_u64(s, static_cast<uint64_t>(size));
    for (auto* part : {&backend, &machine, &inbox}) put_string(s, *part);
    return s;
  }
  static Card read(const std::string& s) {
    Reader r(s);
    Card c;
    c.size = static_cast<int64_t>(r.u64());
    for (auto* part : {&c.backend, &c.machine, &c.inbox}) *part = r.string();
    return c;
  }
};

class Meeting {
 public:
  Meeting(const GroupOptions& o, Store& store)
      : o_(o), store_(store), prefix_("group/" + o.name), timeout_(o.timeout.value_or(default_timeout())) {
    deadline_ = Clock::now() + timeout_;
  }

  std::unique_ptr<Transport> join() {
    try {
      return meet();
    } catch (const Error& e) {  // the others need not wait for what cannot come
      try {
        if (!told_) store_.set(failure_key(o_.name), format("rank {}: {}", o_.rank, e.text()));
      } catch (...) {
      }
      throw;
    }
  }

 private:
  std::string key(const char* what, int rank) const { return format("{}/{}/{}", prefix_, what, rank); }
  Millis left() const { return std::max(Millis(0), std::chrono::duration_cast<Millis>(deadline_ - Clock::now())); }
  // A key of another rank, unless one of them has given up.
  std::optional<std::string> wait_for(const std::string& key) {
    auto found = store_.get_any({failure_key(o_.name), key}, left());
    if (!found) return {};
    if (found->first == 0) {
      told_ = true;
      fail(ErrorKind::Env, "group: '{}' cannot be made. {}", o_.name, found->second);
    }
    return std::move(found->second);
  }

  std::unique_ptr<Transport> meet() {
    if (store_.add(key("seat", o_.rank), 1) != 1) {
      told_ = true;  // the group of the others may still be made
      fail(ErrorKind::Env,
           "group: rank {} of '{}' is taken; another process said that it is this rank. Give every process a rank of "
           "its own, and every group a name of its own.",
           o_.rank, o_.name);
    }
    Card mine{o_.size, o_.backend, shm_machine(), {}};
    std::unique_ptr<ShmInbox> inbox;
    if (o_.backend == "auto" || o_.backend == "shm") {
      try {
        inbox = std::make_unique<ShmInbox>(o_.rank, o_.size);
        mine.inbox = inbox->name();
      } catch (const Error&) {
        if (o_.backend == "shm") throw;
      }
    }
    store_.set(key("card", o_.rank), mine.write());
    std::vector<std::string> names;
    std::string missing;
    bool one_machine = true;
    for (int p = 0; p < o_.size; ++p) {
      auto text = p == o_.rank ? mine.write() : wait_for(key("card", p));
      if (!text) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(p);
        continue;
      }
      const Card card = Card::read(*text);
      MGE_CHECK(card.size == o_.size, Env,
                "group: ranks do not agree how many they are; rank {} says '{}' has {}, rank {} says {}. Give all the "
                "same world size.",
                o_.rank, o_.name, o_.size, p, card.size);
      MGE_CHECK(card.backend == o_.backend, Env, "group: rank {} makes '{}' with backend {}, rank {} with {}.", o_.rank,
                o_.name, o_.backend, p, card.backend);
      one_machine &= card.machine == mine.machine && !card.inbox.empty();
      names.push_back(card.inbox);
    }
    MGE_CHECK(missing.empty(), Env,
              "group: rank {} never came to '{}' within {} s; {} members are expected. Has it been started, with the "
              "same address, port and world size?",
              missing, o_.name, static_cast<double>(timeout_.count()) / 1000, o_.size);
    MGE_CHECK(one_machine || o_.backend != "shm", Env,
              "group: the ranks of '{}' are on several machines, or users, and share no memory. Use backend=\"gloo\".",
              o_.name);
    std::unique_ptr<Transport> t;
    if (inbox && one_machine) {
      ShmInbox* box = inbox.get();
      t = join_shm(std::move(inbox), names);
      all_are_here();
      box->hide();
    } else {
      inbox.reset();
      t = join_gloo();
      all_are_here();
    }
    return t;
  }

  void all_are_here() {
    store_.set(key("here", o_.rank), "");
    for (int p = 0; p < o_.size; ++p)
      MGE_CHECK(wait_for(key("here", p)), Env, "group: rank {} was lost while '{}' was made.", p, o_.name);
  }

  std::unique_ptr<Transport> join_gloo() {
    std::string why;
    const GlooConnect connect = load_gloo(&why);
    MGE_CHECK(
        connect, Env,
        "group: '{}' needs Gloo, which is not here: {}. It comes with the wheel; of a build from source it is part "
        "when libgloo-dev is installed. Ranks of one machine can do with backend=\"shm\".",
        o_.name, why);
    const GlooStore store{[&](const std::string& k, const std::string& v) { store_.set(prefix_ + "/gloo/" + k, v); },
                          [&](const std::string& k) {
                            auto v = wait_for(prefix_ + "/gloo/" + k);
                            MGE_CHECK(v, Env, "group: a rank of '{}' was lost while it was made.", o_.name);
                            return *v;
                          }};
    std::unique_ptr<Transport> t(connect({o_.rank, o_.size, o_.host, timeout_}, store, &why));
    MGE_CHECK(t, Env, "group: rank {} of '{}' cannot reach the others from {} by Gloo: {}.", o_.rank, o_.name, o_.host,
              why);
    return t;
  }

  const GroupOptions& o_;
  Store& store_;
  std::string prefix_;
  Millis timeout_;
  Clock::time_point deadline_;
  bool told_ = false;
};

constexpr const char* kBackends[] = {"auto", "shm", "gloo", "local"};

}  // namespace

void set_gloo_file(std::string path) { g_gloo_file = std::move(path); }

std::vector<std::string> backends() {
  std::vector<std::string> out = {"auto", "local", "shm"};
  std::string why;
  if (load_gloo(&why)) out.push_back("gloo");
  return out;
}

std::shared_ptr<ProcessGroup> make_host_group(const GroupOptions& o, std::shared_ptr<Store> store) {
  MGE_CHECK(o.size >= 1 && o.rank >= 0 && o.rank < o.size, Value,
            "group: rank must lie in 0 .. size-1; got rank {} of {}.", o.rank, o.size);
  bool known = false;
  for (const char* b : kBackends) known |= o.backend == b;
  MGE_CHECK(known, Value, "group: backend must be auto, shm, gloo or local; got '{}'.", o.backend);
  if (o.size == 1) return std::make_shared<HostGroup>(o, nullptr, nullptr);
  MGE_CHECK(o.backend != "local", Value, "group: local is one process alone; '{}' has {} members.", o.name, o.size);
  MGE_CHECK(store, Value, "group: '{}' has {} members, which need a store to meet.", o.name, o.size);
  auto transport = Meeting(o, *store).join();
  return std::make_shared<HostGroup>(o, std::move(store), std::move(transport));
}

}  // namespace mge::dist
