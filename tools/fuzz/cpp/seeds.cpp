// Model files to begin with, and what is done to their bytes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/pool.h"
#include "fuzz.h"
#include "ir/text.h"
#include "lite/crypt/crypt.h"
#include "lite/engine.h"
#include "lite/load.h"
#include "serial/container.h"
#include "serial/model.h"
#include "serial/packed.h"
#include "serial/xxh64.h"

namespace fuzz {
namespace {

namespace serial = mge::serial;

// Many ops with many kinds of attributes, so that changed numbers reach their inference and their kernels.
constexpr const char* kText = R"(
graph g(%x: f32[2,3,6,6], %i: i32[4]) {
  const %w: f32[2,3,2,2] = 0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f0000803f0000003f
  const %c: f32[2] = 0000803f00000040
  %0 = conv2d %x, %w {stride=[2,1], pad=[1,0], dilate=[1,2]}
  %1 = avg_pool2d %0 {kernel=[2,2], stride=[1,1], pad=[1,1]}
  %2 = max_pool2d %x {kernel=[3,3], stride=[2,2], pad=[1,1]}
  %3 = reshape %2 {shape=[2,3,-1]}
  %4 = transpose %3 {perm=[0,2,1]}
  %5 = slice %4 {axes=[1,2], starts=[1,2], stops=[8,-1], steps=[3,-1]}
  %6 = broadcast_to %c {shape=[3,2]}
  %7 = concat %6, %6 {axis=1}
  %8 = softmax %7 {axis=1}
  %9 = expand_dims %8 {axes=[0,3]}
  %10 = squeeze %9 {axes=[0]}
  %11 = full {shape=[2,2], value=3.0}
  %12 = matmul %11, %11 {ta=true}
  %13 = mul %12, %c
  %14 = relu %13
  %15, %16, %17 = layer_norm %14
} returns(%1, %5, %10, %14)
)";

template <class T>
T load(const Bytes& b, size_t at) {
  T v;
  std::memcpy(&v, b.data() + at, sizeof v);
  return v;
}
template <class T>
void store(Bytes& b, size_t at, T v) {
  if (at <= b.size() && b.size() - at >= sizeof v) std::memcpy(b.data() + at, &v, sizeof v);
}

bool is_native(const Bytes& b) {
  return b.size() >= sizeof(serial::Header) && std::memcmp(b.data(), serial::kMagic, sizeof serial::kMagic) == 0;
}

/// Checksums that fit again, so that a change reaches the reader behind them.
void reseal(Bytes& b) {
  if (!is_native(b)) return;
  auto h = load<serial::Header>(b, 0);
  const size_t table = h.n_sections * sizeof(serial::Section);
  if (h.n_sections > 64 || sizeof h + table > b.size()) return;
  for (uint32_t i = 0; i < h.n_sections; ++i) {
    const size_t at = sizeof h + i * sizeof(serial::Section);
    auto s = load<serial::Section>(b, at);
    if (s.offset > b.size() || s.size > b.size() - s.offset) continue;
    s.checksum = serial::xxh64({b.data() + s.offset, s.size});
    store(b, at, s);
  }
  serial::Xxh64 sum;
  sum.update({b.data(), offsetof(serial::Header, checksum)});
  sum.update({b.data() + sizeof h, table});
  h.checksum = sum.digest();
  store(b, 0, h);
}

/// Where the graph lies, as opposed to weights, in which a change is only another number.
std::pair<size_t, size_t> graph_of(const Bytes& b) {
  if (is_native(b) && b.size() > sizeof(serial::Header) + sizeof(serial::Section)) {
    const auto s = load<serial::Section>(b, sizeof(serial::Header));
    if (s.size && s.offset < b.size() && s.size <= b.size() - s.offset) return {s.offset, s.offset + s.size};
  }
  return {0, b.size()};
}

/// What looks like FlatBuffers: tables begin with the way back to their vtable, whose first two words are small sizes.
struct Structure {
  std::vector<size_t> tables, offsets, lengths;
};
Structure find_structure(const Bytes& b, size_t from, size_t to) {
  Structure s;
  for (size_t at = (from + 3) / 4 * 4; at + 4 <= to; at += 4) {
    const int64_t vtable = static_cast<int64_t>(at) - load<int32_t>(b, at);
    const auto word = load<uint32_t>(b, at);
    if (vtable >= static_cast<int64_t>(from) && vtable + 4 <= static_cast<int64_t>(to) && vtable % 2 == 0) {
      const auto size = load<uint16_t>(b, static_cast<size_t>(vtable));
      const auto whole = load<uint16_t>(b, static_cast<size_t>(vtable) + 2);
      if (size >= 4 && size <= 256 && size % 2 == 0 && whole >= 4 && whole <= 512) s.tables.push_back(at);
    }
    if (word >= 4 && at + word + 4 <= to && word % 4 == 0) s.offsets.push_back(at);
    if (word > 0 && word <= 4096 && at + 4 + word <= to) s.lengths.push_back(at);
  }
  return s;
}

constexpr uint64_t kWords[] = {
    0,          1,          2,          3,          7,          8,          255,        256,           65535,
    65536,      0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc, 1ull << 31, 1ull << 32, 1ull << 40,    1ull << 62,
    1ull << 63, UINT64_MAX, 1 << 20,    0x7f800000, 0x7fc00000, 0xff800000, 0x3f800000, UINT64_MAX / 2};

void plain_edit(Bytes& b, size_t from, size_t to, Rng& rng) {
  const size_t at = from + rng.below(to - from);
  switch (rng.below(8)) {
    case 0:
    case 1:
      b[at] ^= static_cast<uint8_t>(1 << rng.below(8));
      break;
    case 2:
      b[at] = static_cast<uint8_t>(rng());
      break;
    case 3:
      b[at] = static_cast<uint8_t>(rng.below(12));
      break;
    case 4:
      store(b, at / 4 * 4, static_cast<uint32_t>(rng.in(kWords)));
      break;
    case 5:
      store(b, at / 8 * 8, rng.in(kWords));
      break;
    case 6:  // a length or an index that is wrong by a little
      if (at / 4 * 4 + 4 <= b.size())
        store(b, at / 4 * 4, load<uint32_t>(b, at / 4 * 4) + static_cast<uint32_t>(rng.below(9)) - 4);
      break;
    default: {  // some bytes from elsewhere
      const size_t other = from + rng.below(to - from), n = std::min({rng.below(64) + 1, to - at, to - other});
      std::memmove(b.data() + at, b.data() + other, n);
    }
  }
}

void table_edit(Bytes& b, const Structure& s, Rng& rng) {
  if (s.tables.empty() || s.offsets.empty()) return;
  const size_t table = rng.in(s.tables);
  const int64_t vtable = static_cast<int64_t>(table) - load<int32_t>(b, table);
  if (vtable < 0 || static_cast<size_t>(vtable) + 4 > b.size()) return;  // an edit before this one
  const auto v = static_cast<size_t>(vtable);
  const size_t fields = load<uint16_t>(b, v) / 2;
  const size_t entry = v + 2 * (2 + rng.below(std::max<size_t>(fields, 3) - 2));
  if (entry + 2 > b.size()) return;
  switch (rng.below(7)) {
    case 0:  // a field is absent
      store(b, entry, uint16_t{0});
      break;
    case 1:  // or is another one
      store(b, entry, static_cast<uint16_t>(4 + 4 * rng.below(12)));
      break;
    case 2:
      store(b, v + 2 * rng.below(2), static_cast<uint16_t>(rng.below(64)));
      break;
    case 3: {  // an offset leads to another table, list or text
      const size_t at = rng.in(s.offsets),
                   to = rng.one_in(3) ? rng.in(s.lengths.empty() ? s.offsets : s.lengths) : rng.in(s.tables);
      if (to > at) store(b, at, static_cast<uint32_t>(to - at));
      break;
    }
    case 4: {  // two fields change places
      const auto size = load<uint16_t>(b, v + 2);
      const size_t x = table + 4 * rng.below(size / 4 + 1), y = table + 4 * rng.below(size / 4 + 1);
      if (x + 4 > b.size() || y + 4 > b.size()) break;
      const auto word = load<uint32_t>(b, x);
      store(b, x, load<uint32_t>(b, y));
      store(b, y, word);
      break;
    }
    case 5:  // a scalar of it is something else
      store(b, table + 4 * (1 + rng.below(6)), static_cast<uint32_t>(rng.in(kWords)));
      break;
    default:
      if (!s.lengths.empty()) {
        const size_t at = rng.in(s.lengths);
        if (at + 4 <= b.size())
          store(b, at,
                rng.one_in(2) ? static_cast<uint32_t>(rng.in(kWords))
                              : load<uint32_t>(b, at) + static_cast<uint32_t>(rng.below(5)) - 2);
      }
  }
}

}  // namespace

Bytes mutate(const std::vector<Seed>& seeds, const Seed& seed, Rng& rng) {
  Bytes b = seed.bytes;
  if (b.empty()) return b;
  const auto [from, to] = graph_of(b);
  if (rng.one_in(16)) {  // nothing of the structure
    switch (rng.below(4)) {
      case 0:
        b.resize(rng.below(b.size()));
        break;
      case 1: {  // the beginning of one and the end of another
        const Bytes& other = seeds[rng.below(seeds.size())].bytes;
        const size_t cut = rng.below(b.size()), back = rng.below(other.size() + 1);
        b.resize(cut);
        b.insert(b.end(), other.end() - static_cast<std::ptrdiff_t>(back), other.end());
        break;
      }
      case 2: {
        const size_t at = rng.below(b.size()), n = std::min(rng.below(64) + 1, b.size() - at);
        b.erase(b.begin() + static_cast<std::ptrdiff_t>(at), b.begin() + static_cast<std::ptrdiff_t>(at + n));
        break;
      }
      default: {
        Bytes more(rng.below(64) + 1);
        for (auto& x : more) x = static_cast<uint8_t>(rng());
        b.insert(b.begin() + static_cast<std::ptrdiff_t>(rng.below(b.size())), more.begin(), more.end());
      }
    }
  } else {
    const bool tables = !rng.one_in(3);
    const Structure s = tables ? find_structure(b, from, to) : Structure();
    static constexpr size_t kEdits[] = {1, 1, 1, 1, 2, 2, 3, 6};
    for (size_t n = rng.in(kEdits); n > 0; --n) {
      if (tables && !rng.one_in(4))
        table_edit(b, s, rng);
      else
        plain_edit(b, from, to, rng);
    }
  }
  if (!rng.one_in(20)) reseal(b);
  if (!seed.cryption.empty() && !rng.one_in(8)) b = lite::encrypt(seed.cryption, b);
  return b;
}

void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

std::vector<Seed> load_seeds(const Options& opt) {
  std::vector<std::string> paths;
  for (const std::string& s : opt.seeds) {
    if (!std::filesystem::is_directory(s)) {
      paths.push_back(s);
      continue;
    }
    for (auto& e : std::filesystem::recursive_directory_iterator(s))
      if (e.path().extension() == ".mge" || e.path().extension() == ".lite") paths.push_back(e.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Seed> out{{"many ops", "", serial::write_model(mge::ir::parse(kText))}};
  for (const std::string& path : paths) {
    std::ifstream f(path, std::ios::binary);
    Seed s{std::filesystem::path(path).filename(), "", {std::istreambuf_iterator<char>(f), {}}};
    if (s.bytes.empty() || s.bytes.size() > 200'000) continue;
    // What is encrypted is changed inside, and encrypted again.
    for (auto& [part, method] : {std::pair(".aes.", "AES_default"), std::pair(".rc4.", "RC4_default"),
                                 std::pair(".sfrc4.", "SIMPLE_FAST_RC4_default")})
      if (s.name.find(part) != std::string::npos) {
        s.cryption = method;
        s.bytes = lite::decrypt(method, s.bytes, s.name);
      }
    const bool plain = s.cryption.empty() && !is_native(s.bytes) && !serial::is_packed(s.bytes);
    out.push_back(s);
    if (!plain) continue;
    try {
      const serial::LoadedModel m = serial::read_model(s.bytes, s.name, lite::read_options());
      out.push_back({s.name + " (native)", "", serial::write_model(m.graph, m.info)});
    } catch (const mge::Error&) {  // an operator that this build lacks
    }
  }
  if (out.size() < 2) finding("there are no files to begin with");
  return out;
}

}  // namespace fuzz
