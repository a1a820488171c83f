// Tensors made from sizes and numbers.
#include <array>

#include "compat/emit.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

struct Fill {
  double value = 0;
  TypeParam dtype;
  NodeParam comp_node;
  static constexpr auto fields() {
    return field_list("value", &Fill::value, "dtype", &Fill::dtype, "comp_node", &Fill::comp_node);
  }
};
struct FillLike {
  double value = 0;
  NodeParam comp_node;
  static constexpr auto fields() { return field_list("value", &FillLike::value, "comp_node", &FillLike::comp_node); }
};
struct Linspace {
  bool endpoint = true;
  NodeParam comp_node;
  static constexpr auto fields() {
    return field_list("endpoint", &Linspace::endpoint, "comp_node", &Linspace::comp_node);
  }
};
struct Eye {
  int64_t k = 0;
  TypeParam dtype{DType::F32, {}};
  NodeParam comp_node;
  static constexpr auto fields() {
    return field_list("k", &Eye::k, "dtype", &Eye::dtype, "comp_node", &Eye::comp_node);
  }
};
struct Diagonal {
  int64_t k = 0;
  static constexpr auto fields() { return field_list("k", &Diagonal::k); }
};
struct MeshGrid {
  std::string indexing = "xy";
  static constexpr auto fields() { return field_list("indexing", &MeshGrid::indexing); }
};
struct AllocParams {
  TypeParam dtype{DType::U8, {}};
  static constexpr auto fields() { return field_list("dtype", &AllocParams::dtype); }
};

/// One number in the shape that an operand says.
Val filled_as(const char* who, const Val& number, const Val& shape) {
  const SizeValues s = sizes_of(who, "the shape", shape);
  check_shape(who, to_shape(s.now));
  return emit_sized("broadcast_to", {number}, ShapeAttrs{s.now}, "shape", s);
}

void fill(Emitter& em, const Fill& p, In in, Out& out) {
  const Val one = moved(em.constant(p.value, p.dtype.dtype.value_or(DType::F32), in[0]), p.comp_node);
  out.push_back(filled_as("Fill", one, in[0]));
}
void fill_like(Emitter&, const FillLike& p, In in, Out& out) {
  out.push_back(moved(emit("fill_like", {in[0]}, ValueAttrs{p.value}), p.comp_node));
}
// Memory whose content is not defined; zeros are as good as anything.
void alloc(Emitter& em, const AllocParams& p, In in, Out& out) {
  out.push_back(filled_as("Alloc", em.constant(0, *p.dtype.dtype, in[0]), in[0]));
}

/// As many as a size says: computed in double precision, as the table of a fixed number is.
Val linspace_any(const Linspace& p, const SizeValue& n, const Val& from, const Val& to) {
  const Val start = cast(from, DType::F64), stop = cast(to, DType::F64), steps = iota(from, n);
  const Val gaps = binary("maximum", p.endpoint ? n.operand - 1.0 : n.operand, scalar_like(n.operand, 1));
  const Val y = cast(steps, DType::F64) * ((stop - start) / cast(gaps, DType::F64)) + start;
  return cast(p.endpoint ? select(binary("eq", steps, gaps), stop, y) : y, DType::F32);
}

void linspace(Emitter& em, const Linspace& p, In in, Out& out) {
  const SizeValues count = sizes_of("Linspace", "the number of elements", in[2]);
  MGE_CHECK(count.now.size() == 1, Value, "Linspace: the number of elements must be one number; got {}.",
            in[2].meta().str());
  const int64_t n = count.now[0];
  MGE_CHECK(n >= 0, Value, "Linspace: the number of elements must be at least 0; got {}.", n);
  const bool ends_vary = em.size_values(cast(in[0], DType::I32)).value_or(SizeValues{}).operand ||
                         em.size_values(cast(in[1], DType::I32)).value_or(SizeValues{}).operand;
  if (count.operand || ends_vary) {
    SizeValue size = size_at(count, 0);
    if (!size.operand) size.operand = int_table(in[0], std::array{n}, Shape{1});
    return out.push_back(moved(linspace_any(p, size, in[0], in[1]), p.comp_node));
  }
  const double start = known_number("Linspace", "the start", in[0]), stop = known_number("Linspace", "the end", in[1]);
  const int64_t gaps = p.endpoint ? n - 1 : n;
  const double step = gaps > 0 ? (stop - start) / static_cast<double>(gaps) : 0;
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(p.endpoint && i && i == n - 1 ? stop : start + step * static_cast<double>(i));
  out.push_back(moved(float_table(in[0], v, Shape{n}), p.comp_node));
}

void eye(Emitter&, const Eye& p, In in, Out& out) {
  const SizeValues s = sizes_of("Eye", "the shape", in[0]);
  MGE_CHECK(s.now.size() == 1 || s.now.size() == 2, Value, "Eye: needs one or two sizes; got {}.", s.now.size());
  check_shape("Eye", Shape{s.now[0], s.now.back()});
  // 1 where column - row is k.
  const Val rows = expand(iota(in[0], size_at(s, 0)), {1}), cols = iota(in[0], size_at(s, s.now.size() - 1));
  const Val distance = cols - rows;
  const Val one = binary("eq", distance, scalar_like(distance, static_cast<double>(p.k)));
  out.push_back(moved(converted(one, p.dtype), p.comp_node));
}

// A vector becomes the k-th diagonal of a matrix, a matrix gives its k-th diagonal.
void diagonal(Emitter&, const Diagonal& p, In in, Out& out) {
  const Val x = in[0].rank() ? in[0] : shaped(in[0], {1});
  const Shape s = now(x);
  const int64_t down = std::max<int64_t>(-p.k, 0), right = std::max<int64_t>(p.k, 0);
  MGE_CHECK(s.rank == 1 || s.rank == 2, Value, "Diag: needs a vector or a matrix; got shape {}.", s.str());
  if (s.rank == 2) {
    const SizeValue rows = size_at(x, 0), columns = size_at(x, 1);
    SizeValue n{std::max<int64_t>(std::min(rows.now - down, columns.now - right), 0), {}};
    if (rows.operand || columns.operand) {
      const Val most = binary("minimum", size_value(x, rows) - static_cast<double>(down),
                              size_value(x, columns) - static_cast<double>(right));
      n.operand = binary("maximum", most, scalar_like(most, 0));
    }
    const Val i = iota(x, n);
    const Val at = (i + static_cast<double>(down)) * size_value(x, columns) + (i + static_cast<double>(right));
    return out.push_back(take(shaped(x, {-1}), at, 0));
  }
  const SizeValue n = size_at(x, 0);
  SizeValue side{n.now + std::abs(p.k), {}};
  if (n.operand) side.operand = n.operand + static_cast<double>(std::abs(p.k));
  const Val rows = expand(iota(x, side), {1}), distance = iota(x, side) - rows;
  const Val on = binary("eq", distance, scalar_like(distance, static_cast<double>(p.k)));
  const Val both[] = {x, filled(x, Shape{1}, 0, x.dtype())};  // element n is a 0 put behind x
  out.push_back(take(concat(both, 0), select(on, rows - static_cast<double>(down), size_value(x, n)), 0));
}

void mesh_grid(Emitter&, const MeshGrid& p, In in, Out& out) {
  MGE_CHECK(p.indexing == "xy" || p.indexing == "ij", Value, "MeshGrid: indexing must be xy or ij; got '{}'.",
            p.indexing);
  const int n = static_cast<int>(in.size());
  auto axis = [&](int i) { return p.indexing == "xy" && n >= 2 && i < 2 ? 1 - i : i; };
  std::vector<SizePart> parts(static_cast<size_t>(n), SizePart(1));
  for (int i = 0; i < n; ++i) {
    const Val& x = in[static_cast<size_t>(i)];
    MGE_CHECK(x.rank() == 1, Value, "MeshGrid: needs vectors; got shape {}.", now(x).str());
    parts[static_cast<size_t>(axis(i))] = SizePart(x, 0);
  }
  const SizeValues whole = joined(parts);
  for (int i = 0; i < n; ++i) {
    Ints others;
    for (int at = 0; at < n; ++at)
      if (at != axis(i)) others.push_back(at);
    const Val line = others.empty() ? in[0] : expand(in[static_cast<size_t>(i)], others);
    out.push_back(broadcast_as(line, whole));
  }
}

}  // namespace

void add_making(Table& t) {
  t.add<Fill, fill>("Fill", {1, 1});
  t.add<FillLike, fill_like>("FillLike", {1, 1});
  t.add<Linspace, linspace>("Linspace", {3, 3}, "Linspace@1");
  t.add<Eye, eye>("Eye", {1, 1}, "Eye@1");
  t.add<Diagonal, diagonal>("Diag", {1, 1}, "Diag@1");
  t.add<MeshGrid, mesh_grid>("MeshGrid", {1, -1});
  t.add_file_type<AllocParams, alloc>("Alloc", {1, 1}, "Alloc@1");
}

}  // namespace mge::compat
