// The events of core/profile.h for Python; megengine.utils.profiler writes them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "common.h"
#include "core/profile.h"

namespace nb = nanobind;

namespace mge::py {

void bind_profile(nb::module_& m) {
  m.def(
      "start_profile", [] { start_profile(); }, nb::call_guard<OthersTurn>(),
      "From now on everything that runs is recorded.");
  m.def(
      "stop_profile", [] { stop_profile(); }, nb::call_guard<OthersTurn>(),
      "What is queued still runs and is recorded; then recording ends.");
  m.def("is_profiled", [] { return profile::on(); });
  m.def("profile_clock", [] { return profile::now(); });
  m.def(
      "profile_events",
      [] {
        nb::list lanes;
        for (auto& lane : profile::take()) {
          nb::list events;
          for (auto& e : lane.events) {
            auto text = [](const std::string* s) { return s ? *s : std::string(); };
            std::string device =
                e.device < 0
                    ? std::string()
                    : Device{static_cast<DeviceKind>(e.device >> 16), static_cast<int16_t>(e.device & 0xffff)}.name();
            events.append(nb::make_tuple(*e.name, e.is_scope, e.begin, e.end, text(e.scope),
                                         e.where ? *e.where : location_text(e.loc), e.tensors(), device, e.allocated));
          }
          lanes.append(nb::make_tuple(lane.name, lane.thread, lane.dropped, events));
        }
        return lanes;
      },
      "Per thread (name, id, events dropped, events), of events (name, is a scope, begin, end, scope, line, tensors, "
      "device, bytes allocated), times in ns.");
  m.def("push_scope", [](const std::string& name) { profile::push_scope(name); });
  m.def("pop_scope", [](const std::string& name) { profile::pop_scope(name); });
  m.def("scope", [] { return profile::scope() ? *profile::scope() : std::string(); });
}

}  // namespace mge::py
