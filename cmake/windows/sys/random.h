#pragma once
#include <sys/types.h>

#include <cstddef>
extern "C" ssize_t getrandom(void* to, size_t bytes, unsigned flags);
