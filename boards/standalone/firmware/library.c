// SPDX-License-Identifier: Apache-2.0
/* What gcc calls of a C library where there is none. */
#include <stddef.h>

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memcpy(void *to, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at++)
        ((char *)to)[at] = ((const char *)from)[at];
    return to;
}

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memset(void *to, int value, size_t bytes)
{
    for (size_t at = 0; at < bytes; at++)
        ((char *)to)[at] = (char)value;
    return to;
}
