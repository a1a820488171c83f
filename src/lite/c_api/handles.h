// Handles of the C API are numbers that are never used twice, so that a destroyed or invented one is found, not
// followed. A lookup returns shared ownership: destroying an object in another thread cannot pull it away from a
// running call.
#pragma once
#include <list>
#include <memory>
#include <string>

#include "lite-c/network_c.h"
#include "lite/error.h"
#include "lite/network.h"

namespace lite {

LiteNetwork add_network(std::shared_ptr<Network> n);
std::shared_ptr<Network> find_network(LiteNetwork handle);
void remove_network(LiteNetwork handle);

LiteTensor add_tensor(std::shared_ptr<Tensor> t);
/// The handle of a tensor that belongs to a network: the same one every time; invalid once the network is gone.
LiteTensor network_tensor(LiteNetwork network, const std::shared_ptr<Tensor>& t);
std::shared_ptr<Tensor> find_tensor(LiteTensor handle);
/// Leaves tensors of a network alone.
void remove_tensor(LiteTensor handle);

/// A copy of `text` that lives as long as the network.
const char* keep_string(LiteNetwork network, const std::string& text);
/// Those copies stay while the result lives, also when another thread destroys the network.
std::shared_ptr<const void> hold_strings(LiteNetwork network);

Layout to_cpp(const LiteLayout& l);
LiteLayout to_c(const Layout& l);
Config to_cpp(const LiteConfig& c);
NetworkIO to_cpp(const LiteNetworkIO& io);
/// Texts in the results are those of the arguments.
LiteConfig to_c(const Config& c);
std::vector<LiteIO> to_c(const std::vector<IO>& ios);

template <class T>
T* not_null(T* p, const char* what) {
  MGE_CHECK(p, Value, "lite: {} is a null pointer.", what);
  return p;
}

}  // namespace lite
