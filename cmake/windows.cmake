# Lite for Windows: POSIX as far as the sources use it, and the API exported by liblite.dll (docs/machines.md).
target_sources(mge_base PRIVATE "${CMAKE_SOURCE_DIR}/cmake/windows/posix.cpp")
target_compile_definitions(mge_lite PUBLIC MGE_BUILDS_LITE)  # programs that link the room itself import nothing
