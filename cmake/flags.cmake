# Compiler settings of the whole tree.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
# In a wheel, libraries of ours lie beside the binary and pip puts oneDNN into <prefix>/lib, four folders up from
# <prefix>/lib/pythonX.Y/site-packages/<package>/<folder>.
set(MGE_WHEEL_RPATH "$ORIGIN:$ORIGIN/../../megengine/core")

# Every engine must round alike, so a*b+c is never contracted behind our back; where fma is wanted the source says fma().
add_compile_options(-ffp-contract=off -fno-math-errno -fno-trapping-math -ffunction-sections -fdata-sections)
if(NOT MGE_SANITIZE)
  add_link_options(-Wl,--gc-sections)
endif()

# Warnings go only to our own targets, not to third-party sources compiled in this tree.
add_library(mge_warnings INTERFACE)
target_compile_options(mge_warnings INTERFACE -Wall -Wextra -Wno-missing-field-initializers $<$<BOOL:${MGE_WERROR}>:-Werror>)

if(MGE_DEBUG_CHECKS)
  add_compile_definitions(MGE_DEBUG_CHECKS=1)
endif()
if(MGE_LITE_ONLY)
  add_compile_definitions(MGE_LITE_ONLY=1)
  # Unwind tables for what exceptions pass through, and not for every instruction, which only a debugger asks for.
  if(NOT WIN32)  # where exceptions are found by the tables of every instruction
    add_compile_options(-fno-asynchronous-unwind-tables)
  endif()
endif()
if(MGE_SANITIZE)
  add_compile_options(-fsanitize=${MGE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MGE_SANITIZE})
endif()

find_program(MGE_CCACHE ccache)
if(MGE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${MGE_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${MGE_CCACHE}")
endif()
find_program(MGE_MOLD mold)
if(MGE_MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()
