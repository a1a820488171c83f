#include "serial/mgb/blocked.h"

#include "base/error.h"
#include "compat/emit.h"

namespace mge::serial::mgb {
namespace {

int64_t format_of(const Opr& o) {
  for (auto& p : o.params)
    for (auto& f : p.fields)
      if (f.name == "format")
        if (auto* v = std::get_if<int64_t>(&f.value)) return *v;
  return 0;
}

}  // namespace

bool Blocked::is_blocked(const Opr& o) const { return format_of(o) > 1; }
std::string Blocked::refuse(const Opr& o) const {
  return is_blocked(o) && o.type != "MatrixMulV2" ? format("image format {}", format_of(o)) : std::string();
}
bool Blocked::enter(const Opr&, std::vector<Val>&) { return false; }
Val Blocked::leave(const Opr&, const Val& plain) { return plain; }
Val Blocked::relayout(const Opr&, const Val& x) { return x; }
Val Blocked::image(const Tensor& t, std::string) {
  fail(ErrorKind::NotImplemented, "weight '{}' is stored as an image of 4-channel pixels.", t.name);
}

}  // namespace mge::serial::mgb
