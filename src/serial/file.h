// A file's bytes, mapped when it is large. File f = open_file(path); f.bytes stay valid while f.owner lives.
#pragma once
#include <memory>
#include <string>

#include "base/write_file.h"
#include "serial/container.h"

namespace mge::serial {

struct File {
  Bytes bytes;
  std::shared_ptr<const void> owner;
  bool mapped = false;
};

/// Env error with the system's reason.
File open_file(const std::string& path);
/// Writes by base/write_file.h.
class FileSink final : public Sink {
 public:
  explicit FileSink(std::string path) : file_(std::move(path)) {}
  void write(Bytes bytes) override { file_.write(bytes.data(), bytes.size()); }
  void commit() { file_.commit(); }

 private:
  FileWriter file_;
};

}  // namespace mge::serial
