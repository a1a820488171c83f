// Windows of images, as convolutions see them: shared by the classes that are composed of them.
#pragma once
#include "compat/emit.h"

namespace mge::compat {

struct Window {
  int64_t kh, kw, ph, pw, sh, sw, dh, dw;
};

/// x [N,C,H,W] -> [N,C,OH,OW,kh,kw].
Val sliding_window(const char* who, const Val& x, const Window& w);
/// The adjoint: windows [N,C,OH,OW,kh,kw] added up into images [N,C,height,width].
Val add_windows(const char* who, const Val& windows, int64_t height, int64_t width, const Window& w);

}  // namespace mge::compat
