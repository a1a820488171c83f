/* The version of this tree; python/megengine/version.py says the same and a test holds them together. */
#ifndef MEGENGINE_VERSION_H
#define MEGENGINE_VERSION_H

#define MGE_VERSION_MAJOR 1
#define MGE_VERSION_MINOR 14
#define MGE_VERSION_PATCH 0
#define MGE_VERSION_STRING "1.14.0"

#endif
