// The first format: values before the graph, operators named by hashes, vars numbered by counting outputs.
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "serial/mgb/decode_impl.h"

namespace mge::serial::mgb {
namespace {

// Every name that version 1 registers: a hash says nothing, so an error about an operator we lack needs its name.
constexpr std::string_view kNames =
    "AdaptivePoolingV1 AdaptivePoolingBackwardV1 AddUpdate AffineInt Alloc Argmax Argmin Argsort ArgsortBackward "
    "AssertEqual AtlasRuntimeOpr AxisAddRemove BatchConvBiasForwardV1 BatchNormV1 BatchNormBackwardV1 "
    "BatchedMatrixMulV2 MeshIndexing IncrMeshIndexing SetMeshIndexing BatchedMeshIndexing BatchedIncrMeshIndexing "
    "BatchedSetMeshIndexing BetaRNG Broadcast CambriconRuntimeOpr CheckNonFinite Concat CondExecMark "
    "CondExecMarkIfNeed CondExecMerge CondExecPred CondExecPredLogical CondTake ConvBiasForwardV4 Convolution3D "
    "Convolution3DBackwardData Convolution3DBackwardFilter ConvolutionV2 ConvolutionBackwardDataV2 "
    "ConvolutionBackwardFilterV2 Copy CorrelationForward CorrelationBackwardData1 CorrelationBackwardData2 Cross "
    "CumsumV1 CvtColor DctChannelSelectV1 DeformableConvForwardV1 DeformableConvBackwardDataV1 "
    "DeformableConvBackwardFilterV1 DeformablePSROIPoolingForward DeformablePSROIPoolingBackward Diag DiagBackward "
    "Dimshuffle Dot Dropout DropoutBackward Elemwise ElemwiseMultiType ExponentialRNG ExternCOprRunner Eye FakeQuant "
    "FakeQuantBackward Flip GammaRNG GaussianBlur GaussianRNGV1 GeneralNorm GeneralNormBackward GetVarShapeV1 "
    "GroupLocalV2 GroupLocalBackwardDataV2 GroupLocalBackwardFilterV2 GroupNorm GroupNormBackward Host2DeviceCopy "
    "Identity Images2Neibs Images2NeibsBackward ImmutableTensor IncrSubtensor SetSubtensor Subtensor "
    "IndexingMultiAxisVec IndexingSetMultiAxisVec IndexingIncrMultiAxisVec IndexingOneHot IndexingSetOneHot "
    "IndexingRemap IndexingRemapBackward InstanceNorm InstanceNormBackward LRN LRNBackward LSQ LSQBackward "
    "LSTMCellForward LSTMForward LSTMBackward LayerNorm LayerNormBackward Linspace LocalV2 LocalBackwardDataV2 "
    "LocalBackwardFilterV2 LocalShareForwardV1 LocalShareBackwardDataV1 LocalShareBackwardFilterV1 MagicMindRuntimeOpr "
    "MarkDynamicVar MarkNoBroadcastElemwise MaskConvolutionV2 MaskPropagate MaskedFill MatrixInverse MatrixMulV2 "
    "MultiHeadAttn MultiHeadAttnBackward MultinomialRNG MultipleDeviceTensorHolder "
    "MultipleDeviceTensorWithFormatHolder NMSKeepMGB NonZero NvOf Padding PaddingBackward PermutationRNG "
    "PersistentOutputStorage PoissonRNG PoolingV1 PoolingBackwardV1 PowC RNNCellForward RNNForward RNNBackward "
    "ROIAlignV1 ROIAlignBackwardV1 ROIPooling ROIPoolingBackward ReduceV2 RegionRestrictedConvolution "
    "RegionRestrictedConvolutionBackwardData RegionRestrictedConvolutionBackwardFilter RelayoutFormatV1 RemapV1 "
    "RemapBackwardDataV1 RemapBackwardMatV1 ReshapeV1 Resize3D ResizeV2 ResizeBackward Rotate SVD SharedDeviceTensor "
    "SharedDeviceTensorWithFormat ShuffleRNG ShuffleRNGBackward Sleep SlidingWindowTranspose "
    "SlidingWindowTransposeBackward Softmax SoftmaxBackward Split TQT TQTBackward TensorRTRuntimeOpr TopK TypeCvtV2 "
    "UniformRNGV1 VirtualDep VirtualGrad VolatileSharedDeviceTensor WarpAffineV2 WarpPerspectiveV2 "
    "WarpPerspectiveBackwardDataV2 WarpPerspectiveBackwardMatV2 Where WhereBackward CustomOpNode dynamic";

const std::string_view* name_of(uint64_t id, bool versioned) {
  static const auto all = [] {
    std::unordered_map<uint64_t, std::string_view> out[2];
    for (std::string_view rest = kNames; !rest.empty();) {
      const std::string_view one = rest.substr(0, rest.find(' '));
      for (bool v : {false, true}) out[v].emplace(type_id(one, v), one);
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    }
    return std::pair(std::move(out[0]), std::move(out[1]));
  }();
  const auto& map = versioned ? all.second : all.first;
  auto at = map.find(id);
  return at == map.end() ? nullptr : &at->second;
}

int64_t number(const Opr& o, std::string_view field) {
  for (auto& p : o.params)
    for (auto& f : p.fields)
      if (f.name == field)
        if (auto* v = std::get_if<int64_t>(&f.value)) return *v;
  return 0;
}

struct Outputs {
  std::string_view name;
  size_t count;
};
constexpr Outputs kSeveral[] = {
    {"BatchNormBackwardV1", 3},
    {"Argsort", 2},
    {"CondTake", 2},
    {"LayerNorm", 3},
    {"GeneralNorm", 3},
    {"GroupNorm", 3},
    {"InstanceNorm", 3},
    {"LayerNormBackward", 3},
    {"GeneralNormBackward", 3},
    {"GroupNormBackward", 3},
    {"InstanceNormBackward", 3},
    {"Dropout", 2},
    {"ShuffleRNG", 2},
    {"SVD", 3},
    {"ROIPooling", 2},
    {"ROIAlignV1", 2},
    {"DeformablePSROIPoolingForward", 2},
    {"DeformablePSROIPoolingBackward", 2},
    {"DeformableConvBackwardDataV1", 3},
    {"TQTBackward", 2},
    {"LSQBackward", 2},
    {"WhereBackward", 2},
    {"LSTMCellForward", 3},
    {"RNNForward", 3},
    {"LSTMForward", 4},
    {"RNNBackward", 3},
    {"LSTMBackward", 4},
    {"MultiHeadAttn", 4},
    {"MultiHeadAttnBackward", 6},
    {"NMSKeepMGB", 2},
};

/// How many vars an operator makes: its outputs without workspaces.
size_t output_count(const Opr& o) {
  const std::string_view t = o.type;
  if (t == "BatchNormV1") return number(o, "fwd_mode") == 0 && o.inputs.size() == 5 ? 6 : 4;
  if (t == "TopK") return number(o, "mode") == 0 ? 1 : 2;
  if (t == "CheckNonFinite") return o.inputs.size() + 1;
  if (t == "Split" || t == "CondExecMark" || t == "CondExecMarkIfNeed") return o.inputs.size() - !o.inputs.empty();
  if (t == "MultipleDeviceTensorHolder" || t == "MultipleDeviceTensorWithFormatHolder") return o.tensors.size();
  if (t == "CondExecMerge") return static_cast<size_t>(number(o, "nr_output"));
  for (auto& s : kSeveral)
    if (s.name == t) return s.count;
  return 1;
}

std::string text(const flatbuffers::String* s) { return s ? s->str() : std::string(); }

/// Where the next value lies, and where they end.
struct Values {
  Bytes bytes;
  size_t at = 0;
};

void read_tensor(const Span& s, const v1::Tensor& f, Values* values, Tensor* t) {
  t->name = text(f.name());
  if (f.comp_node()) t->comp_node = text(f.comp_node()->logical_locator());
  if (!f.dtype()) s.damaged("a tensor without dtype");
  t->meta = read_meta(s, f.shape(), f.dtype());
  const size_t rest = values->bytes.size() - values->at;
  if (rest < f.offset() || rest - f.offset() < f.data_size())
    s.damaged(format("tensor '{}' {} lies behind the last value", t->name, t->meta.str()));
  values->at += f.offset();
  t->has_data = f.data_size() > 0 || stored_bytes(t->meta) == 0;
  t->data = values->bytes.subspan(values->at, f.data_size());
  if (f.data_size()) t->data = value_bytes(s, t->meta, t->data);
  values->at += f.data_size();
}

/// TensorFormat in a blob: u32 kind; then align_axis, or bits and alignment.
void read_layout(const Span& s, Bytes blob, Tensor* t) {
  if (blob.size() < 4) s.damaged("a tensor format is cut off");
  uint32_t kind;
  std::memcpy(&kind, blob.data(), 4);
  if (kind > 2) s.damaged(format("a tensor of format {}", kind));
  t->layout = static_cast<Layout>(kind + 1);
  for (size_t i = 0; i < 2 && 4 + i < blob.size(); ++i) t->layout_args[i] = blob[4 + i];
}

void read_opr(const Span& s, const v1::Operator& f, bool versioned, Values* values, Opr* o, std::vector<VarInfo>* vars,
              size_t* total) {
  const std::string_view* name = name_of(f.type_id(), versioned);
  o->type = name ? std::string(*name) : format("type id {:016x}", f.type_id());
  o->name = text(f.name());
  o->priority = f.priority();
  if (f.param_type()) o->params.push_back(read_param(s, f.param_type(), f.param()));
  const size_t extra = f.additional_params_type() ? f.additional_params_type()->size() : 0;
  if (extra != (f.additional_params() ? f.additional_params()->size() : 0)) s.damaged("parameters without their kinds");
  count_entries(s, total, extra);
  for (uint32_t i = 0; i < extra; ++i)
    o->params.push_back(read_param(s, f.additional_params_type()->Get(i), f.additional_params()->Get(i)));
  count_entries(s, total, f.inputs() ? f.inputs()->size() : 0);
  if (f.inputs()) o->inputs.assign(f.inputs()->begin(), f.inputs()->end());
  for (uint32_t v : o->inputs)
    if (v >= vars->size()) s.damaged(format("{} '{}' reads var {}, which is not there yet", o->type, o->name, v));
  if (f.comp_node() && f.comp_node()->size()) o->comp_node = text(f.comp_node()->Get(0)->logical_locator());
  o->output_dtype = read_type(s, f.output_dtype());
  count_entries(s, total, (f.tensors() ? f.tensors()->size() : 0) + (f.blobs() ? f.blobs()->size() : 0));
  for (uint32_t i = 0; f.tensors() && i < f.tensors()->size(); ++i)
    read_tensor(s, *f.tensors()->Get(i), values, &o->tensors.emplace_back());
  for (uint32_t i = 0; f.blobs() && i < f.blobs()->size(); ++i) {
    auto* d = f.blobs()->Get(i)->data();
    o->blobs.push_back(d ? Bytes(d->data(), d->size()) : Bytes());
  }
  const size_t first = o->type == "MultipleDeviceTensorWithFormatHolder" ? 1 : 0;  // the first blob counts the tensors
  if (o->type.ends_with("WithFormatHolder") || o->type == "SharedDeviceTensorWithFormat")
    for (size_t i = 0; i < o->tensors.size() && first + i < o->blobs.size(); ++i)
      read_layout(s, o->blobs[first + i], &o->tensors[i]);
  for (auto& t : o->tensors)
    if (t.has_data && t.layout == Layout::Default && t.data.size() != stored_bytes(t.meta))
      s.damaged(format("tensor '{}' {} has {} bytes", t.name, t.meta.str(), t.data.size()));
  const size_t n = output_count(*o);
  count_entries(s, total, n);
  for (size_t i = 0; i < n; ++i) {
    o->outputs.push_back(static_cast<uint32_t>(vars->size()));
    vars->emplace_back();
    if (f.output_name() && i < f.output_name()->size())
      vars->back().name = text(f.output_name()->Get(static_cast<uint32_t>(i)));
  }
}

}  // namespace

File decode1(Decoded& owner, Bytes* bytes, const Damage& damaged) {
  const bool versioned = (*bytes)[3] == 'C';
  const size_t header = versioned ? 24 : 16;
  if (bytes->size() < header) damaged("cut off inside of the header");
  uint64_t skip;
  std::memcpy(&skip, bytes->data() + header - 8, 8);
  const Bytes rest = bytes->subspan(header);
  if (skip > rest.size() || rest.size() - skip < 4)
    damaged(format("cut off: the graph begins {} bytes behind a header that {} follow", skip, rest.size()));
  const Bytes values = rest.first(skip);
  uint32_t size;
  std::memcpy(&size, rest.data() + skip, 4);
  if (size > rest.size() - skip - 4)
    damaged(format("cut off: {} of {} bytes of the graph are there", rest.size() - skip - 4, size));
  const Bytes graph = owner.aligned(rest.subspan(skip, size_t{size} + 4));
  *bytes = rest.subspan(skip + size + 4);
  if (graph.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) damaged(format("a graph of {} bytes", graph.size()));

  flatbuffers::Verifier v(graph.data(), graph.size(), 16, 10'000'000);
  if (!v1::VerifySizePrefixedGraphBuffer(v)) damaged("the graph does not verify");
  const v1::Graph& f = *v1::GetSizePrefixedGraph(graph.data());
  const Span s{reinterpret_cast<const char*>(graph.data()), reinterpret_cast<const char*>(graph.data() + graph.size()),
               damaged, &owner};
  File out;
  out.format = 1;
  out.versioned_ids = versioned;
  out.version = f.mgb_version();
  out.hash = f.hash();
  Values at{values, 0};
  size_t total = 0;
  for (uint32_t i = 0; f.oprs() && i < f.oprs()->size(); ++i)
    read_opr(s, *f.oprs()->Get(i), versioned, &at, &out.oprs.emplace_back(), &out.vars, &total);
  for (uint32_t i = 0; f.output_vars_idx() && i < f.output_vars_idx()->size(); ++i) {
    auto& o = *f.output_vars_idx()->Get(i);
    if (o.compact_id() >= out.vars.size())
      damaged(format("output {} is var {} of {}", i, o.compact_id(), out.vars.size()));
    out.outputs.push_back({o.compact_id(), o.original_id(), {}});
  }
  if (auto* m = f.metadata()) {
    out.has_metadata = m->is_valid();
    out.graph_modified = m->graph_modified();
    out.user_info = text(m->user_info());
    out.optimize_options = m->optimize_options();
  }
  return out;
}

}  // namespace mge::serial::mgb
