# src/dist/gloo as a library of its own, libmge_gloo.so, which a process group loads when it needs it (src/dist/meet.cpp): the
# Debian package has Gloo as a shared library only, and that needs others. Inside a wheel all of them lie beside it.
if(NOT MGE_SANITIZE)
  set_source_files_properties("${CMAKE_SOURCE_DIR}/src/dist/reduce.cpp" PROPERTIES COMPILE_OPTIONS -O3)
endif()
if(NOT MGE_WITH_GLOO)
  return()
endif()
add_library(mge_gloo MODULE "${CMAKE_SOURCE_DIR}/src/dist/gloo/gloo.cpp")
target_include_directories(mge_gloo PRIVATE "${CMAKE_SOURCE_DIR}/src")
target_include_directories(mge_gloo SYSTEM PRIVATE "${MGE_GLOO_INCLUDE}")
target_link_libraries(mge_gloo PRIVATE "${MGE_GLOO_LIBRARY}" Threads::Threads mge_warnings)
# The old kind of run path also serves the libraries that Gloo needs, which have none of their own.
target_link_options(mge_gloo PRIVATE -Wl,--disable-new-dtags)
set_target_properties(mge_gloo PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY "${MGE_STAGE_DIR}/megengine/core"
  INSTALL_RPATH "$ORIGIN")
if(MGE_WITH_PYTHON)
  install(TARGETS mge_gloo LIBRARY DESTINATION megengine/core)
  mge_install_gloo(megengine/core)
endif()
if(MGE_TESTS)  # for benchmarks/allreduce.py
  add_library(mge_bench_gloo MODULE "${CMAKE_SOURCE_DIR}/benchmarks/cpp/gloo_allreduce.cpp")
  target_include_directories(mge_bench_gloo SYSTEM PRIVATE "${MGE_GLOO_INCLUDE}")
  target_link_libraries(mge_bench_gloo PRIVATE "${MGE_GLOO_LIBRARY}" mge_warnings)
  set_target_properties(mge_bench_gloo PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
endif()
