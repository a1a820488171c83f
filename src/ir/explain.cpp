#include "ir/explain.h"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace mge::ir {

namespace {

std::string place_of(const Graph& g, LocId l) {
  std::string s = g.location(l).str();
  if (s.empty() && g.is_stripped()) s = "a line that was stripped from the file; one that is not stripped tells it";
  return s;
}

std::string joined(const std::vector<std::string>& all) {
  std::string s;
  for (auto& x : all) s += (s.empty() ? "" : "; ") + x;
  return s;
}

}  // namespace

Told tell(const Graph& g, NodeId n) {
  const Node& x = g.node(n);
  if (x.origins.empty()) return {written_name(x), describe_node(g, n), place_of(g, x.loc)};
  std::vector<std::string> calls, places;
  auto add = [](std::vector<std::string>& to, std::string s) {
    if (!s.empty() && std::find(to.begin(), to.end(), s) == to.end()) to.push_back(std::move(s));
  };
  for (int32_t id : x.origins) {
    add(calls, g.origin(id).call);
    add(places, place_of(g, g.origin(id).loc));
  }
  if (x.origins.size() == 1) return {g.origin(x.origins[0]).op, joined(calls), joined(places)};
  return {x.op->name, format("{} (these run as one)", joined(calls)), joined(places)};
}

Error explained(const Told& t, ErrorKind kind, const std::string& text) {
  const bool says = text.starts_with(t.op);
  Error e(kind, format("{}{}{}\n  in {}", says ? "" : t.op, says ? "" : ": ", text, t.call));
  e.set_location(t.where);
  return e;
}

void rethrow(const Told& t) {
  try {
    throw;
  } catch (const Error& e) {
    if (e.located()) throw;  // it was told where it happened
    throw explained(t, e.kind(), e.text());
  } catch (const std::bad_alloc&) {
    throw explained(t, ErrorKind::Memory, "out of memory.");
  } catch (const std::length_error&) {
    throw explained(t, ErrorKind::Memory, "out of memory.");
  } catch (const std::exception& e) {
    throw explained(t, ErrorKind::Internal, e.what());
  }
}

}  // namespace mge::ir
