#include "serial/packed.h"

#include <cstring>

#include "base/error.h"
#include "serial/packed_generated.h"

namespace mge::serial {
namespace {

constexpr std::string_view kPackedMagic = "packed_model";

std::string text(const flatbuffers::String* s, const char* otherwise) { return s ? s->str() : otherwise; }
std::vector<uint8_t> bytes(const flatbuffers::Vector<uint8_t>* v) {
  return v ? std::vector<uint8_t>(v->begin(), v->end()) : std::vector<uint8_t>();
}

}  // namespace

bool is_packed(Bytes file) {
  return file.size() >= kPackedMagic.size() && std::memcmp(file.data(), kPackedMagic.data(), kPackedMagic.size()) == 0;
}

PackedModel unpack(Bytes file, const std::string& who) {
  const Bytes body = file.subspan(kPackedMagic.size());
  std::vector<uint64_t> aligned(body.size() / 8 + 1);  // the buffer begins at byte 12 of the file, and holds words
  if (!body.empty()) std::memcpy(aligned.data(), body.data(), body.size());
  flatbuffers::Verifier v(reinterpret_cast<const uint8_t*>(aligned.data()), body.size(), /*max_depth=*/8,
                          /*max_tables=*/64);
  if (body.size() >= FLATBUFFERS_MAX_BUFFER_SIZE || !v.VerifyBuffer<packed::PackModel>(nullptr))
    MGE_FAIL_ENV("{}: damaged: what follows 'packed_model' is not well formed; copy the file again.", who);
  const auto* models = flatbuffers::GetRoot<packed::PackModel>(aligned.data())->models();
  const size_t n = models ? models->size() : 0;
  if (n != 1) MGE_FAIL_ENV("{}: holds {} packed models; exactly one is read. Pack them one by one.", who, n);
  const packed::Model& m = *models->Get(0);
  if (!m.data() || !m.data()->data()) MGE_FAIL_ENV("{}: damaged: the pack has no model in it.", who);
  PackedModel out;
  if (const auto* h = m.header()) {
    out.name = text(h->name(), "");
    out.info_decryption = text(h->info_decryption_method(), "NONE");
    out.info_parser = text(h->info_parse_method(), "LITE_default");
    out.model_decryption = text(h->model_decryption_method(), "NONE");
    out.cache_parser = text(h->info_cache_parse_method(), "LITE_parse_cache");
    out.fast_run_cache = h->is_fast_run_cache();
  }
  if (const auto* i = m.info()) {
    out.info = bytes(i->data());
    out.algo_policy = bytes(i->algo_policy());
    out.binary_cache = bytes(i->binary_cache());
  }
  out.model = bytes(m.data()->data());
  return out;
}

std::vector<uint8_t> pack(const PackedModel& p) {
  const size_t total = p.model.size() + p.info.size() + p.algo_policy.size() + p.binary_cache.size();
  MGE_CHECK(total < FLATBUFFERS_MAX_BUFFER_SIZE - (1 << 16), Value,
            "pack: {} bytes of data; a packed model holds less than 2 GiB.", total);
  flatbuffers::FlatBufferBuilder b(total + 1024);
  auto list = [&](const std::vector<uint8_t>& v) {
    return v.empty() ? flatbuffers::Offset<flatbuffers::Vector<uint8_t>>() : b.CreateVector(v);
  };
  const auto header = packed::CreateModelHeader(b, b.CreateString(p.name), b.CreateString(p.info_decryption),
                                                b.CreateString(p.info_parser), b.CreateString(p.model_decryption),
                                                b.CreateString(p.cache_parser), p.fast_run_cache);
  const auto info = packed::CreateModelInfo(b, list(p.info), list(p.algo_policy), list(p.binary_cache));
  const auto data = packed::CreateModelData(b, b.CreateVector(p.model));
  const auto model = packed::CreateModel(b, header, info, data);
  b.Finish(packed::CreatePackModel(b, b.CreateVector(&model, 1)));
  std::vector<uint8_t> out(kPackedMagic.size() + b.GetSize());
  std::memcpy(out.data(), kPackedMagic.data(), kPackedMagic.size());
  std::memcpy(out.data() + kPackedMagic.size(), b.GetBufferPointer(), b.GetSize());
  return out;
}

}  // namespace mge::serial
