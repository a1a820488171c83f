# Lite beside its room mge_lite: the shared liblite.so with the public C and C++ API, and one program per src/lite/tools/*.cpp.
get_target_property(lite_type mge_lite TYPE)
if(NOT lite_type STREQUAL "STATIC_LIBRARY")
  return()
endif()

# All objects of the room are kept, they are the API; of the other rooms only what they reach.
add_library(lite_shared SHARED $<TARGET_OBJECTS:mge_lite>)
target_link_libraries(lite_shared PRIVATE mge_lite)
# Threads of the team run its code and libdnnl calls into it, so it stays loaded.
if(NOT WIN32)
  target_link_options(lite_shared PRIVATE -Wl,-Bsymbolic -Wl,-z,nodelete "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/lite.map")
  set_property(TARGET lite_shared APPEND PROPERTY LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/lite.map")
endif()
# Packed relocations: glibc takes a library with them only if it says which loaders can, and GNU's linker writes that
# down, mold 1.10 does not. It has no merging of equal functions in turn.
if(MGE_RELR)
  include(CheckLinkerFlag)
  check_linker_flag(CXX "-fuse-ld=bfd;-Wl,-z,pack-relative-relocs" MGE_LINKER_KNOWS_RELR)
  if(NOT MGE_LINKER_KNOWS_RELR)
    message(FATAL_ERROR "MGE_RELR: needs GNU ld from binutils 2.38 on and glibc from 2.36 on; leave it OFF, as tools/trim --old-libc does.")
  endif()
  # Code and constants in one segment: three ends of a page less, up to 12 kB.
  target_link_options(lite_shared PRIVATE -fuse-ld=bfd -Wl,-z,pack-relative-relocs -Wl,-z,noseparate-code)
elseif(MGE_LITE_ONLY AND MGE_MOLD AND NOT CMAKE_CROSSCOMPILING)
  target_link_options(lite_shared PRIVATE -Wl,--icf=all)  # equal functions once; nothing compares their addresses
endif()
mge_small_link(lite_shared)
target_include_directories(lite_shared INTERFACE "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>" $<INSTALL_INTERFACE:megenginelite/include>)
target_compile_features(lite_shared INTERFACE cxx_std_14)  # what the public C++ headers need; tests/CMakeLists.txt compiles them so
set_target_properties(lite_shared PROPERTIES
  OUTPUT_NAME lite
  EXPORT_NAME lite
  LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY "${MGE_STAGE_DIR}/megenginelite/libs"
  INSTALL_RPATH "${MGE_WHEEL_RPATH}")
install(TARGETS lite_shared EXPORT MegEngineLite LIBRARY DESTINATION megenginelite/libs COMPONENT lite
  RUNTIME DESTINATION megenginelite/libs COMPONENT lite ARCHIVE DESTINATION megenginelite/libs COMPONENT lite)
mge_install_highway(megenginelite/libs COMPONENT lite)

# What a C or C++ program needs to build against liblite.so, in the wheel and by `cmake --install build/lite --component lite`:
# headers, a CMake package (find_package(MegEngineLite)) and a pkg-config file. Both find the rest from where they lie.
file(STRINGS "${CMAKE_SOURCE_DIR}/include/megengine/version.h" MGE_VERSION REGEX "MGE_VERSION_STRING")
string(REGEX REPLACE ".*\"(.*)\"" "\\1" MGE_VERSION "${MGE_VERSION}")
include(CMakePackageConfigHelpers)
set(package "${CMAKE_BINARY_DIR}/package")
write_basic_package_version_file("${package}/MegEngineLiteConfigVersion.cmake" VERSION "${MGE_VERSION}" COMPATIBILITY SameMajorVersion)
configure_file("${CMAKE_SOURCE_DIR}/cmake/megenginelite.pc.in" "${package}/megenginelite.pc" @ONLY)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/" DESTINATION megenginelite/include COMPONENT lite)
install(EXPORT MegEngineLite FILE MegEngineLiteConfig.cmake NAMESPACE MegEngineLite::
  DESTINATION megenginelite/share/cmake/MegEngineLite COMPONENT lite)
install(FILES "${package}/MegEngineLiteConfigVersion.cmake" DESTINATION megenginelite/share/cmake/MegEngineLite COMPONENT lite)
install(FILES "${package}/megenginelite.pc" DESTINATION megenginelite/share/pkgconfig COMPONENT lite)

file(GLOB lite_tools CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/lite/tools/*.cpp")
foreach(source IN LISTS lite_tools)
  cmake_path(GET source STEM program)
  add_executable(${program} "${source}")
  target_link_libraries(${program} PRIVATE mge_lite mge_warnings)
  mge_small_link(${program})
  if(SKBUILD_SCRIPTS_DIR)  # a wheel: the program goes to <prefix>/bin
    set(beside megengine/core)
    set(minors ${Python_VERSION_MINOR})
    if(MGE_LITE_ONLY)  # one wheel for all of them
      set(beside megenginelite/libs)
      set(minors 10 11 12 13 14)
    endif()
    set(rpath "$ORIGIN/../${beside}")  # with pip install --target
    foreach(minor IN LISTS minors)
      string(PREPEND rpath "$ORIGIN/../lib/python3.${minor}/site-packages/${beside}:")
    endforeach()
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "${rpath}")
    install(TARGETS ${program} RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}" COMPONENT programs)
  endif()
endforeach()
