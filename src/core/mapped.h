// Which memory is a file that is mapped and only read: its pages may go at any time, the file has them.
//   note_mapped(p, bytes); … forget_mapped(p); munmap(p, bytes);
//   if (is_mapped(weights, bytes)) drop_mapped(weights, bytes);   // read, and not needed for now
#pragma once
#include <cstddef>

namespace mge {

void note_mapped(const void* p, size_t bytes);
void forget_mapped(const void* p);
/// Whether all of it is in one such file.
bool is_mapped(const void* p, size_t bytes);
/// Gives the whole pages inside back. Reading them again brings them back.
void drop_mapped(const void* p, size_t bytes);

}  // namespace mge
