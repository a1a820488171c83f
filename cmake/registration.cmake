# Run by mge_registration (room.cmake) with cmake -P. Writes to OUT the function FUNCTION, which calls every function
#   void register_<what>(<REGISTRY>& r) {
# that stands at the beginning of a line, outside of unnamed namespaces, in one of the files listed in LIST.
# A plain call chain and no static initialisers: the linker keeps what is named here.
file(STRINGS "${LIST}" files)
set(declarations "")
set(calls "")
foreach(file IN LISTS files)
  file(STRINGS "${file}" lines REGEX
    "^namespace( [a-z_0-9:]+)? {$|^}  // namespace$|^void register_[a-z_0-9]+\\(${REGISTRY}& r\\) {")
  set(namespace "mge")
  set(hidden FALSE)
  foreach(line IN LISTS lines)
    if(line MATCHES "^namespace {")
      set(hidden TRUE)
    elseif(line MATCHES "^}")
      set(hidden FALSE)
    elseif(line MATCHES "^namespace (mge[a-z_0-9:]*)")
      set(namespace "${CMAKE_MATCH_1}")
    elseif(line MATCHES "^void (register_[a-z_0-9]+)" AND NOT hidden)
      string(APPEND declarations "namespace ${namespace} {\nvoid ${CMAKE_MATCH_1}(${REGISTRY}& r);\n}\n")
      string(APPEND calls "  ${namespace}::${CMAKE_MATCH_1}(r);\n")
    endif()
  endforeach()
endforeach()
if(calls STREQUAL "")
  message(FATAL_ERROR "${FUNCTION}: no function register_...(${REGISTRY}& r) in the files of ${LIST}.")
endif()
# Left alone when nothing changed, so that an edit of an op does not compile it again.
file(CONFIGURE OUTPUT "${OUT}" @ONLY CONTENT
  "// Written by cmake/registration.cmake.\n#include \"@HEADER@\"\n\n@declarations@\nvoid mge::@FUNCTION@(@REGISTRY@& r) {\n@calls@}\n")
