/* Does a text hold another one? For many of them: every word of the text is hashed once, with all its places. build.py
 * hands this file to cffi as it stands, but for the lines that start with '#'. One thread makes it, any number ask. */
#ifndef LANTERN_HELD_H
#define LANTERN_HELD_H
#include <stddef.h>
#include <stdint.h>

typedef struct held held;

enum { HELD_NOWHERE = -1, HELD_UNKNOWN = -2 };

/* text: UTF-8, kept by the caller for as long as this lives. NULL: no memory, or 2 GB and more. */
held *held_new(size_t n_bytes, const uint8_t *text);
void held_free(held *h);

/* For each of n parts, which stand one behind the other: the byte where it first stands in the text, HELD_NOWHERE, or
 * HELD_UNKNOWN when no word of it can be looked up. A place counts that begins or ends within a word, too, but not all
 * of those are found: a part's first and last word are taken for whole ones. */
void held_find(const held *h, size_t n, const uint32_t *n_bytes, const uint8_t *parts, int64_t *place);

#endif
