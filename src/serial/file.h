// A file's bytes, mapped when it is large. File f = open_file(path); f.bytes stay valid while f.owner lives.
#pragma once
#include <memory>
#include <string>

#include "serial/container.h"

namespace mge::serial {

struct File {
  Bytes bytes;
  std::shared_ptr<const void> owner;
  bool mapped = false;
};

/// Env error with the system's reason.
File open_file(const std::string& path);
/// Writes to a temporary file in the same folder and renames it on commit(); without commit it is removed.
class AtomicFile final : public Sink {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile() override;
  void write(Bytes bytes) override;
  void commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace mge::serial
