#include "starts.h"

#include <string.h>

#define BASE 0x01000193u

static uint32_t sign_at(const uint8_t *text, uint32_t width, size_t at) {
    if (width == 1) return text[at];
    uint32_t sign;
    memcpy(&sign, text + 4 * at, sizeof sign);
    return sign;
}

static uint32_t bit_of(const starts *s, uint32_t hash) {
    return ((hash ^ hash >> 15) * 0x9E3779B1u) >> (32 - s->log_bits);
}

void starts_add(const starts *s, size_t n, uint32_t width, const void *signs) {
    for (size_t i = 0; i < n; i++) {
        uint32_t hash = 0;
        for (size_t at = 0; at < s->n_signs; at++) hash = hash * BASE + sign_at(signs, width, i * s->n_signs + at);
        const uint32_t bit = bit_of(s, hash);
        s->bits[bit >> 3] = (uint8_t)(s->bits[bit >> 3] | 1u << (bit & 7));
    }
}

static int goes_on_behind(uint32_t sign) {
    return sign - '0' < 10 || (sign | 32) - 'a' < 26;
}

/* Inlined for each width, so that the loop over the text knows it. */
static inline size_t find(const starts *s, size_t n, uint32_t width, const uint8_t *text, uint32_t *place) {
    const size_t n_signs = s->n_signs;
    if (n < n_signs) return 0;
    uint32_t hash = 0, gone = 1, before = ' ';
    for (size_t i = 0; i < n_signs; i++) gone *= BASE, hash = hash * BASE + sign_at(text, width, i);
    size_t found = 0;
    for (size_t at = 0;; at++) {
        if (!goes_on_behind(before)) {
            const uint32_t bit = bit_of(s, hash);
            if (s->bits[bit >> 3] >> (bit & 7) & 1) place[found++] = (uint32_t)at;
        }
        if (at + n_signs == n) return found;
        before = sign_at(text, width, at);
        hash = hash * BASE + sign_at(text, width, at + n_signs) - before * gone;
    }
}

size_t starts_find(const starts *s, size_t n, uint32_t width, const void *text, uint32_t *place) {
    return width == 1 ? find(s, n, 1, text, place) : find(s, n, 4, text, place);
}
