/* UTF-8 and what its code points are: for the files that read texts. */
#ifndef LANTERN_ANALYZE_UTF8_H
#define LANTERN_ANALYZE_UTF8_H
#include "analyze.h"

#include <string.h>

static const uint32_t malformed = UINT32_MAX;

/* The code point at p, and how many bytes it takes; `malformed` when it is none, or does not end before `end`. */
static uint32_t decode(const uint8_t *p, const uint8_t *end, unsigned *n) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned size = *p < 0x80 ? 1 : *p < 0xC2 ? 0 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : *p < 0xF5 ? 4 : 0;
    uint32_t c = size > 1 ? *p & (0x7Fu >> size) : *p;
    *n = size;
    if (!size || (size_t)(end - p) < size) return malformed;
    for (unsigned i = 1; i < size; i++) {
        if ((p[i] & 0xC0) != 0x80) return malformed;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    return c < least[size] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) ? malformed : c;
}

static size_t encode(uint32_t c, uint8_t *to) {
    if (c < 0x80) return to[0] = (uint8_t)c, 1;
    if (c < 0x800) return to[0] = (uint8_t)(0xC0 | c >> 6), to[1] = (uint8_t)(0x80 | (c & 0x3F)), 2;
    if (c < 0x10000) {
        to[0] = (uint8_t)(0xE0 | c >> 12), to[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        return to[2] = (uint8_t)(0x80 | (c & 0x3F)), 3;
    }
    to[0] = (uint8_t)(0xF0 | c >> 18), to[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    return to[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F)), to[3] = (uint8_t)(0x80 | (c & 0x3F)), 4;
}

/* The code point at p of a text that is_ours has seen. */
static uint32_t next(const uint8_t *p, unsigned *n) {
    if (*p < 0x80) return *n = 1, *p;
    if (*p < 0xE0) return *n = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (*p < 0xF0) return *n = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return *n = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

static inline int is_one_of(uint32_t c, const char *signs, size_t n) { return c < 0x80 && memchr(signs, (int)c, n) != NULL; }

static int is_ours(const analyze_unicode *u, const uint8_t *p, const uint8_t *end) {
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    unsigned n;
    for (; p < end; p += n) {
        uint32_t c;
        for (uint64_t word; end - p >= 8; p += 8) { /* eight bytes of ASCII but 0 */
            memcpy(&word, p, 8);
            if ((word | (word - ones)) & tops) break;
        }
        if (p == end) break;
        c = decode(p, end, &n);
        if (!c || c >= u->n_kinds || u->kind[c] & ANALYZE_OTHER) return 0;
    }
    return 1;
}

#endif
