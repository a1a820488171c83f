// Slices, integer arrays and their outer products. `items` name the axes; what they flag follows as tensors.
#include <algorithm>

#include "compat/emit.h"
#include "op/index/multi_index.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

struct Items {
  Rows items;  // axis, has begin, has end, has step, has index
  static constexpr auto fields() { return field_list("items", &Items::items); }
};
struct SubtensorParams {
  Rows items, slice_items;  // begin, end, step, index as numbers; INT_MIN or INT_MAX: given as a tensor
  static constexpr auto fields() {
    return field_list("items", &SubtensorParams::items, "slice_items", &SubtensorParams::slice_items);
  }
};

/// x[key] in two steps: a slice that also drops the axes of single numbers, then the arrays along `axes` of that.
struct Key {
  const char* who;
  Shape whole;
  SliceAttrs slice;
  SliceAttrs any;                     // the same as Python writes it, for any sizes
  std::vector<SizeOperand> operands;  // bounds of `any` that may be others later
  std::vector<Val> bounds;            // what they are
  Ints dropped;                       // axes of single numbers
  Shape region;                       // sliced, with the dropped axes as 1
  Shape sliced;                       // without them
  Out arrays;                         // int32
  Ints axes;                          // of `sliced`
  int64_t at = 0;                     // where the index dimensions go
  Ints named;                         // the axis of the whole tensor that each array names
};

/// A bound: the number now, and the value where it may be another one later.
struct Bound {
  int64_t now;
  Val operand;
  bool guessed = false;  // nothing is known of it before the graph runs
};
struct Bounds {
  std::optional<Bound> begin, end, step;
};

/// What Python's slice.indices gives: start, length, step.
std::tuple<int64_t, int64_t, int64_t> resolved(const char* who, const Bounds& b, int64_t size) {
  const int64_t step = b.step ? b.step->now : 1;
  MGE_CHECK(step != 0, Value, "{}: a slice step cannot be 0.", who);
  const int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? size : size - 1;
  auto inside = [&](int64_t v) { return std::clamp(v < 0 && v != -SliceAttrs::kOpen ? v + size : v, lo, hi); };
  const int64_t begin = b.begin ? inside(b.begin->now) : step > 0 ? lo : hi;
  const int64_t end = b.end ? inside(b.end->now) : step > 0 ? hi : lo;
  const int64_t length = step > 0 ? (end - begin + step - 1) / step : (begin - end - step - 1) / -step;
  return {begin, std::max<int64_t>(length, 0), step};
}

/// A single number where a tensor has one element; `scalars`: also when it has the shape [1].
bool is_number(const Val& v, bool scalars) {
  return v.rank() == 0 || (scalars && v.rank() == 1 && now(v)[0] == 1 && dim(v, 0) == 1);
}

class KeyReader {
 public:
  KeyReader(const char* who, const Val& x, In values, bool scalars) : values_(values), scalars_(scalars) {
    key_.who = who;
    key_.whole = now(x);
    key_.any.python = true;
    entries_.resize(x.rank());
  }

  void item(const Ints& row, const Ints* fixed) {
    MGE_CHECK(row.size() == 5, Value, "{}: an item is (axis, begin, end, step, index); got {} numbers.", key_.who,
              row.size());
    Entry& e = entries_[static_cast<size_t>(normalize_axis(key_.who, row[0], key_.whole.rank))];
    std::optional<Bound>* const got[] = {&e.bounds.begin, &e.bounds.end, &e.bounds.step};
    for (size_t i = 0; i < 3; ++i)
      if (row[i + 1]) *got[i] = number(fixed ? &(*fixed)[i] : nullptr, "a bound of a slice");
    MGE_CHECK(!e.bounds.step || !e.bounds.step->operand, NotImplemented, "{}: the step of a slice must be a constant.",
              key_.who);
    const bool down = e.bounds.step && e.bounds.step->now < 0;
    if (e.bounds.begin && e.bounds.begin->guessed) e.bounds.begin->now = down ? SliceAttrs::kOpen : 0;
    if (e.bounds.end && e.bounds.end->guessed) e.bounds.end->now = down ? -SliceAttrs::kOpen : SliceAttrs::kOpen;
    if (!row[4]) return;
    if (fixed && (*fixed)[3] != kIntMax && (*fixed)[3] != INT32_MIN) {
      e.index = Bound{(*fixed)[3], {}};
    } else if (const Val v = next(); is_number(v, scalars_)) {
      if (is_known(v))
        e.index = number_of(v, "an index");
      else
        e.array = shaped(v, {});  // drops the axis as a number does
    } else {
      MGE_CHECK(is_int(v.dtype()), Type, "{}: an index must be of integers; got {}.", key_.who, v.meta().str());
      e.array = v;
    }
  }

  Key finish() {
    MGE_CHECK(used_ == values_.size(), Value, "{}: the items ask for {} tensors; got {}.", key_.who, used_,
              values_.size());
    key_.region = key_.whole;
    int runs = 0, results = 0;
    bool inside = false;
    for (int axis = 0; axis < key_.whole.rank; ++axis) {
      const Entry& e = entries_[static_cast<size_t>(axis)];
      const bool picks = e.index || e.array;
      if (picks && !inside && ++runs == 1) key_.at = results;
      inside = picks;
      if (e.index) {
        drop(axis, *e.index);
        continue;
      }
      if (e.array) {
        key_.named.push_back(axis);
        key_.axes.push_back(key_.sliced.rank);
        key_.arrays.push_back(cast(e.array, DType::I32));
      } else {
        cut(axis, e.bounds);
        ++results;
      }
      key_.sliced.push_back(key_.region[axis]);
    }
    if (runs > 1) key_.at = 0;
    return std::move(key_);
  }

 private:
  struct Entry {
    Bounds bounds;
    std::optional<Bound> index;
    Val array;
  };

  const Val& next() {
    MGE_CHECK(used_ < values_.size(), Value, "{}: the items ask for more than the {} tensors given.", key_.who,
              values_.size());
    return values_[used_++];
  }
  Bound number_of(const Val& v, const char* what) {
    if (is_int(v.dtype()) && !is_known(v)) {
      MGE_CHECK(now(v).numel() == 1, Value, "{}: {} must be one number; got {}.", key_.who, what, v.meta().str());
      return {0, v.em->size_value(cast(v, DType::I32), 0).operand, true};
    }
    const SizeValues s = sizes_of(key_.who, what, v);
    MGE_CHECK(s.now.size() == 1, Value, "{}: {} must be one number; got {}.", key_.who, what, v.meta().str());
    return {s.now[0], s.operand};
  }
  Bound number(const int64_t* fixed, const char* what) {
    if (fixed && *fixed != kIntMax && *fixed != INT32_MIN) return {*fixed, {}};
    return number_of(next(), what);
  }
  /// Part of the slice as Python writes it.
  void add_any(Ints SliceAttrs::*part, const char* field, const Bound& b) {
    (key_.any.*part).push_back(std::clamp(b.now, -SliceAttrs::kOpen, SliceAttrs::kOpen));
    if (!b.operand) return;
    key_.operands.push_back(
        {field_index<SliceAttrs>(field), static_cast<int>((key_.any.*part).size()) - 1, b.operand.p});
    key_.bounds.push_back(b.operand);
  }
  static bool is_known(const Val& v) { return v.em->size_values(v) || v.em->known(v); }
  void add(int axis, int64_t start, int64_t stop, int64_t step) {
    key_.slice.axes.push_back(axis);
    key_.slice.starts.push_back(start);
    key_.slice.stops.push_back(stop);
    key_.slice.steps.push_back(step);
  }
  void drop(int axis, const Bound& at) {
    const int64_t size = key_.whole[axis];
    int64_t i = at.now;
    MGE_CHECK(-size <= i && i < size, Index, "{}: index {} is out of bounds for axis {} with size {}.", key_.who, i,
              axis, size);
    if (i < 0) i += size;
    add(axis, i, i + 1, 1);
    key_.region[axis] = 1;
    key_.dropped.push_back(axis);
    key_.any.axes.push_back(axis);
    add_any(&SliceAttrs::starts, "starts", at);
    add_any(&SliceAttrs::stops, "stops", {0, {}});
    add_any(&SliceAttrs::steps, "steps", {0, {}});
  }
  void cut(int axis, const Bounds& b) {
    const int64_t size = key_.whole[axis];
    auto [start, length, step] = resolved(key_.who, b, size);
    if (b.begin || b.end || b.step) {
      const int64_t open = SliceAttrs::kOpen;
      key_.any.axes.push_back(axis);
      add_any(&SliceAttrs::starts, "starts", b.begin.value_or(Bound{step > 0 ? 0 : open, {}}));
      add_any(&SliceAttrs::stops, "stops", b.end.value_or(Bound{step > 0 ? open : -open, {}}));
      add_any(&SliceAttrs::steps, "steps", {step, {}});
    }
    if (start == 0 && length == size && step == 1) return;
    add(axis, start, start + length * step, step);
    key_.region[axis] = length;
  }

  In values_;
  bool scalars_;
  size_t used_ = 0;
  std::vector<Entry> entries_;
  Key key_;
};

Key read_key(const char* who, const Rows& items, const Val& x, In values, bool scalars, const Rows* fixed = nullptr) {
  KeyReader r(who, x, values, scalars);
  for (size_t i = 0; i < items.size(); ++i) r.item(items[i], fixed ? &(*fixed)[i] : nullptr);
  return r.finish();
}

Val sliced(const Key& k, const Val& x) {
  if (x.em->any_size(x) || !k.operands.empty()) {
    if (k.any.axes.empty()) return x;
    const Val y = x.em->emit1("slice", {x}, make_attrs(k.any, k.operands));
    return k.dropped.empty() ? y : squeeze(y, k.dropped);
  }
  return k.slice.axes.empty() ? x : reshape(emit("slice", {x}, k.slice), k.sliced);
}

Val get(const Key& k, const Val& x) {
  const Val y = sliced(k, x);
  if (k.arrays.empty()) return x.p == y.p ? unary("copy", x) : y;
  if (k.arrays.size() == 1 && k.axes[0] == k.at) return take(y, k.arrays[0], k.at);
  return index_get(y, k.arrays, k.axes, k.at);
}

/// `value` broadcast to the region; leading axes of size 1 more than that are dropped, as NumPy does.
Val fitted(const char* who, const Val& value, const Sizes& region) {
  if (region.operand() || value.em->any_size(value)) {
    Ints lead;
    for (int i = 0; i < value.rank() - region.rank; ++i) lead.push_back(i);
    return broadcast_to(lead.empty() ? value : squeeze(value, lead), region);
  }
  Shape s = value.shape();
  while (s.rank > region.rank && s[0] == 1) s.erase(0);
  bool fits = s.rank <= region.rank;
  for (int i = 0; fits && i < s.rank; ++i) {
    const int64_t n = s[s.rank - 1 - i];
    fits = n == 1 || n == region[region.rank - 1 - i];
  }
  MGE_CHECK(fits, Value, "{}: cannot copy tensor with shape {} to the indexed region of shape {}.", who,
            value.shape().str(), region.now().str());
  return broadcast_to(reshape(value, s), region);
}

/// x with the region of the slice replaced by `y`, which has the sliced shape.
Val put_back(const Key& k, const Val& x, const Val& y) {
  if (x.em->any_size(x) || !k.operands.empty()) {
    if (k.any.axes.empty()) return y;
    return x.em->emit1("set_slice", {x, k.dropped.empty() ? y : expand(y, k.dropped)}, make_attrs(k.any, k.operands));
  }
  return k.slice.axes.empty() ? y : emit("set_slice", {x, reshape(y, k.region)}, k.slice);
}

/// op: index_set or index_incr.
Val put(const char* op, const Key& k, const Val& x, const Val& value) {
  const bool add = std::string_view(op) == "index_incr";
  const Val given = cast(value, x.dtype()), y = sliced(k, x);
  if (k.arrays.empty()) {
    const Val v = fitted(k.who, given, y.sizes());
    return put_back(k, x, add ? y + v : v);
  }
  Val v;
  if (x.em->any_size(y) || std::ranges::any_of(k.arrays, [&](const Val& a) { return x.em->any_size(a); })) {
    v = fitted(k.who, given, index_get(x.em->detached(y), k.arrays, k.axes, k.at).sizes());  // only its sizes are used
  } else {
    Shape region;
    for (int i = 0; i < k.sliced.rank; ++i)
      if (std::find(k.axes.begin(), k.axes.end(), i) == k.axes.end()) region.push_back(k.sliced[i]);
    Shape index = k.arrays[0].shape();
    for (auto& a : k.arrays) index = broadcast_shapes(k.who, index, a.shape());
    for (int i = 0; i < index.rank; ++i) region.insert(static_cast<int>(k.at) + i, index[i]);
    v = fitted(k.who, given, region);
    if (region.numel() == 0) return unary("copy", x);
  }
  Out in{y, v};
  in.insert(in.end(), k.arrays.begin(), k.arrays.end());
  return put_back(k, x, emit_all(*x.em, op, in, make_attrs(MultiIndexAttrs{k.axes, k.at}))[0]);
}

void subtensor(Emitter&, const SubtensorParams& p, In in, Out& out) {
  const bool fixed = !p.slice_items.empty();
  if (fixed) {
    MGE_CHECK(p.slice_items.size() == p.items.size(), Value, "Subtensor: {} items but {} slice_items.", p.items.size(),
              p.slice_items.size());
    for (auto& row : p.slice_items)
      MGE_CHECK(row.size() == 4, Value, "Subtensor: a slice item is (begin, end, step, index); got {} numbers.",
                row.size());
  }
  const Key k = read_key("Subtensor", p.items, in[0], in.subspan(1), true, fixed ? &p.slice_items : nullptr);
  out.push_back(get(k, in[0]));
}
void set_subtensor(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(put("index_set", read_key("SetSubtensor", p.items, in[0], in.subspan(2), true), in[0], in[1]));
}
void incr_subtensor(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(put("index_incr", read_key("IncrSubtensor", p.items, in[0], in.subspan(2), true), in[0], in[1]));
}
void get_vec(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(get(read_key("IndexingMultiAxisVec", p.items, in[0], in.subspan(1), false), in[0]));
}
void set_vec(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(
      put("index_set", read_key("IndexingSetMultiAxisVec", p.items, in[0], in.subspan(2), false), in[0], in[1]));
}
void incr_vec(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(
      put("index_incr", read_key("IndexingIncrMultiAxisVec", p.items, in[0], in.subspan(2), false), in[0], in[1]));
}

// ---- outer products: each axis has its own list of positions, or with Batched each image its own row of them

/// y[b, .., j, ..] = x[b, .., index[b, j], ..]
Val take_rows(const Val& x, const Val& index, int64_t axis) {
  const Val at[] = {expand(iota(x, size_at(x, 0)), {1}), index};
  const Val y = index_get(x, at, {0, axis}, 0);
  Ints perm{0};
  for (int64_t i = 2; i <= axis; ++i) perm.push_back(i);
  perm.push_back(1);
  for (int64_t i = axis + 1; i < y.rank(); ++i) perm.push_back(i);
  return transpose(y, perm);
}

Val mesh(const char* who, bool batched, const Rows& items, const Val& x, In values) {
  const Key k = read_key(who, items, x, values, false);
  for (auto& row : items)
    MGE_CHECK(!batched || normalize_axis(who, row[0], x.rank()) != 0, Value,
              "{}: axis 0 counts the images and cannot be indexed.", who);
  Val y = sliced(k, x);
  for (size_t i = 0; i < k.arrays.size(); ++i) {
    MGE_CHECK(k.arrays[i].rank() == (batched ? 2 : 1), Value, "{}: positions along axis {} need {}; got shape {}.", who,
              k.named[i], batched ? "a row for each image" : "one dimension", k.arrays[i].shape().str());
    y = batched ? take_rows(y, k.arrays[i], k.axes[i]) : take(y, k.arrays[i], k.axes[i]);
  }
  return y;
}

/// The positions in the flat tensor are what the same index picks from a table of them.
Val mesh_put(const char* who, bool batched, const char* op, const Items& p, In in) {
  const Val &x = in[0], &value = in[1];
  const Val whole = shaped(x, {-1}), numbers = reshape(iota(x, size_at(whole, 0)), x.sizes());
  const Val places = mesh(who, batched, p.items, numbers, in.subspan(2));
  const Val flat = shaped(fitted(who, cast(value, x.dtype()), places.sizes()), {-1});
  const Val args[] = {whole, flat, shaped(places, {-1})};
  return reshape(emit_all(*x.em, op, args, make_attrs(MultiIndexAttrs{{0}, 0}))[0], x.sizes());
}

void mesh_get(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(mesh("MeshIndexing", false, p.items, in[0], in.subspan(1)));
}
void batched_mesh_get(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(mesh("BatchedMeshIndexing", true, p.items, in[0], in.subspan(1)));
}
void mesh_set(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(mesh_put("SetMeshIndexing", false, "index_set", p, in));
}
void mesh_incr(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(mesh_put("IncrMeshIndexing", false, "index_incr", p, in));
}
void batched_mesh_set(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(mesh_put("BatchedSetMeshIndexing", true, "index_set", p, in));
}
void batched_mesh_incr(Emitter&, const Items& p, In in, Out& out) {
  out.push_back(mesh_put("BatchedIncrMeshIndexing", true, "index_incr", p, in));
}

}  // namespace

void add_indexing(Table& t) {
  t.add<SubtensorParams, subtensor>("Subtensor", {1, -1}, "Subtensor@1");
  t.add<Items, set_subtensor>("SetSubtensor", {2, -1}, "SetSubtensor@1");
  t.add<Items, incr_subtensor>("IncrSubtensor", {2, -1}, "IncrSubtensor@1");
  t.add<Items, get_vec>("IndexingMultiAxisVec", {1, -1}, "IndexingMultiAxisVec@1");
  t.add<Items, set_vec>("IndexingSetMultiAxisVec", {2, -1}, "IndexingSetMultiAxisVec@1");
  t.add<Items, incr_vec>("IndexingIncrMultiAxisVec", {2, -1}, "IndexingIncrMultiAxisVec@1");
  t.add<Items, mesh_get>("MeshIndexing", {1, -1}, "MeshIndexing@1");
  t.add<Items, mesh_set>("SetMeshIndexing", {2, -1}, "SetMeshIndexing@1");
  t.add<Items, mesh_incr>("IncrMeshIndexing", {2, -1}, "IncrMeshIndexing@1");
  t.add<Items, batched_mesh_get>("BatchedMeshIndexing", {1, -1}, "BatchedMeshIndexing@1");
  t.add<Items, batched_mesh_set>("BatchedSetMeshIndexing", {2, -1}, "BatchedSetMeshIndexing@1");
  t.add<Items, batched_mesh_incr>("BatchedIncrMeshIndexing", {2, -1}, "BatchedIncrMeshIndexing@1");
}

}  // namespace mge::compat
