# Checks that are part of every build. They leave a stamp, so an unchanged tree is not checked twice.
set(include_checker "${CMAKE_SOURCE_DIR}/tools/check_includes.py")
if(Python_FOUND AND EXISTS "${include_checker}")
  file(GLOB_RECURSE checked_sources CONFIGURE_DEPENDS
    "${CMAKE_SOURCE_DIR}/src/*.h" "${CMAKE_SOURCE_DIR}/src/*.cpp" "${CMAKE_SOURCE_DIR}/src/*.cu"
    "${CMAKE_SOURCE_DIR}/include/*.h" "${CMAKE_SOURCE_DIR}/python/bindings/*.h" "${CMAKE_SOURCE_DIR}/python/bindings/*.cpp")
  set(stamp "${CMAKE_BINARY_DIR}/check_includes.stamp")
  add_custom_command(
    OUTPUT "${stamp}"
    COMMAND "${Python_EXECUTABLE}" "${include_checker}" "${CMAKE_SOURCE_DIR}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
    DEPENDS "${include_checker}" ${checked_sources}
    COMMENT "checking who includes whom")
  add_custom_target(check_includes ALL DEPENDS "${stamp}")
endif()
