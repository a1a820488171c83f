// What the convolution kernels of this leaf share.
#pragma once
#include "kernel/conv.h"
#include "kernel/onednn/leaf.h"
#include "op/conv/conv2d.h"

namespace mge::onednn {

/// Descriptors of one convolution with channels-last images. Top and bottom padding may differ: a band of an image.
struct ConvDescs {
  dnnl::memory::desc x, y, w_plain, w_any;
  dnnl::memory::dims stride, dilate, pad_low, pad_high;
  explicit ConvDescs(const ConvGeom& g, dnnl::memory::data_type type = dnnl::memory::data_type::f32)
      : ConvDescs(g, g.ph, g.ph, type) {}
  ConvDescs(const ConvGeom& g, int64_t pad_top, int64_t pad_bottom,
            dnnl::memory::data_type type = dnnl::memory::data_type::f32);
};

Key conv_key(const ConvGeom& g, std::initializer_list<int64_t> more);
/// By dtype, geometry and role alone, the same for forward and both adjoints as far as possible, so that memory keeps
/// one order.
const char* refuse_conv(const KernelArgs& a, const ConvGeom& g, ConvRole role, DType type = DType::F32);
const char* avoid_conv(const ConvGeom& g);

/// A memory object whose pointer is set later.
inline dnnl::memory none(const dnnl::memory::desc& d) { return dnnl::memory(d, engine(), DNNL_MEMORY_NONE); }

void register_conv2d_dw(KernelRegistry& r);

}  // namespace mge::onednn
