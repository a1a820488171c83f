# The Python extension: python/bindings/*.cpp -> megengine/core/_core.<abi>.so
file(GLOB_RECURSE binding_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/bindings/*.cpp")
if(NOT binding_sources)
  return()
endif()
nanobind_add_module(mge_python NB_STATIC NOMINSIZE NOSTRIP ${binding_sources})
target_link_libraries(mge_python PRIVATE mge_eager mge_dist mge_serial mge_plan mge_pass mge_jit mge_kernel mge_compat Python::NumPy mge_warnings)
if(TARGET mge_kernel_cuda)
  target_link_libraries(mge_python PRIVATE mge_kernel_cuda)
  target_compile_definitions(mge_python PRIVATE MGE_WITH_CUDA=1)
endif()
target_include_directories(mge_python SYSTEM PRIVATE "${NB_DIR}/include")  # no warnings from nanobind's headers
set_target_properties(mge_python PROPERTIES
  OUTPUT_NAME _core
  LIBRARY_OUTPUT_DIRECTORY "${MGE_STAGE_DIR}/megengine/core"
  INSTALL_RPATH "${MGE_WHEEL_RPATH}")
install(TARGETS mge_python LIBRARY DESTINATION megengine/core)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/megbrain" DESTINATION megengine/core/include)  # for custom operators
mge_install_highway(megengine/core)
mge_install_onednn(megengine/core COMPONENT lite)  # liblite.so needs it too
