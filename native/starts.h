/* Where in a text may one of many others begin? Their first signs are a set of bits, by a hash that rolls over the text.
 * build.py hands this file to cffi as it stands, but for the lines that start with '#'. There is no state. */
#ifndef LANTERN_STARTS_H
#define LANTERN_STARTS_H
#include <stddef.h>
#include <stdint.h>

/* Beginnings of n_signs each, as 2^log_bits bits: one of them each, 3 <= log_bits <= 31. */
typedef struct {
    uint32_t n_signs, log_bits;
    uint8_t *bits;
} starts;

/* Texts are code points of `width` bytes each, 1 or 4, in the order of this machine. */

/* Adds n beginnings that stand one behind the other. */
void starts_add(const starts *s, size_t n, uint32_t width, const void *signs);

/* Writes to place, which has room for n, where a word or anything else but a letter's or digit's continuation begins,
 * and one of the beginnings may stand: ascending, none is missing, and some others are there. Behind a sign beyond ASCII
 * anything may begin. Returns how many. */
size_t starts_find(const starts *s, size_t n, uint32_t width, const void *text, uint32_t *place);

#endif
