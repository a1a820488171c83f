// Gloo (BSD-3-Clause) as a transport, over TCP between machines. It is a library of its own, loaded when a group asks
// for it: whoever never leaves a machine needs neither Gloo nor what Gloo needs.
#pragma once
#include "dist/transport.h"

namespace mge::dist {

/// What Gloo needs of the store.
struct GlooStore {
  std::function<void(const std::string& key, const std::string& value)> set;
  std::function<std::string(const std::string& key)> get;  // waits; throws when nobody sets it
};
struct GlooPlace {
  int rank, size;
  std::string host;  // address that this rank listens on
  Millis timeout;
};
/// Null with a reason when the ranks do not find each other.
using GlooConnect = Transport* (*)(const GlooPlace& place, const GlooStore& store, std::string* why);
constexpr const char* kGlooConnect = "mge_gloo_connect";
constexpr const char* kGlooFile = "libmge_gloo.so";

}  // namespace mge::dist
