# Link-time optimisation of the small library: functions that are called once go into their callers whatever file they are
# in, 4 % of it. Not of kernels, which are compiled for several instruction sets and are where time is spent, and not of
# cross builds and those of sanitizers, whose tools may not have it.
set(MGE_LTO_DEFAULT OFF)
if(MGE_LITE_ONLY AND CMAKE_BUILD_TYPE STREQUAL "MinSizeRel" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING
   AND NOT MGE_SANITIZE)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT MGE_LTO_DEFAULT LANGUAGES CXX)
endif()
option(MGE_LTO "optimise Lite when it is linked" ${MGE_LTO_DEFAULT})

# Unwind tables that hold where exceptions pass, at calls: cmake/unwind/as stands before the assembler.
set(MGE_SHORT_UNWIND_DEFAULT OFF)
find_program(MGE_PYTHON3 python3)
if(MGE_LTO_DEFAULT AND MGE_PYTHON3 AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(MGE_SHORT_UNWIND_DEFAULT ON)
endif()
option(MGE_SHORT_UNWIND "unwind tables of Lite for exceptions alone" ${MGE_SHORT_UNWIND_DEFAULT})
set(MGE_UNWIND_OPTIONS "")
if(MGE_SHORT_UNWIND)
  set(unwind "${CMAKE_SOURCE_DIR}/cmake/unwind")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${unwind}/as")
  file(SHA256 "${unwind}/as" unwind_hash)  # so that another script means other objects, in the compiler cache, too
  set(MGE_UNWIND_OPTIONS "-B${unwind}/" "-DMGE_UNWIND=${unwind_hash}")
endif()

# mge_small_link(<target>): one partition, since functions of two are not seen as equal and constants are kept for each.
function(mge_small_link target)
  if(MGE_LTO)
    set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
    target_link_options(${target} PRIVATE -flto-partition=one ${MGE_UNWIND_OPTIONS})
  endif()
endfunction()
