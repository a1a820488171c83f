// A graph as a file and back. The native container (docs/format.md): strict to read, nothing in it is ever executed.
//   write_model_file("net.mge", graph, {.producer = "megengine 1.14.0"});
//   LoadedModel m = read_model_file("net.mge");     weights stay in the mapped file
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/evaluator.h"
#include "ir/graph.h"

namespace mge::serial {

/// Contiguous bytes with a name: the initial value of a var, or a tensor of a test case.
struct TensorData {
  std::string name;
  Meta meta;
  RefPtr<Storage> storage;
  size_t offset = 0;  // bytes
  const void* data() const { return static_cast<const char*>(storage->ptr) + offset; }
};

/// Inputs and the outputs they must give. max_error 0 asks for the same bits; otherwise |a-b| / max(|a|,|b|,1) at most
/// that.
struct TestCase {
  std::string name;
  std::vector<TensorData> inputs, outputs;
  double max_error = 0;
};

/// What an input goes through before the graph sees it.
struct PreprocessStep {
  std::string input, op;
  std::vector<NamedAttr> attrs;
};

/// Everything of a file that is not the graph.
struct ModelInfo {
  std::string producer;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<TensorData> var_values;  // by var name; a var that is missing here starts undefined
  std::vector<TestCase> tests;
  std::vector<PreprocessStep> preprocess;
};

struct WriteOptions {
  bool locations = true;  // the user's file names and lines, for error messages at run time
  bool scopes = true;     // the modules that ops belong to, of which their names are made
};

/// Value error when something cannot be written: a constant without data, two outputs of one name.
std::vector<uint8_t> write_model(const Graph& g, const ModelInfo& info = {}, const WriteOptions& opt = {});
/// Writes beside `path` and renames, so that a reader of the old file keeps its bytes and nobody sees half a file.
void write_model_file(const std::string& path, const Graph& g, const ModelInfo& info = {},
                      const WriteOptions& opt = {});

/// Brings the attributes of `op` from version `from` to `from + 1`. A null function: nothing to change.
struct Upgrade {
  const char* op;
  int from;
  void (*fn)(std::vector<NamedAttr>& attrs);
};
/// The rules of this build, in upgrade.cpp.
std::span<const Upgrade> builtin_upgrades();

struct LoadedModel;
struct ReadOptions {
  size_t index = 0;  // which model of a file that holds several (dump with append)
  std::span<const Upgrade> upgrades = builtin_upgrades();
  /// Reads files of MegEngine's own formats (serial/mgb/read.h: mgb::read, which needs `evaluate`); null: they are
  /// refused by name. A pointer, so that a runtime that never meets such files does not link what they need.
  LoadedModel (*foreign)(std::span<const uint8_t> bytes, const std::shared_ptr<const void>& owner,
                         const std::string& who, const ReadOptions& opt) = nullptr;
  ir::Evaluator evaluate = {};
  bool compressed = false;  // of MegEngine's own formats: weights are stored compressed, which the file does not say
};

struct LoadedModel {
  Graph graph;
  ModelInfo info;
  uint32_t format_version = 0;
  size_t file_bytes = 0, weight_bytes = 0;
  size_t n_models = 1;  // in the file
  bool mapped = false;  // weights live in the mapped file
};

/// Copies the weights out of `bytes`. `who` starts every message. Env error for anything wrong with the bytes.
LoadedModel read_model(std::span<const uint8_t> bytes, const std::string& who = "model", const ReadOptions& opt = {});
/// Uses them in place, while `owner` lives. They must start at a multiple of 64.
LoadedModel read_model(std::span<const uint8_t> bytes, std::shared_ptr<const void> owner, const std::string& who,
                       const ReadOptions& opt = {});
LoadedModel read_model_file(const std::string& path, const ReadOptions& opt = {});

}  // namespace mge::serial
