// An NVRTC for tests beside mock_driver.cpp: every text compiles, to nothing. What ops cost before the device has them
// is measured and tested with it; their results are whatever lies in memory.
#include <cstddef>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
EXPORT int nvrtcCreateProgram(void** p, const char*, const char*, int, const char* const*, const char* const*) {
  return *p = nullptr, 0;
}
EXPORT int nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
EXPORT int nvrtcGetCUBINSize(void*, size_t* n) { return *n = 4, 0; }
EXPORT int nvrtcGetCUBIN(void*, char* to) { return std::memcpy(to, "none", 4), 0; }
EXPORT int nvrtcGetProgramLogSize(void*, size_t* n) { return *n = 1, 0; }
EXPORT int nvrtcGetProgramLog(void*, char* to) { return *to = 0, 0; }
EXPORT int nvrtcDestroyProgram(void**) { return 0; }
