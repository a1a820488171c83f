# mge_build_list(<target>): "op/build_list.h", which src/op/in_build.h explains, and "base/build_features.h" (src/base/features.h)
# from the list MGE_OPS names: `all`,
# `inference` (cmake/inference_ops.txt), or a file as tools/trim writes them. Lines of a list:
#   only | except        the ops, classes and features below are all there is, or all that is left out
#   op NAME   class NAME one of ours, one of the original's
#   feature NAME         a part of the runtime (src/base/features.h)
#   plain NAME           an elementwise op without vector kernels
#   dtype NAME           kernels for these alone; without such a line for all
#   made TEXT            what errors about missing ops say of the build
function(mge_build_list target)
  set(file "")
  if(MGE_OPS STREQUAL "inference")
    set(file "${CMAKE_SOURCE_DIR}/cmake/inference_ops.txt")
  elseif(NOT MGE_OPS STREQUAL "all")
    cmake_path(ABSOLUTE_PATH MGE_OPS BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE file)
  endif()
  set(lines "except" "made all ops")
  if(file)
    if(NOT EXISTS "${file}")
      message(FATAL_ERROR "MGE_OPS: expected all, inference or a list that tools/trim made; got ${MGE_OPS}.")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(STRINGS "${file}" lines REGEX "^[a-z]")
  endif()
  set(only false)
  set(some false)
  set(made "")
  foreach(kind op class feature plain dtype)
    set(${kind} "")
  endforeach()
  foreach(line IN LISTS lines)
    if(line STREQUAL "only")
      set(only true)
    elseif(line MATCHES "^made (.*)$")
      set(made "${CMAKE_MATCH_1}")
    elseif(line MATCHES "^(op|class|feature|plain|dtype) ([A-Za-z0-9_]+)")
      string(APPEND ${CMAKE_MATCH_1} "\"${CMAKE_MATCH_2}\", ")
      if(CMAKE_MATCH_1 STREQUAL "dtype")
        set(some true)
      endif()
    elseif(NOT line STREQUAL "except")
      message(FATAL_ERROR "${file}: expected only, except, op, class, feature, plain, dtype or made; got '${line}'.")
    endif()
  endforeach()
  # Each list ends with a name that nothing has: arrays are not empty.
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/op/build_list.h" @ONLY CONTENT
"// Written by cmake/build_list.cmake.
#pragma once
#include <string_view>

namespace mge::build_list {
inline constexpr bool kOnly = @only@, kSomeDTypes = @some@;
inline constexpr std::string_view kOps[] = {@op@\"\"};
inline constexpr std::string_view kClasses[] = {@class@\"\"};
inline constexpr std::string_view kWithoutVectors[] = {@plain@\"\"};
inline constexpr std::string_view kDTypes[] = {@dtype@\"\"};
inline constexpr const char* kMade = \"@made@\";
}  // namespace mge::build_list
")
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/base/build_features.h" @ONLY CONTENT
"// Written by cmake/build_list.cmake.
#pragma once
#include <string_view>

namespace mge::build_list {
inline constexpr bool kOnlyFeatures = @only@;
inline constexpr std::string_view kFeatures[] = {@feature@\"\"};
}  // namespace mge::build_list
")
  target_include_directories(${target} PUBLIC "${CMAKE_BINARY_DIR}/generated")
endfunction()
