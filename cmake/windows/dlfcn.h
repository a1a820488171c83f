#pragma once
#define RTLD_NOW 2
#define RTLD_LOCAL 0
extern "C" {
void* dlopen(const char* path, int flags);
void* dlsym(void* library, const char* name);
int dlclose(void* library);
const char* dlerror();
}
