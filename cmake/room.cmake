# mge_room(<name> DEPS <targets> [FOLDERS <subfolders>] [EXCLUDE <subfolder>])
# One static library mge_<name> from every .cpp of src/<name>; an interface library while the room has none.
# With FOLDERS only those subfolders belong to the room, each with all below it, "." being the files of src/<name> itself;
# EXCLUDE leaves one out.
function(mge_room name)
  cmake_parse_arguments(arg "" "EXCLUDE" "DEPS;FOLDERS" ${ARGN})
  set(dir "${CMAKE_SOURCE_DIR}/src/${name}")
  if(arg_FOLDERS)
    set(sources)
    foreach(folder IN LISTS arg_FOLDERS)
      if(folder STREQUAL ".")
        file(GLOB found CONFIGURE_DEPENDS "${dir}/*.cpp")
      else()
        file(GLOB_RECURSE found CONFIGURE_DEPENDS "${dir}/${folder}/*.cpp")
      endif()
      list(APPEND sources ${found})
    endforeach()
  else()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${dir}/*.cpp")
  endif()
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "^${dir}/${arg_EXCLUDE}/")
  endif()
  if(MGE_LITE_ONLY)
    list(FILTER sources EXCLUDE REGEX "\\.grad\\.cpp$")  # vjp rules
  endif()
  mge_library(mge_${name} "${sources}" ${arg_DEPS})
endfunction()

# mge_library(<target> "<sources>" <public deps>...)
function(mge_library target sources)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PRIVATE mge_warnings)
    # Without typeinfo, which nothing asks for, except in the room whose classes programs derive from: 5 kB of names.
    if(MGE_LTO AND NOT target STREQUAL "mge_lite")
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)
    endif()
    if(MGE_LTO AND NOT target STREQUAL "mge_kernel_simd")
      set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
    else()
      target_compile_options(${target} PRIVATE ${MGE_UNWIND_OPTIONS})
    endif()
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
  target_link_libraries(${target} ${scope} ${ARGN})
endfunction()

# mge_kernel_leaf(<name> PRIVATE <third-party targets>): src/kernel/<name> as its own library mge_kernel_<name>.
# The leaf includes kernel/*.h and the kernel room's registration calls the leaf, so the two static libraries name each
# other. Whoever links mge_kernel sees MGE_WITH_<NAME>=1 when the leaf has sources.
function(mge_kernel_leaf name)
  cmake_parse_arguments(arg "" "" "PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/kernel/${name}/*.cpp")
  set(leaf mge_kernel_${name})
  mge_library(${leaf} "${sources}" mge_kernel)
  if(NOT sources)
    return()
  endif()
  target_link_libraries(${leaf} PRIVATE ${arg_PRIVATE})
  # Inner loops are written out, so -O3 mostly makes copies of the rest: a third of the code. NOTE(perf): MobileNetV2 has
  # 3 % more instructions with -O2.
  if(name STREQUAL "simd" AND NOT MGE_SANITIZE)
    target_compile_options(${leaf} PRIVATE $<IF:$<BOOL:${MGE_LITE_ONLY}>,-O2,-O3>)
  endif()
  get_target_property(type mge_kernel TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    string(TOUPPER "${name}" upper)
    target_compile_definitions(mge_kernel PUBLIC MGE_WITH_${upper}=1)
    target_link_libraries(mge_kernel PUBLIC ${leaf})
  endif()
endfunction()

# mge_choose_isas(<target>): MGE_ISAS, for src/kernel/simd/targets.h.
function(mge_choose_isas target)
  if(MGE_ISAS STREQUAL "all")
    return()
  endif()
  set(known sse4 avx2 avx512)
  foreach(isa IN LISTS MGE_ISAS)
    if(NOT isa IN_LIST known)
      message(FATAL_ERROR "MGE_ISAS: expected all or some of ${known}; got ${isa}.")
    endif()
  endforeach()
  target_compile_definitions(${target} PRIVATE MGE_SOME_ISAS="${MGE_ISAS}")
  foreach(isa IN LISTS known)
    string(TOUPPER ${isa} upper)
    target_compile_definitions(${target} PRIVATE MGE_ISA_${upper}=$<IN_LIST:${isa},${MGE_ISAS}>)
  endforeach()
endfunction()

# mge_registration(<target> <function> <registry class> <header> <folder> [GRADS])
# Adds a source to the target that defines mge::<function>(<registry>&), declared in the header: it calls every
# register_...(<registry>&) of the families in src/<folder>; with GRADS those of *.grad.cpp files, without it those of all
# others. So a new family is a new folder and nothing else. Files named like their folder come first, the rest by path:
# among kernels of one op and tier the order says which is asked first.
function(mge_registration target function registry header folder)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${folder}/*/*.cpp")
  set(mode EXCLUDE)
  if("GRADS" IN_LIST ARGN)
    set(mode INCLUDE)
  endif()
  list(FILTER sources ${mode} REGEX "\\.grad\\.cpp$")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM stem)
    if(source MATCHES "/${stem}/${stem}\\.")
      list(REMOVE_ITEM sources "${source}")
      list(PREPEND sources "${source}")
    endif()
  endforeach()
  set(out "${CMAKE_BINARY_DIR}/generated/${folder}/${function}.cpp")
  set(list "${CMAKE_BINARY_DIR}/generated/${folder}/${function}.txt")
  list(JOIN sources "\n" lines)
  file(CONFIGURE OUTPUT "${list}" CONTENT "${lines}\n" @ONLY)
  set(script "${CMAKE_SOURCE_DIR}/cmake/registration.cmake")
  add_custom_command(
    OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" "-DLIST=${list}" "-DREGISTRY=${registry}" "-DFUNCTION=${function}" "-DHEADER=${header}"
      "-DOUT=${out}" -P "${script}"
    DEPENDS ${sources} "${list}" "${script}"
    COMMENT "${function}: the list of src/${folder}"
    VERBATIM)
  target_sources(${target} PRIVATE "${out}")
endfunction()

# mge_embed(<target>): adds a source with the text of every header that kernels of the GPU include (cmake/embed.cmake).
function(mge_embed target)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/src/kernel/cuda/device/*")
  list(APPEND headers core/half.h base/philox.h)
  set(out "${CMAKE_BINARY_DIR}/generated/kernel/cuda/headers.cpp")
  set(list "${CMAKE_BINARY_DIR}/generated/kernel/cuda/headers.txt")
  list(JOIN headers "\n" lines)
  file(CONFIGURE OUTPUT "${list}" CONTENT "${lines}\n" @ONLY)
  set(script "${CMAKE_SOURCE_DIR}/cmake/embed.cmake")
  list(TRANSFORM headers PREPEND "${CMAKE_SOURCE_DIR}/src/" OUTPUT_VARIABLE files)
  add_custom_command(
    OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" "-DLIST=${list}" "-DROOT=${CMAKE_SOURCE_DIR}/src" "-DOUT=${out}" -P "${script}"
    DEPENDS ${files} "${list}" "${script}"
    COMMENT "embedding the headers of GPU kernels"
    VERBATIM)
  target_sources(${target} PRIVATE "${out}")
endfunction()

# mge_flatbuffers(<room>): every src/<room>/<x>.fbs becomes "<room>/<x>_generated.h" in the build folder.
function(mge_flatbuffers room)
  set(out "${CMAKE_BINARY_DIR}/generated/${room}")
  file(GLOB_RECURSE schemas CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/src/${room}" "${CMAKE_SOURCE_DIR}/src/${room}/*.fbs")
  set(headers)
  foreach(schema IN LISTS schemas)
    cmake_path(GET schema STEM stem)
    cmake_path(GET schema PARENT_PATH folder)
    set(source "${CMAKE_SOURCE_DIR}/src/${room}/${schema}")
    set(header "${out}/${folder}/${stem}_generated.h")
    add_custom_command(
      OUTPUT "${header}"
      COMMAND "${MGE_FLATC}" --cpp --cpp-std c++17 --scoped-enums --warnings-as-errors -o "${out}/${folder}" "${source}"
      DEPENDS "${source}"
      COMMENT "flatc ${schema}")
    list(APPEND headers "${header}")
  endforeach()
  get_target_property(type mge_${room} TYPE)
  if(headers AND type STREQUAL "STATIC_LIBRARY")
    target_sources(mge_${room} PRIVATE ${headers})
    target_include_directories(mge_${room} SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/generated" "${MGE_FLATBUFFERS_INCLUDE}")
  endif()
endfunction()
