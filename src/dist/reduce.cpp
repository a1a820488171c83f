#include "dist/reduce.h"

#include <type_traits>

#include "base/error.h"
#include "core/half.h"

namespace mge::dist {
namespace {

constexpr const char* kModes[] = {"none", "sum", "prod", "max", "min"};

// Integers wrap around, as those of the kernels do.
template <class T>
struct Word {
  using type = T;
};
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) struct Word<T> {
  using type = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;
};

template <Mode M, class T>
T apply(T a, T b) {
  using W = typename Word<T>::type;
  if constexpr (M == Mode::Sum) return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  if constexpr (M == Mode::Prod) return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  if constexpr (M == Mode::Max) return a > b || a != a ? a : b;  // NaN on either side is NaN
  if constexpr (M == Mode::Min) return a < b || a != a ? a : b;
}

template <Mode M, class T>
void combine(char* out, const char* a, const char* b, size_t bytes) {
  auto* o = reinterpret_cast<T*>(out);
  auto *x = reinterpret_cast<const T*>(a), *y = reinterpret_cast<const T*>(b);
  for (size_t i = 0, n = bytes / sizeof(T); i < n; ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>)
      o[i] = T(apply<M>(static_cast<float>(x[i]), static_cast<float>(y[i])));
    else
      o[i] = apply<M>(x[i], y[i]);
  }
}

template <Mode M>
Combine of_type(DType t) {
  switch (t) {
    case DType::U8:
      return combine<M, uint8_t>;
    case DType::I8:
      return combine<M, int8_t>;
    case DType::U16:
      return combine<M, uint16_t>;
    case DType::I16:
      return combine<M, int16_t>;
    case DType::I32:
      return combine<M, int32_t>;
    case DType::I64:
      return combine<M, int64_t>;
    case DType::F16:
      return combine<M, Half>;
    case DType::BF16:
      return combine<M, BFloat>;
    case DType::F32:
      return combine<M, float>;
    case DType::F64:
      return combine<M, double>;
    default:
      break;
  }
  if constexpr (M == Mode::Max || M == Mode::Min)
    if (t == DType::Bool) return combine<M, uint8_t>;  // any, all
  fail(ErrorKind::NotImplemented, "reduction: no {} of {}.", mode_name(M), dtype_name(t));
}

}  // namespace

Mode parse_mode(std::string_view name) {
  for (uint32_t i = 1; i < std::size(kModes); ++i)
    if (name == kModes[i]) return static_cast<Mode>(i);
  fail(ErrorKind::Value, "reduction: mode must be sum, prod, max or min; got '{}'.", name);
}
const char* mode_name(Mode m) {
  return static_cast<uint32_t>(m) < std::size(kModes) ? kModes[static_cast<uint32_t>(m)] : "?";
}

Combine combine_of(Mode m, DType t) {
  switch (m) {
    case Mode::Sum:
      return of_type<Mode::Sum>(t);
    case Mode::Prod:
      return of_type<Mode::Prod>(t);
    case Mode::Max:
      return of_type<Mode::Max>(t);
    case Mode::Min:
      return of_type<Mode::Min>(t);
    default:
      return nullptr;
  }
}

}  // namespace mge::dist
