// Between Lite's layouts and the engine's metas. A scalar of the graph is {1} in Lite, where ndim 0 means "not set".
#pragma once
#include <string>

#include "core/meta.h"
#include "lite/tensor.h"

namespace lite {

/// Quantised integers travel as their plain storage type. An error names `who` when Lite has no such type.
LiteDataType to_lite_dtype(mge::DType t, const std::string& who);
bool same_storage(LiteDataType l, mge::DType t);
const char* dtype_text(LiteDataType t);
/// 0 for a number that is no data type.
size_t dtype_bytes(LiteDataType t);

Layout to_lite(const mge::Meta& m, const std::string& who);
/// Whether to_lite(m) would be l.
bool is_layout_of(const Layout& l, const mge::Meta& m);
/// The shape of `l`, a lone {1} becoming rank 0 where the graph has rank 0.
mge::Shape to_shape(const Layout& l, int graph_rank);
std::string layout_text(const Layout& l);  // "float32[2,3]"

/// Throws when ndim or data_type make no sense or the size overflows.
void check_layout(const Layout& l);
size_t layout_elements(const Layout& l);
size_t layout_bytes(const Layout& l);

}  // namespace lite
