/* LITE_API marks what liblite.so exports, for C and C++. */
#ifndef LITE_MACRO_H
#define LITE_MACRO_H

#if defined(_WIN32) && defined(MGE_BUILDS_LITE)
#define LITE_API __declspec(dllexport)
#elif defined(_WIN32)
#define LITE_API __declspec(dllimport)
#elif defined(__GNUC__)
#define LITE_API __attribute__((visibility("default")))
#else
#define LITE_API
#endif

#endif
