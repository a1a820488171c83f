# x86-64 Windows by Debian's MinGW-w64 (tools/bootstrap.sh cross). Programs run here through Wine.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
# What of POSIX the sources use and MinGW lacks: declared by headers of cmake/windows, defined in posix.cpp there. Files may have 2 GiB and more.
set(CMAKE_CXX_FLAGS_INIT "-D_WIN32_WINNT=0x0A00 -D_FILE_OFFSET_BITS=64 -isystem ${CMAKE_CURRENT_LIST_DIR}/../windows -include ${CMAKE_CURRENT_LIST_DIR}/../windows/posix.h")
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR wine)
