#include "compat/names.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

// Only what differs from the rule: an elementwise op goes by its name in capitals, any other one in camel case.
// Several words are several ops of the original.
struct Row {
  std::string_view op, types;
};
constexpr Row kTypes[] = {
    // elementwise
    {"atan", "ATAN2"},
    {"div", "TRUE_DIV"},
    {"eq", "EQ"},
    {"hswish", "H_SWISH"},
    {"hswish_grad", "H_SWISH_GRAD"},
    {"le", "LEQ"},
    {"left_shift", "SHL"},
    {"logaddexp", "LOG_SUM_EXP"},
    {"logical_and", "AND"},
    {"logical_not", "NOT"},
    {"logical_or", "OR"},
    {"logical_xor", "XOR"},
    {"maximum", "MAX"},
    {"minimum", "MIN"},
    {"ne", "NEQ"},
    {"neg", "NEGATE"},
    {"relu_grad", "SWITCH_GT0"},
    {"right_shift", "SHR"},
    {"typecvt", "TypeCvt"},
    {"where", "SWITCH_GT0 SWITCH_GT0 ADD"},
    {"fake_quant", "FakeQuant"},
    {"tqt", "TQT"},
    {"lsq", "LSQ"},
    {"quantize", "TypeCvt"},
    {"dequantize", "TypeCvt"},
    {"copy", "Copy"},
    // the others
    {"avg_pool2d", "Pooling"},
    {"avg_pool2d_bwd", "PoolingBackward"},
    {"batch_norm_bwd", "BatchNormBackward"},
    {"batch_norm_infer", "BatchNorm"},
    {"batch_norm_train", "BatchNorm"},
    {"broadcast_to", "Broadcast"},
    {"conv2d", "Convolution"},
    {"conv2d_dw", "ConvolutionBackwardFilter"},
    {"conv2d_dx", "ConvolutionBackwardData"},
    {"conv2d_fused", "ConvBias"},
    {"conv3d", "Convolution3D"},
    {"conv3d_dw", "Convolution3DBackwardFilter"},
    {"conv3d_dx", "Convolution3DBackwardData"},
    {"copy_to", "Copy"},
    {"dist_all_reduce", "CollectiveComm"},
    {"expand_dims", "AddAxis"},
    {"flatten", "Reshape"},  // and what finds the sizes of the axes that stay
    {"full", "Fill"},
    {"gather", "Reshape Reshape Reshape IndexingMultiAxisVec Reshape"},
    {"index_get", "IndexingMultiAxisVec"},
    {"index_get_last", "IndexingMultiAxisVec"},
    {"index_incr", "IndexingIncrMultiAxisVec"},
    {"index_set", "IndexingSetMultiAxisVec"},
    {"indexing_one_hot", "IndexingOneHot RemoveAxis"},
    {"layer_norm_bwd", "LayerNormBackward"},
    {"logsoftmax", "Reduce SUB EXP Reduce LOG ADD SUB"},
    {"matinv", "MatrixInverse"},
    {"max_pool2d", "Pooling"},
    {"max_pool2d_bwd", "PoolingBackward"},
    {"nms", "NMSKeep"},
    {"nonzero", "NonZero"},
    {"qconv2d", "ConvBias"},
    {"qconv2d_dx", "ConvolutionBackwardData"},
    {"qmatmul", "MatrixMul"},
    {"resize_bwd", "ResizeBackward"},
    {"rng_gamma", "GammaRNG"},
    {"rng_multinomial", "MultinomialRNG"},
    {"rng_normal", "GaussianRNG"},
    {"rng_permutation", "PermutationRNG"},
    {"rng_poisson", "PoissonRNG"},
    {"rng_uniform", "UniformRNG"},
    {"roi_align", "ROIAlign"},
    {"roi_pooling", "ROIPooling"},
    {"set_one_hot", "IndexingSetOneHot"},
    {"set_slice", "SetSubtensor"},
    {"shape_of", "GetVarShape"},
    {"slice", "Subtensor"},
    {"softmax_bwd", "SoftmaxBackward"},
    {"softmax_xent", "Reduce RemoveAxis SUB EXP Reduce Reduce LOG ADD IndexingOneHot RemoveAxis SUB"},
    {"sort", "Argsort"},
    {"squeeze", "RemoveAxis"},
    {"sum_to", "Reduce"},
    {"svd", "SVD"},
    {"take", "IndexingMultiAxisVec"},
    {"topk", "TopK"},
    {"transpose", "Dimshuffle"},
};

std::string by_rule(const OpDef& op) {
  std::string s;
  if (op.traits & kElementwise) {
    for (char c : op.name) s += static_cast<char>(toupper(static_cast<unsigned char>(c)));
    return s;
  }
  bool up = true;
  for (char c : op.name) {
    if (c != '_') s += up ? static_cast<char>(toupper(static_cast<unsigned char>(c))) : c;
    up = c == '_';
  }
  return s;
}

std::vector<std::string> words(std::string_view s) {
  std::vector<std::string> out;
  while (!s.empty()) {
    const size_t end = std::min(s.find(' '), s.size());
    out.emplace_back(s.substr(0, end));
    s.remove_prefix(std::min(end + 1, s.size()));
  }
  return out;
}

}  // namespace

std::vector<std::string> opr_types(const OpDef& op, const AttrsBase* attrs, std::span<const Meta* const> in) {
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Row& r) { return r.op == op.name; });
  std::vector<std::string> types = row == std::end(kTypes) ? std::vector{by_rule(op)} : words(row->types);
  // What one op of ours does in one go, the original does in steps.
  if (op.name == "reduce") {
    const auto& at = attrs_as<ReduceAttrs>(attrs);
    if (!at.axes.empty() && !at.keepdims) types.emplace_back("Reduce");
  } else if (op.name == "argmax" || op.name == "argmin") {
    if (!attrs_as<ArgReduceAttrs>(attrs).keepdims) types.emplace_back("RemoveAxis");
  } else if (op.name == "conv2d" || op.name == "conv3d") {
    if (in.size() == 3) types.emplace_back("ADD");
  } else if (op.name == "matmul") {
    types = {in[0]->shape.rank > 2 && in[1]->shape.rank > 2 ? "BatchedMatrixMul" : "MatrixMul"};
    if (in[0]->shape.rank == 1 && in[1]->shape.rank == 1) types = {"Dot"};
    if (in.size() == 3) types.emplace_back("ADD");
  } else if (op.name == "flatten") {
    const auto& at = attrs_as<RangeAttrs>(attrs);
    const int64_t rank = in[0]->shape.rank, end = at.end < 0 ? at.end + rank : at.end;
    const int64_t kept = at.start + (rank - 1 - end);
    if (kept > 0) {
      types = {"GetVarShape"};
      types.insert(types.end(), static_cast<size_t>(kept), "Subtensor");
      types.emplace_back("Concat");
      types.emplace_back("Reshape");
    }
  }
  return types;
}

std::string result_suffix(const OpDef& op, const AttrsBase* attrs, size_t index) {
  if (op.name == "batch_norm_infer") return ":o5";
  if (op.name == "dropout" && index == 0) return {};
  const bool several = op.n_out(attrs) > 1 || op.name == "layer_norm";
  return several ? ":o" + std::to_string(index) : std::string();
}

}  // namespace mge::compat
