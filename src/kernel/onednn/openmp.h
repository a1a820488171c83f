// oneDNN's OpenMP, served by our team. The library asks libgomp for parallel regions of all sizes; libgomp would end
// and start threads for them, and beside them our own team would sit. So the entries of its import table that name
// OpenMP functions are pointed at ours (docs/adr/0013-one-team.md).
#pragma once

namespace mge::onednn {

/// Does that, once. Null, or why oneDNN cannot be used.
const char* bind_openmp();

/// While it lives, what oneDNN asks OpenMP on this thread is answered by this library, and it is told of `parts`
/// threads: a primitive is made for so many and run in so many parts, by as many threads as there are. One process may
/// hold several libraries that use the same oneDNN (the Python extension and liblite.so), each with its own team and
/// its own number of threads.
class Entered {
 public:
  explicit Entered(int parts);
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const void* before_;
  int parts_before_;
};

}  // namespace mge::onednn
