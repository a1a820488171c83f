/* The version of this tree; python/megengine/version.py says the same and a test holds them together. */
#ifndef MEGENGINE_VERSION_H
#define MEGENGINE_VERSION_H

#define MGE_VERSION_MAJOR 2
#define MGE_VERSION_MINOR 0
#define MGE_VERSION_PATCH 0
#define MGE_VERSION_STRING "2.0.0.dev0"

#endif
