# Lite for Windows: POSIX as far as the sources use it, and the API exported by liblite.dll (docs/machines.md).
target_sources(mge_base PRIVATE "${CMAKE_SOURCE_DIR}/cmake/windows/posix.cpp")
target_compile_definitions(mge_lite PUBLIC MGE_BUILDS_LITE)  # programs that link the room itself import nothing

# MinGW's runtime, beside every program: Windows looks for libraries there, and whoever ships liblite.dll ships these.
file(MAKE_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
foreach(name libstdc++-6.dll libgcc_s_seh-1.dll libwinpthread-1.dll)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" "-print-file-name=${name}" OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${file}")
    message(FATAL_ERROR "${name} not found beside ${CMAKE_CXX_COMPILER}. `tools/bootstrap.sh cross` installs it.")
  endif()
  file(COPY_FILE "${file}" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name}" ONLY_IF_DIFFERENT)
  install(FILES "${file}" DESTINATION megenginelite/libs COMPONENT lite)
endforeach()
