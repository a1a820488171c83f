# Run by mge_embed (room.cmake) with cmake -P: writes to OUT the function mge::cuda::headers(), the headers that texts of
# kernels include, each by its name. The raw strings end in )mge".
file(STRINGS "${LIST}" files)
set(rows "")
foreach(file IN LISTS files)
  file(READ "${ROOT}/${file}" text)
  if(file MATCHES "^kernel/cuda/device/std/(.*)$")  # in place of the standard library's
    set(file "${CMAKE_MATCH_1}")
  endif()
  string(APPEND rows "    {\"${file}\", R\"mge(${text})mge\"},\n")
endforeach()
file(WRITE "${OUT}" "// Written by cmake/embed.cmake.\n#include \"kernel/cuda/engine.h\"\n\nnamespace mge::cuda {\nstd::span<const Header> headers() {\n  static constexpr Header kHeaders[] = {\n${rows}  };\n  return kHeaders;\n}\n}  // namespace mge::cuda\n")
