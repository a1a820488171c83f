#include "serial/mgb/params.h"

#include <cctype>
#include <charconv>
#include <string>

#include "serial/xxh64.h"

namespace mge::serial::mgb {
namespace {

struct Row {
  int number;
  const char *name, *fields;
};

#define MGE_CONV_FIELDS "pad_h:u=0 pad_w:u=0 stride_h:u=1 stride_w:u=1 dilate_h:u=1 dilate_w:u=1"

// "field:slot=default", in slot order.
constexpr Row kRows[] = {
    {1, "Empty", ""},
    {2, "Axis", "axis:i=0"},
    {3, "Convolution", "mode:u=0 " MGE_CONV_FIELDS " sparse:u=0 format:u=0 compute_mode:u=0"},
    {4, "MaskPropagate",
     "pad_h:u=0 pad_w:u=0 stride_h:u=1 stride_w:u=1 kernel_h:u=1 kernel_w:u=1 dilate_h:u=1 dilate_w:u=1"},
    {6, "ConvBias", "nonlineMode:u=0 mode:u=0 sparse:u=0 format:u=0 " MGE_CONV_FIELDS " compute_mode:u=0"},
    {8, "Images2Neibs", MGE_CONV_FIELDS " window_h:u=3 window_w:u=3"},
    {9, "Pooling", "mode:u=0 pad_h:u=0 pad_w:u=0 stride_h:u=2 stride_w:u=2 window_h:u=2 window_w:u=2 format:u=0"},
    {10, "LRN", "n:u=5 k:f=2 alpha:f=1e-4 beta:f=0.75"},
    {11, "BN", "param_dim:u=0 fwd_mode:u=0 epsilon:d=1e-4 avg_factor:d=1 scale:f=1 bias:f=0"},
    {12, "ROIPooling", "mode:u=0 scale:f=1"},
    {13, "WarpPerspective", "imode:u=1 bmode:u=0 format:u=0 border_val:f=0"},
    {17, "Elemwise", "mode:u=0"},
    {18, "ElemwiseMultiType", "mode:u=0"},
    {19, "PowC", "exp:f=0"},
    {20, "MatrixMul", "transposeA:b=0 transposeB:b=0 compute_mode:u=0 format:u=0"},
    {22, "SVD", "full_matrices:b=0 compute_uv:b=1"},
    {23, "Reduce", "mode:u=0 axis:i=2147483647 data_type:u=0"},
    {24, "Cumsum", "axis:i=2147483647 exclusive:b=1 reverse:b=0"},
    {25, "CondTake", "mode:u=0 val:f=0 eps:f=1e-6"},
    {26, "Argsort", "order:u=0"},
    {27, "IndexingRemap", "is_non_overlapping:b=0"},
    {29, "Linspace", "endpoint:b=1"},
    {31, "Eye", "k:i=0 dtype:t=0"},
    {32, "UniformRNG", "seed:q=0 dtype:t=0"},
    {33, "GaussianRNG", "seed:q=0 mean:f=0 std:f=1 dtype:t=0"},
    {34, "Flip", "vertical:b=0 horizontal:b=0"},
    {35, "Rotate", "clockwise:b=1"},
    {36, "ROICopy", "row_from:u=0 row_to:u=0 col_from:u=0 col_to:u=0"},
    {37, "CvtColor", "mode:u=0"},
    {38, "WarpAffine", "imode:u=1 border_mode:u=0 border_val:f=0 format:u=1"},
    {39, "GaussianBlur", "border_mode:u=0 kernel_height:u=0 kernel_width:u=0 sigma_x:f=0 sigma_y:f=0"},
    {40, "Resize", "imode:u=1 format:u=1"},
    {41, "Convolution3D",
     "mode:u=0 pad_d:u=0 pad_h:u=0 pad_w:u=0 stride_d:u=1 stride_h:u=1 stride_w:u=1 dilate_d:u=1 dilate_h:u=1 "
     "dilate_w:u=1 sparse:u=0 data_type:u=0 format:u=0"},
    {44, "TopK", "mode:u=0"},
    {45, "RelayoutFormat", "mode:u=0 oc:u=0 group:u=1"},
    {47, "LocalShare",
     "mode:u=0 " MGE_CONV_FIELDS " spatial_groups_h:u=1 spatial_groups_w:u=1 sparse:u=0 format:u=0 computeMode:u=0"},
    {48, "ROIAlign",
     "mode:u=0 format:u=0 spatial_scale:f=1 offset:f=0 pooled_height:u=1 pooled_width:u=1 sample_height:u=2 "
     "sample_width:u=2"},
    {49, "DeformablePSROIPooling",
     "no_trans:b=1 spatial_scale:f=1 trans_std:f=1 pooled_h:u=1 pooled_w:u=1 part_size:u=1 sample_per_part:u=1"},
    {50, "BatchConvBias", "nonlineMode:u=0 mode:u=0 " MGE_CONV_FIELDS " sparse:u=0 format:u=0 compute_mode:u=0"},
    {51, "param.DType", "dtype:t=8"},
    {52, "PersistentOutputStorage", "share_key:i=-1"},
    {53, "OptionalAxis", "axis:i=-1"},
    {54, "OptionalAxisV1", "axis:i=7"},
    {55, "ExecutionPolicy", "strategy:u=1 workspace_limit:q=18446744073709551615"},
    {56, "AssertEqual", "maxerr:f=0.0001 verbose:b=0"},
    {58, "CollectiveComm", "mode:u=0"},
    {59, "CondExecPred", "mode:u=0 eps:f=0.0001"},
    {60, "CondExecPredLogical", "mode:u=0"},
    {61, "CondExecMark", "grad_mode:u=0 static_infer:u=0"},
    {62, "CondExecMerge", "nr_output:u=1 mode:u=0"},
    {63, "Host2DeviceCopy", "enable_value_infer:b=1 dump_default_value:b=0 allow_cpu_mem_fwd:b=1"},
    {64, "Dimshuffle", "pattern:I=0 ndim:u=0"},
    {65, "AxisAddRemove", "desc:A=0"},
    {66, "IndexDescMaskDump", "items:X=0"},
    {67, "DType", "dtype:D=0"},
    {68, "Remap", "imode:u=1 border_type:u=0 format:u=1 scalar:f=0"},
    {69, "NMSKeep", "iou_thresh:f=0 max_output:u=0"},
    {70, "AdaptivePooling", "mode:u=0 format:u=0"},
    {71, "NvOf", "precision:u=1"},
    {72, "DctChannelSelect", "format:u=0 fastImpl:u=0 dct_block_size:i=8"},
    {73, "FakeQuant", "qmin:i=-2147483648 qmax:i=2147483647"},
    {74, "TQT", "qmin:i=-2147483648 qmax:i=2147483647"},
    {75, "Correlation",
     "format:u=0 kernel_size:u=1 max_displacement:u=1 stride1:u=1 stride2:u=1 pad_size:u=0 is_multiply:b=1"},
    {76, "LSQ", "qmin:i=-2147483648 qmax:i=2147483647"},
    {77, "GammaRNG", "seed:q=0"},
    {78, "PoissonRNG", "seed:q=0"},
    {79, "PermutationRNG", "seed:q=0 dtype:t=4"},
    {80, "BetaRNG", "seed:q=0"},
    {81, "SlidingWindowTranspose", "out_h:u=0 out_w:u=0 " MGE_CONV_FIELDS " window_h:u=3 window_w:u=3"},
    {82, "Padding",
     "front_offset_dim0:u=0 front_offset_dim1:u=0 front_offset_dim2:u=0 front_offset_dim3:u=0 front_offset_dim4:u=0 "
     "front_offset_dim5:u=0 front_offset_dim6:u=0 back_offset_dim0:u=0 back_offset_dim1:u=0 back_offset_dim2:u=0 "
     "back_offset_dim3:u=0 back_offset_dim4:u=0 back_offset_dim5:u=0 back_offset_dim6:u=0 padding_val:f=0 "
     "padding_mode:u=2"},
    {83, "ShuffleRNG", "seed:q=0"},
    {84, "CheckNonFinite", "scale:f=1"},
    {85, "LayerNorm", "affine:b=1 eps:f=1e-5 normalized_dim:q=1 normalized_size:q=1"},
    {86, "Dropout", "drop_prob:f=0 seed:q=0"},
    {87, "RNNCell", "nonlineMode:u=0"},
    {88, "RNN", "num_layers:u=1 bidirectional:b=0 bias:b=1 hidden_size:u=128 dropout:f=0 nonlineMode:u=0 fwd_mode:u=0"},
    {89, "LSTM", "num_layers:u=1 bidirectional:b=0 bias:b=1 hidden_size:u=128 proj_size:u=0 dropout:f=0 fwd_mode:u=0"},
    {90, "Softmax", "axis:i=-1"},
    {91, "Diag", "k:i=0"},
    {92, "GroupNorm", "affine:b=1 eps:f=1e-5 group:u=1 format:u=0"},
    {93, "Fill", "value:f=0"},
    {94, "GeneralNorm", "affine:b=1 eps:f=1e-5 axis_start:q=0 axis_end:q=0"},
    {95, "MultiHeadAttn",
     "num_heads:u=1 embeding_size:u=0 k_size:u=0 v_size:u=0 qproj_size:u=0 kproj_size:u=0 vproj_size:u=0 "
     "oproj_size:u=0 qbias:b=0 kbias:b=0 vbias:b=0 obias:b=0 sm_scaler:f=1 input_order:u=0 attn_mask_type:u=0 "
     "tensor_combination_type:u=0 add_zero_attn:b=0 need_weights:b=0 reslink:b=0 training:b=1 seed:q=0 attn_prob:f=0 "
     "out_prob:f=0"},
    {96, "Resize3D", "imode:u=1 format:u=1 align_corners:b=0"},
    {97, "Cross", "axisa:i=-1 axisb:i=-1 axisc:i=-1"},
    {98, "ExponentialRNG", "seed:q=0"},
    {99, "MultinomialRNG", "seed:q=0 num_samples:q=1 replacement:b=0"},
};

std::vector<ParamField> fields_of(std::string_view text) {
  std::vector<ParamField> out;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(' '));
    const size_t colon = one.find(':');
    double value = 0;
    std::from_chars(one.data() + colon + 3, one.data() + one.size(), value);
    out.push_back({one.substr(0, colon), static_cast<Slot>(one[colon + 1]), value});
    text.remove_prefix(std::min(text.size(), one.size() + 1));
  }
  return out;
}

const std::vector<ParamTable>& tables() {
  static const std::vector<ParamTable> all = [] {
    std::vector<ParamTable> out;
    for (const Row& r : kRows) out.push_back({r.number, r.name, fields_of(r.fields)});
    return out;
  }();
  return all;
}

// The place in the list is the number in the file. "-": we have no such type.
constexpr DType kNumbers[] = {DType::F32,  DType::U8,  DType::I8,  DType::I16, DType::I32,  DType::IB1,
                              DType::IB2,  DType::IB4, DType::U8,  DType::F16, DType::IB4,  DType::QU8,
                              DType::QI32, DType::QI8, DType::QU4, DType::QI4, DType::QI16, DType::BF16,
                              DType::Bool, DType::U16, DType::QI1, DType::C64};
constexpr int kByte = 8, kUintB4 = 10;  // untyped bytes; unsigned 4 bits, which we have as quantised alone

}  // namespace

const ParamTable* table_at(int number) {
  for (auto& t : tables())
    if (t.number == number) return &t;
  return nullptr;
}
const ParamTable& table_named(std::string_view name) {
  for (auto& t : tables())
    if (t.name == name) return t;
  fail(ErrorKind::Internal, "mgb: there is no parameter table '{}'", name);
}

int dtype_number(DType t) {
  for (int i = 0; i < static_cast<int>(std::size(kNumbers)); ++i)
    if (kNumbers[i] == t && i != kByte && i != kUintB4) return i;
  return -1;
}
bool dtype_from_number(int n, DType* out) {
  if (n < 0 || n >= static_cast<int>(std::size(kNumbers)) || n == kUintB4) return false;
  *out = kNumbers[n];
  return true;
}

uint64_t type_id(std::string_view name, bool versioned) {
  std::string text(name);
  if (versioned) {
    text.push_back('\0');
  } else if (text.size() > 2 && text[text.size() - 2] == 'V' && std::isdigit(static_cast<unsigned char>(text.back()))) {
    text.resize(text.size() - 2);
  }
  const uint64_t h = xxh64({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, 20160701);
  return h ? h : 1;
}

}  // namespace mge::serial::mgb
