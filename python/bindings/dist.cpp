// megengine.core._core.dist: the store where processes meet, and process groups. Collectives are ops like any other.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common.h"
#include "dist/group.h"
#include "dist/kernels.h"
#include "plan/beside.h"

namespace nb = nanobind;

namespace mge::py {
namespace {

using namespace mge::dist;
using Seconds = std::optional<double>;

Millis to_millis(double s) {
  MGE_CHECK(s >= 0 && s < 1e9, Value, "timeout: expected seconds, at least 0; got {}.", s);
  return Millis(static_cast<int64_t>(s * 1000));
}
std::optional<Millis> to_millis(Seconds s) { return s ? std::optional(to_millis(*s)) : std::nullopt; }
double seconds(Millis t) { return static_cast<double>(t.count()) / 1000; }
std::string text(const nb::bytes& b) { return {b.c_str(), b.size()}; }
nb::bytes bytes(const std::string& s) { return nb::bytes(s.data(), s.size()); }

// Runs without the interpreter lock. What is thrown is translated with it.
template <class F>
auto aside(F f) {
  const OthersTurn others;
  return f();
}

void bind_store(nb::module_& m) {
  nb::class_<StoreServer>(m, "StoreServer", "Serves the store of a job from a thread of this process.")
      .def(
          "__init__",
          [](StoreServer* self, const std::string& host, int port, const std::string& token) {
            new (self) StoreServer(host, port, token);
          },
          nb::arg("host") = "127.0.0.1", nb::arg("port") = 0, nb::arg("token") = "")
      .def_prop_ro("host", &StoreServer::host)
      .def_prop_ro("port", &StoreServer::port)
      .def("close", &StoreServer::close, nb::call_guard<OthersTurn>());

  nb::class_<Store>(m, "Store", "A table of keys and bytes that all processes of a job see.")
      .def(
          "__init__",
          [](Store* self, const std::string& host, int port, const std::string& token, Seconds timeout) {
            aside([&] { new (self) Store(host, port, token, timeout ? to_millis(*timeout) : default_timeout()); });
          },
          nb::arg("host"), nb::arg("port"), nb::arg("token") = "", nb::arg("timeout") = nb::none())
      .def_prop_ro("host", &Store::host)
      .def_prop_ro("port", &Store::port)
      .def_prop_rw(
          "timeout", [](const Store& s) { return seconds(s.timeout()); },
          [](Store& s, double t) { s.set_timeout(to_millis(t)); })
      .def(
          "set", [](Store& s, const std::string& key, const nb::bytes& value) { s.set(key, text(value)); },
          nb::arg("key"), nb::arg("value"))
      .def(
          "get", [](Store& s, const std::string& key, Seconds t) { return bytes(s.get(key, to_millis(t))); },
          nb::arg("key"), nb::arg("timeout") = nb::none())
      .def(
          "try_get",
          [](Store& s, const std::string& key) -> nb::object {
            auto v = s.try_get(key);
            return v ? nb::object(bytes(*v)) : nb::none();
          },
          nb::arg("key"))
      .def(
          "pop", [](Store& s, const std::string& key, Seconds t) { return bytes(s.pop(key, to_millis(t))); },
          nb::arg("key"), nb::arg("timeout") = nb::none())
      .def("add", &Store::add, nb::arg("key"), nb::arg("n") = 1)
      .def("delete", &Store::erase, nb::arg("key"))
      .def(
          "barrier", [](Store& s, const std::string& key, int64_t n, Seconds t) { s.barrier(key, n, to_millis(t)); },
          nb::arg("key"), nb::arg("size"), nb::arg("timeout") = nb::none())
      .def("close", &Store::close);
}

void bind_group(nb::module_& m) {
  nb::class_<ProcessGroup>(m, "Group", "Processes that compute together; collectives name it by its name.")
      .def(nb::new_([](const std::string& name, int rank, int size, std::shared_ptr<Store> store,
                       const std::string& backend, Seconds timeout, const std::string& host) {
             MGE_CHECK(!name.empty(), Value, "group: needs a name.");
             return aside([&] {
               return ProcessGroup::create({name, rank, size, backend, to_millis(timeout), host}, std::move(store));
             });
           }),
           nb::arg("name"), nb::arg("rank"), nb::arg("size"), nb::arg("store").none() = nb::none(),
           nb::arg("backend") = "auto", nb::arg("timeout") = nb::none(), nb::arg("host") = "127.0.0.1")
      .def_prop_ro("name", &ProcessGroup::name)
      .def_prop_ro("rank", &ProcessGroup::rank)
      .def_prop_ro("size", &ProcessGroup::size)
      .def_prop_ro("backend", &ProcessGroup::backend)
      .def_prop_ro("timeout", [](const ProcessGroup& g) { return seconds(g.timeout()); })
      .def_prop_ro("failed",
                   [](const ProcessGroup& g) {
                     const std::string why = g.failure();
                     return why.empty() ? std::optional<std::string>() : why;
                   })
      .def("wait",
           [](ProcessGroup& g) {
             aside([&] {
               drain_domain(g.name());
               g.check_usable("wait");
             });
           })
      .def("barrier",
           [](ProcessGroup& g) {
             aside([&] {
               drain_domain(g.name());
               g.barrier();
             });
           })
      .def(
          "exchange",
          [](ProcessGroup& g, const nb::bytes& mine) {
            auto all = aside([&, value = text(mine)] {
              drain_domain(g.name());
              return g.exchange(value);
            });
            nb::list out;
            for (auto& v : all) out.append(bytes(v));
            return out;
          },
          nb::arg("data"))
      .def(
          "abort", [](ProcessGroup& g, const std::string& reason) { aside([&] { g.abort(reason); }); },
          nb::arg("reason"))
      .def("close", [](ProcessGroup& g) {
        aside([&] {
          if (g.failure().empty()) drain_domain(g.name());
          g.close();
        });
      });
}

}  // namespace

void bind_dist(nb::module_& top) {
  register_kernels(KernelRegistry::global());
  set_domain_check(check_call);
  set_run_beside(run_in_domain);
  nb::module_ m = top.def_submodule("dist", "Process groups and where they meet.");
  bind_store(m);
  bind_group(m);
  m.def("default_timeout", [] { return seconds(default_timeout()); });
  m.def("backends", &backends, "What a group can be made with here.");
  m.def("group_names", &ProcessGroup::names, "Groups of this process that are open.");
}

// What is queued gets a little time, for the sake of the others; then whoever waits for this process, or it for them,
// is told that it ends.
void end_dist() {
  constexpr Millis kGrace{5000};
  if (!drain_domains(kGrace)) ProcessGroup::abort_all("The process ends while collectives are under way.");
  ProcessGroup::leave_all();
}

}  // namespace mge::py
