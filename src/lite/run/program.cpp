#include "lite/run/program.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>
#ifndef _WIN32
#include <fcntl.h>
#endif

#include "lite/error.h"

namespace lite {
namespace {

void settle_streams() {
#ifndef _WIN32
  // A file that is opened while a standard stream is closed gets its number, and what is printed goes into the file.
  for (int fd = 0; fd < 3; ++fd)
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of the process is an error of the write
#endif
}

}  // namespace

int run_program(const char* name, int failed, mge::FunctionRef<int()> body) {
  settle_streams();
  int status = failed;
  try {
    status = body();
  } catch (...) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name, current_error_text().c_str());
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fprintf(stderr, "%s: cannot write all of the output%s%s.\n", name, errno ? ": " : "",
                 errno ? std::generic_category().message(errno).c_str() : "");
    return status ? status : failed;
  }
  return status;
}

}  // namespace lite
