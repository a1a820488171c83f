// The one way the project writes a file. What is written goes to a file of its own in the same folder, which takes the
// place of the old one when all of it is on the disk: whoever reads or maps the old one keeps it, and a kill or a full
// disk leaves it as it was (docs/adr/0027-one-writer.md).
//   FileWriter f(path);
//   f.write(data, bytes);
//   f.commit();                      without it the old file stays
#pragma once
#include <string>
#include <string_view>

#include "base/error.h"

namespace mge {

/// A file that cannot be written: the path as the caller gave it, the system's error number, why, and the way out.
class FileError : public Error {
 public:
  FileError(int code, std::string path, std::string reason);
  int code() const { return code_; }
  const std::string& path() const { return path_; }
  const std::string& reason() const { return reason_; }

 private:
  int code_;
  std::string path_, reason_;
};

/// Throws the FileError for errno `code` on `path`.
[[noreturn]] void fail_to_write(const std::string& path, int code);

/// Symbolic links are followed, the mode of an old file is kept, a new one has that of the umask. Pipes, devices and
/// what /dev/stdout leads to are written as they are.
class FileWriter {
 public:
  /// Also removes what killed writers have left in the folder.
  explicit FileWriter(std::string path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Makes it last: file and folder are synced. Nothing can be written after it.
  void commit();
  /// Leaves everything as it was; also what the destructor does.
  void discard() noexcept;

  /// For writers that need a descriptor; stays this object's.
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  void open_temporary();

  std::string path_;       // as given, for errors
  std::string folder_;     // that of the file it leads to, ending in '/', or empty
  std::string target_;     // the file it leads to
  std::string temporary_;  // empty: written directly, or done
  unsigned mode_ = 0;      // of the file it replaces; 0: there is none
  int fd_ = -1;
};

/// The whole of a file in one call.
void replace_file(const std::string& path, std::string_view head, const void* data = nullptr, size_t bytes = 0);
/// Adds to a file, made when missing, under a lock that other appenders wait for. `lines`: for logs whose reader skips
/// a line that a kill has cut short, so that the next text begins on a line of its own.
void append_file(const std::string& path, std::string_view text, bool lines = true);

}  // namespace mge
