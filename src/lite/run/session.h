// The networks of one call of load_and_run, as its flags ask for them: configured, loaded, fed.
//   Flags f(load_and_run_flags()); f.parse(argc, argv); check_flags(f);
//   Session s(f); s.feed(s.given_inputs()); s.net(0).forward();
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "lite/network_impl.h"
#include "lite/run/flags.h"
#include "lite/run/input_data.h"
#include "lite/run/value_checks.h"
#include "serial/file.h"

namespace lite {

std::span<const FlagDef> load_and_run_flags();
/// A Value error for numbers out of range and flags that exclude each other.
void check_flags(const Flags& f);

class Session {
 public:
  explicit Session(const Flags& f);

  size_t size() const { return nets_.size(); }
  Network& net(size_t i) { return *nets_[i]; }
  const std::shared_ptr<Network>& shared(size_t i) { return nets_[i]; }
  Network::Impl& impl() { return NetworkAccess::impl(net(0)); }
  const std::vector<mge::serial::TestCase>& tests() const { return tests_; }

  /// Of --input and --batch_size.
  std::vector<InputData> given_inputs();
  void feed(const std::vector<InputData>& inputs);
  void feed(const std::vector<mge::serial::TensorData>& inputs);

 private:
  Config config() const;
  std::shared_ptr<Network> configured();
  void load(const std::shared_ptr<Network>& net);
  void set_dumps(const std::shared_ptr<Network>& net);
  void set_core_ids(const std::shared_ptr<Network>& net) const;

  const Flags& f_;
  mge::serial::File file_;  // of --share_param_mem, whose memory the networks may use
  std::vector<std::shared_ptr<Network>> nets_;
  std::vector<mge::serial::TestCase> tests_;  // record level 2 drops those of the model
  ValueChecks checks_;
};

}  // namespace lite
