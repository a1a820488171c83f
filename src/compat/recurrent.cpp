// Recurrent cells and layers, attention. Where dropout draws, the state of a generator is the last input.
#include "op/recurrence/recurrence.h"

#include <cmath>
#include <limits>

#include "compat/emit.h"
#include "compat/enums.h"
#include "op/loss/softmax.h"
#include "op/matmul/matmul.h"
#include "op/rng/rng.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(CellMode, "RNN", "NonlineMode", IDENTITY, RELU, TANH)
MGE_COMPAT_ENUM(MaskType, "MultiHeadAttn", "AttnMaskType", NO_MASK, DEFAULT_MASK, CUDNN_STYLE_MASK, USER_DEFINED_MASK)
MGE_COMPAT_ENUM(Combination, "MultiHeadAttn", "TensorCombinationType", NONE, ONLY_MASK, ONLY_BIASKV, ALL)

struct RnnCell {
  CellMode nonlineMode = CellMode::IDENTITY;
  static constexpr auto fields() { return field_list("nonlineMode", &RnnCell::nonlineMode); }
};
struct Layers {
  int64_t num_layers = 1;
  bool bidirectional = false, bias = true;
  int64_t hidden_size = 128;
  double dropout = 0;
  FwdMode fwd_mode = FwdMode::TRAINING;
};
struct Rnn : Layers {
  CellMode nonlineMode = CellMode::IDENTITY;
  static constexpr auto fields() {
    using P = Layers;
    return field_list("num_layers", &P::num_layers, "bidirectional", &P::bidirectional, "bias", &P::bias, "hidden_size",
                      &P::hidden_size, "dropout", &P::dropout, "nonlineMode", &Rnn::nonlineMode, "fwd_mode",
                      &P::fwd_mode);
  }
};
struct Lstm : Layers {
  int64_t proj_size = 0;
  static constexpr auto fields() {
    using P = Layers;
    return field_list("num_layers", &P::num_layers, "bidirectional", &P::bidirectional, "bias", &P::bias, "hidden_size",
                      &P::hidden_size, "proj_size", &Lstm::proj_size, "dropout", &P::dropout, "fwd_mode", &P::fwd_mode);
  }
};
struct Attention {
  int64_t num_heads = 1, embeding_size = 0, k_size = 0, v_size = 0;
  int64_t qproj_size = 0, kproj_size = 0, vproj_size = 0, oproj_size = 0;
  bool qbias = false, kbias = false, vbias = false, obias = false;
  double sm_scaler = 1;
  int64_t input_order = 0;
  MaskType attn_mask_type = MaskType::NO_MASK;
  Combination tensor_combination_type = Combination::NONE;
  bool add_zero_attn = false, need_weights = false, reslink = false, training = true;
  uint64_t seed = 0;
  double attn_prob = 0, out_prob = 0;
  uint64_t handle = 0;
  static constexpr auto fields() {
    using P = Attention;
    return field_list("num_heads", &P::num_heads, "embeding_size", &P::embeding_size, "k_size", &P::k_size, "v_size",
                      &P::v_size, "qproj_size", &P::qproj_size, "kproj_size", &P::kproj_size, "vproj_size",
                      &P::vproj_size, "oproj_size", &P::oproj_size, "qbias", &P::qbias, "kbias", &P::kbias, "vbias",
                      &P::vbias, "obias", &P::obias, "sm_scaler", &P::sm_scaler, "input_order", &P::input_order,
                      "attn_mask_type", &P::attn_mask_type, "tensor_combination_type", &P::tensor_combination_type,
                      "add_zero_attn", &P::add_zero_attn, "need_weights", &P::need_weights, "reslink", &P::reslink,
                      "training", &P::training, "seed", &P::seed, "attn_prob", &P::attn_prob, "out_prob", &P::out_prob,
                      "handle", &P::handle);
  }
};

/// x W^T + b
Val linear(const Val& x, const Val& w, const Val& b = {}) {
  const Attrs at = make_attrs(MatmulAttrs{false, true});
  return b ? x.em->emit1("matmul", {x, w, b}, at) : x.em->emit1("matmul", {x, w}, at);
}

/// Draws while training; the state moves on with each draw.
class Dropper {
 public:
  Dropper(const char* who, const Val& state, bool training) : who_(who), state_(state), training_(training) {}
  Val operator()(const Val& x, double p) {
    if (!training_ || p == 0) return x;
    MGE_CHECK(0 <= p && p < 1, Assertion, "{}: the probability of dropout must be at least 0 and below 1; got {}.",
              who_, p);
    MGE_CHECK(state_, Value, "{}: dropout while training needs the state of a generator.", who_);
    const Val in[] = {x, state_};
    const Out r = emit_all(*x.em, "dropout", in, make_attrs(DropoutAttrs{p}));
    state_ = r[2];
    return r[0];
  }
  const Val& state() const { return state_; }

 private:
  const char* who_;
  Val state_;
  bool training_;
};

/// Cuts a flat tensor of weights from the front.
class Packed {
 public:
  Packed(const char* who, const Val& all) : who_(who), flat_(shaped(all, {-1})) {}
  Val take(const Shape& s) {
    const int64_t n = s.numel(), held = flat_.shape()[0];
    MGE_CHECK(at_ + n <= held, Value, "{}: the weights hold {} numbers, fewer than are needed.", who_, held);
    at_ += n;
    return reshape(slice(flat_, 0, at_ - n, at_), s);
  }

 private:
  const char* who_;
  Val flat_;
  int64_t at_ = 0;
};

// x, w_ih, b_ih, h, w_hh, b_hh
Val gates_of(In in) { return linear(in[0], in[1], in[2]) + linear(in[3], in[4], in[5]); }

void rnn_cell(Emitter&, const RnnCell& p, In in, Out& out) {
  const Val y = gates_of(in);
  out.push_back(p.nonlineMode == CellMode::RELU   ? unary("relu", y)
                : p.nonlineMode == CellMode::TANH ? unary("tanh", y)
                                                  : y);
}
void lstm_cell(Emitter&, const None&, In in, Out& out) {
  const Val gates = gates_of(in);
  const int64_t n = dim(gates, 1) / 4;
  MGE_CHECK(now(gates)[1] == 4 * n, Value, "LSTMCell: the weights must give 4 gates; got {}.", gates.shape().str());
  auto gate = [&](int64_t i) { return slice(gates, 1, i * n, (i + 1) * n); };
  const Val c = unary("sigmoid", gate(1)) * in[6] + unary("sigmoid", gate(0)) * unary("tanh", gate(2));
  out = {unary("sigmoid", gate(3)) * unary("tanh", c), c, gates};
}

/// The state after the last step.
Val final_of(const Val& states) { return squeeze(emit("slice", {states}, SliceAttrs{{0}, {-1}, {0}, {0}, true}), {0}); }

// x [L,N,in], states [layers * directions, N, hidden], packed: by layer and direction W_ih, W_hh[, b_ih, b_hh].
void run_layers(const char* who, const Layers& p, const char* mode, int64_t chunks, const Val& input, In states,
                const Val& packed, const Val& generator, Out& out) {
  MGE_CHECK(input.rank() == 3, Value, "{}: the input needs 3 dimensions (L, N, E); got {}.", who, input.shape().str());
  Packed weights(who, packed);
  Dropper drop(who, generator, p.fwd_mode == FwdMode::TRAINING);
  const int64_t gates = chunks * p.hidden_size;
  Val x = input;
  std::vector<Out> last(states.size());
  for (int64_t layer = 0, row = 0; layer < p.num_layers; ++layer) {
    if (layer) x = drop(x, p.dropout);
    Out outputs;
    for (int direction = 0; direction < (p.bidirectional ? 2 : 1); ++direction, ++row) {
      const Val w_ih = weights.take(Shape{gates, dim(x, 2)}), w_hh = weights.take(Shape{gates, p.hidden_size});
      Val bias;
      if (p.bias) {
        const Val b_ih = weights.take(Shape{gates});
        bias = b_ih + weights.take(Shape{gates});
      }
      Out args{linear(x, w_ih, bias), w_hh};
      for (auto& s : states) args.push_back(pick(s, 0, row));
      const Out r = emit_all(*x.em, "recurrence", args, make_attrs(RecurrenceAttrs{mode, direction == 1}));
      for (size_t i = 0; i < states.size(); ++i) last[i].push_back(direction ? pick(r[i], 0, 0) : final_of(r[i]));
      outputs.push_back(r[0]);
    }
    x = concat(outputs, 2);
  }
  out.push_back(x);
  for (auto& part : last) out.push_back(stack(part, 0));
  out.push_back(nothing(input));
  out.push_back(drop.state());
}

void rnn(Emitter&, const Rnn& p, In in, Out& out) {
  MGE_CHECK(p.nonlineMode != CellMode::IDENTITY, NotImplemented,
            "RNN: nonlineMode must be TANH or RELU; got IDENTITY.");
  run_layers("RNN", p, p.nonlineMode == CellMode::TANH ? "tanh" : "relu", 1, in[0], in.subspan(1, 1), in[2], in[3],
             out);
}
void lstm(Emitter&, const Lstm& p, In in, Out& out) {
  MGE_CHECK(p.proj_size == 0, NotImplemented, "LSTM: proj_size {} is not there; only 0 is.", p.proj_size);
  run_layers("LSTM", p, "lstm", 4, in[0], in.subspan(1, 2), in[3], in[4], out);
}

/// (N, L, E) to (N, heads, L, E / heads)
Val heads(const Val& x, int64_t n) {
  const int64_t width = dim(x, 2);
  MGE_CHECK(n > 0 && width % n == 0, Value, "MultiHeadAttn: {} does not fall into {} heads.", now(x).str(), n);
  return transpose(shaped_as(x, {{x, 0}, {x, 1}, n, width / n}), {0, 2, 1, 3});
}

// Outputs: the result, the attention weights (N * heads, L, S), and two empty tensors where the original keeps notes.
void attention(Emitter&, const Attention& p, In all, Out& out) {
  const char* who = "MultiHeadAttn";
  In in = all.subspan(0, all.size() - 1);
  MGE_CHECK(p.tensor_combination_type <= Combination::ONLY_MASK && !p.add_zero_attn && !p.reslink && !p.input_order,
            NotImplemented, "{}: takes no bias_k, bias_v, add_zero_attn, reslink or input_order.", who);
  for (size_t i = 0; i < 3; ++i)
    MGE_CHECK(in[i].rank() == 3, Value, "{}: query, key and value need 3 dimensions (N, L, E); got {}.", who,
              now(in[i]).str());
  const int64_t sizes[] = {p.qproj_size, p.kproj_size, p.vproj_size, p.oproj_size};
  const bool with_bias[] = {p.qbias, p.kbias, p.vbias, p.obias};
  const int64_t inputs[] = {dim(in[0], 2), dim(in[1], 2), dim(in[2], 2), sizes[2] ? sizes[2] : dim(in[2], 2)};
  Packed packed(who, in[3]);
  Val weights[4], biases[4];
  for (int i = 0; i < 4; ++i)
    if (sizes[i]) weights[i] = packed.take(Shape{inputs[i], sizes[i]});
  for (int i = 0; i < 4; ++i)
    if (sizes[i] && with_bias[i]) biases[i] = packed.take(Shape{sizes[i]});
  auto project = [&](const Val& x, int i) {
    const Val y = weights[i] ? matmul(x, weights[i], false, false) : x;
    return biases[i] ? y + biases[i] : y;
  };
  Dropper drop(who, all.back(), p.training);
  const Val q = heads(project(in[0], 0), p.num_heads), k = heads(project(in[1], 1), p.num_heads),
            v = heads(project(in[2], 2), p.num_heads);
  const SizePart n{q, 0}, length{q, 2}, source{k, 2};
  Val scores = matmul(q * p.sm_scaler, k, false, true);
  if (p.attn_mask_type != MaskType::NO_MASK) {
    Val mask;
    if (in.size() > 4) {
      mask = in[4];
      if (mask.dtype() == DType::Bool)
        mask = select(mask, mask.em->constant(-std::numeric_limits<double>::infinity(), DType::F32, mask),
                      mask.em->constant(0, DType::F32, mask));
    } else {  // a position sees itself and what came before
      const Val later = less(expand(iota(q, size_at(q, 2)), {1}), iota(q, size_at(k, 2)));
      mask = select(later, q.em->constant(-std::numeric_limits<double>::infinity(), DType::F32, q),
                    q.em->constant(0, DType::F32, q));
    }
    scores = scores + (mask.rank() == 3 ? shaped_as(mask, {n, p.num_heads, length, source})
                                        : shaped_as(mask, {1, 1, length, source}));
  }
  const Val seen = emit("softmax", {scores}, SoftmaxAttrs{3});
  const Val mixed = transpose(matmul(drop(seen, p.attn_prob), v, false, false), {0, 2, 1, 3});
  out.push_back(drop(project(shaped_as(mixed, {n, length, -1}), 3), p.out_prob));
  out.push_back(shaped_as(seen, {-1, length, source}));
  out.push_back(nothing(in[0]));
  out.push_back(nothing(in[0]));
  out.push_back(drop.state());
}

}  // namespace

void add_recurrent(Table& t) {
  t.add<RnnCell, rnn_cell>("RNNCell", {6, 6}, "RNNCellForward@1");
  t.add<None, lstm_cell>("LSTMCell", {7, 7}, "LSTMCellForward@1");
  t.add<Rnn, rnn>("RNN", {3, 3}, "RNNForward@1", Effect::Generator);
  t.leave_uncast();
  t.add<Lstm, lstm>("LSTM", {4, 4}, "LSTMForward@1", Effect::Generator);
  t.leave_uncast();
  t.add<Attention, attention>("MultiHeadAttn", {4, 5}, "MultiHeadAttn@1", Effect::Generator);
}

}  // namespace mge::compat
