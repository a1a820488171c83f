// Fast-run caches of Lite: a file that holds, by category, keys and values of the fastest kernels. The form is that of
// the original; ours is one category, and those of others are kept when a file is written again.
//   u32 categories; each: u32 length, name, u32 entries; each: u32 length, key, u32 length, value
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lite {

using CacheEntries = std::vector<std::pair<std::string, std::string>>;
using AlgoCache = std::map<std::string, CacheEntries>;  // by category

/// Env error that starts with `who` for bytes that are no such file.
AlgoCache parse_cache(std::span<const uint8_t> bytes, const std::string& who);
std::string write_cache(const AlgoCache& cache);
/// The entries of both; `b` wins.
AlgoCache merge_caches(AlgoCache a, const AlgoCache& b);

/// Winners in the file are known from now on; those of other programs are counted in the log.
void install_cache(const AlgoCache& cache, const std::string& who);

/// What set_persistent_cache and dump_persistent_cache do.
void open_cache_file(const std::string& path, bool always_sync);
void write_cache_file(const std::string& path);
/// After kernels were measured: with always_sync the file is written again when there is something new.
void sync_cache_file();

}  // namespace lite
