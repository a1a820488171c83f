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
