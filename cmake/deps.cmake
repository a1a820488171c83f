# Third-party packages. Each is linked by one leaf only; the leaf is named beside it.
set(MGE_APT_HINT "apt-get install libhwy-dev libflatbuffers-dev flatbuffers-compiler libmbedtls-dev libgloo-dev libgtest-dev libgmock-dev")
find_package(Threads REQUIRED)

# mge_find_headers(<variable> <folder> <file>): where <folder>/<file> lies. A cross compiler must not see all of /usr/include,
# so it gets a folder with a link to this one.
function(mge_find_headers variable folder file)
  if(CMAKE_CROSSCOMPILING)
    if(EXISTS "/usr/include/${folder}/${file}")
      file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/headers")
      file(CREATE_LINK "/usr/include/${folder}" "${CMAKE_BINARY_DIR}/headers/${folder}" SYMBOLIC)
      set(${variable} "${CMAKE_BINARY_DIR}/headers" PARENT_SCOPE)
    endif()
  else()
    find_path(${variable} "${folder}/${file}")
  endif()
endfunction()

# The project's own virtual environment, when there is one, supplies Python, NumPy, nanobind and oneDNN.
set(MGE_VENV "${CMAKE_SOURCE_DIR}/.venv")
if(NOT Python_EXECUTABLE AND EXISTS "${MGE_VENV}/bin/python")
  set(Python_EXECUTABLE "${MGE_VENV}/bin/python")
endif()
if(MGE_WITH_PYTHON)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module NumPy)
else()
  find_package(Python COMPONENTS Interpreter)
endif()

# kernel/simd: Highway.
if(CMAKE_CROSSCOMPILING)
  set(mge_highway_default "${CMAKE_SOURCE_DIR}/build/third_party/highway-1.2.0")
endif()
set(MGE_HIGHWAY_SOURCE "${mge_highway_default}" CACHE PATH "sources of Highway to build in; empty: the installed package")
if(MGE_HIGHWAY_SOURCE)
  if(NOT EXISTS "${MGE_HIGHWAY_SOURCE}/hwy/targets.cc")
    message(FATAL_ERROR "No sources of Highway in ${MGE_HIGHWAY_SOURCE}. `tools/fetch_highway.sh` gets them from Debian.")
  endif()
  file(GLOB highway_sources "${MGE_HIGHWAY_SOURCE}/hwy/*.cc")
  list(FILTER highway_sources INCLUDE REGEX "/(aligned_allocator|per_target|targets|abort)\\.cc$")
  add_library(mge_highway STATIC ${highway_sources})
  target_include_directories(mge_highway SYSTEM PUBLIC "${MGE_HIGHWAY_SOURCE}")
  target_compile_definitions(mge_highway PUBLIC HWY_STATIC_DEFINE)
  target_compile_options(mge_highway PRIVATE -include "${CMAKE_SOURCE_DIR}/src/kernel/simd/targets.h")  # for the same targets
  add_library(hwy::hwy ALIAS mge_highway)
else()
  find_package(hwy QUIET)
  if(NOT hwy_FOUND)
    message(FATAL_ERROR "Highway not found. ${MGE_APT_HINT}")
  endif()
endif()
# Debian ships it as a shared library (39 kB) only; the wheel carries it beside our binaries.
function(mge_install_highway destination)  # and further arguments of install()
  if(MGE_HIGHWAY_SOURCE)
    return()
  endif()
  get_target_property(file hwy::hwy LOCATION)
  if(file MATCHES "\\.so")
    get_target_property(soname hwy::hwy IMPORTED_SONAME_NONE)
    install(FILES "${file}" DESTINATION "${destination}" RENAME "${soname}" ${ARGN})
  endif()
endfunction()

# serial: FlatBuffers. The runtime is header-only; flatc compiles the schemas.
mge_find_headers(MGE_FLATBUFFERS_INCLUDE flatbuffers flatbuffers.h)
find_program(MGE_FLATC flatc)
if(NOT MGE_FLATBUFFERS_INCLUDE OR NOT MGE_FLATC)
  message(FATAL_ERROR "FlatBuffers or flatc not found. ${MGE_APT_HINT}")
endif()

# lite/crypt: mbedTLS, linked statically (21 kB of AES), so that nothing that we install needs it at run time.
if(MGE_WITH_CRYPTO)
  find_path(MGE_MBEDTLS_INCLUDE mbedtls/aes.h)
  find_library(MGE_MBEDCRYPTO NAMES libmbedcrypto.a mbedcrypto)
  if(NOT MGE_MBEDTLS_INCLUDE OR NOT MGE_MBEDCRYPTO)
    if(MGE_LITE_ONLY)
      message(STATUS "mbedTLS not found: models encrypted with AES_default will be refused. ${MGE_APT_HINT}")
      set(MGE_WITH_CRYPTO OFF)
    else()
      message(FATAL_ERROR "mbedTLS not found. ${MGE_APT_HINT}, or pass -DMGE_WITH_CRYPTO=OFF.")
    endif()
  endif()
endif()

# Where pip put the packages of this interpreter (nanobind, oneDNN): a virtual environment or pip's build isolation folder.
if(MGE_WITH_PYTHON OR MGE_WITH_ONEDNN)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "import nanobind; print(nanobind.cmake_dir())"
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(nanobind_ROOT)
    cmake_path(SET mge_pip_prefix NORMALIZE "${nanobind_ROOT}/../../../../..")  # <prefix>/lib/pythonX.Y/site-packages/nanobind/cmake
  endif()
endif()

# python/bindings: nanobind.
if(MGE_WITH_PYTHON)
  if(NOT nanobind_ROOT)
    message(FATAL_ERROR "nanobind is missing in ${Python_EXECUTABLE}. Run `make venv`, or pass -DMGE_WITH_PYTHON=OFF.")
  endif()
  find_package(nanobind CONFIG REQUIRED)
endif()

# kernel/onednn: oneDNN 3 for libgomp, in whose place our team stands, from PyPI (onednn-devel-cpu-gomp and onednn-cpu-gomp).
if(MGE_WITH_ONEDNN)
  find_package(dnnl 3 CONFIG QUIET HINTS "${mge_pip_prefix}" "${MGE_VENV}")
  if(NOT dnnl_FOUND)
    message(FATAL_ERROR "oneDNN not found. Run `make venv` (PyPI onednn-devel-cpu-gomp), or pass -DMGE_WITH_ONEDNN=OFF.")
  endif()
endif()

# A wheel carries the library: that of PyPI lies in <prefix>/lib, which `pip install --target` does not make. Both packages
# find the one copy by their run path.
function(mge_install_onednn destination)  # and further arguments of install()
  if(MGE_WITH_ONEDNN)
    install(FILES "$<TARGET_SONAME_FILE:DNNL::dnnl>" DESTINATION "${destination}" ${ARGN})
  endif()
endfunction()

# dist/gloo: Gloo, by which process groups reach other machines.
if(MGE_WITH_GLOO)
  find_path(MGE_GLOO_INCLUDE gloo/config.h)
  find_library(MGE_GLOO_LIBRARY gloo)
  if(NOT MGE_GLOO_INCLUDE OR NOT MGE_GLOO_LIBRARY)
    message(FATAL_ERROR "Gloo not found. ${MGE_APT_HINT}, or pass -DMGE_WITH_GLOO=OFF.")
  endif()
endif()

# A wheel carries Gloo and what it needs beyond the C and C++ runtime, each under the name by which it is looked for.
function(mge_install_gloo destination)
  execute_process(COMMAND ldd "${MGE_GLOO_LIBRARY}" OUTPUT_VARIABLE needed)
  string(REGEX MATCHALL "lib(hiredis|ibverbs|nl)[^ ]* => [^ ]+" needed "${needed}")
  foreach(line IN LISTS needed)
    string(REGEX REPLACE "^([^ ]+) => (.*)$" "\\2" file "${line}")
    cmake_path(GET file FILENAME name)
    file(REAL_PATH "${file}" file)
    install(FILES "${file}" DESTINATION "${destination}" RENAME "${name}")
  endforeach()
  file(REAL_PATH "${MGE_GLOO_LIBRARY}" file)
  install(FILES "${file}" DESTINATION "${destination}" RENAME libgloo.so.0)
endfunction()

if(MGE_TESTS AND CMAKE_CROSSCOMPILING)  # Debian's libgtest-dev comes with its sources
  set(CMAKE_WARN_DEPRECATED OFF)
  add_subdirectory(/usr/src/googletest "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
  unset(CMAKE_WARN_DEPRECATED)
elseif(MGE_TESTS)
  find_package(GTest REQUIRED)
endif()
