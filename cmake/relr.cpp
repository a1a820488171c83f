// Beside packed relocations (MGE_RELR): older loaders then say that GLIBC_2.36 is missing.
#include <stdlib.h>

__attribute__((used)) static const auto needs_glibc_2_36 = &arc4random;
