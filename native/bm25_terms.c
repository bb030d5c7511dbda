/* Text to terms: splitting, hashing, the dictionary. */
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

enum { PADDING = 8 };

static uint64_t word_at(const char *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Bytes before the first zero byte of a word in memory; 8 when there is none. */
static unsigned before_zero(uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    const char *bytes = (const char *)&word;
    unsigned n = 0;
    while (n < 8 && bytes[n]) n++;
    return n;
#else
    const uint64_t zeros = (word - UINT64_C(0x0101010101010101)) & ~word & UINT64_C(0x8080808080808080);
    return zeros ? lowest_bit(zeros) / 8 : 8;
#endif
}

/* The first n bytes of a word in memory, zeros after them. */
static uint64_t first_bytes(uint64_t word, unsigned n) {
    uint64_t kept = 0;
    if (n == 8) return word;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    memcpy(&kept, &word, n);
    return kept;
#else
    (void)kept;
    return word & ((UINT64_C(1) << 8 * n) - 1);
#endif
}

int bm25_split(scratch *s, size_t n, size_t n_bytes, const char *text, token **tokens) {
    char *copy;
    const char *at, *end;
    token *t;
    if (n_bytes > SIZE_MAX / 2 || n > SIZE_MAX / 2 / sizeof *t) return BM25_NO_MEMORY;
    copy = bm25_take(s, 0, n_bytes + 1 + PADDING);
    t = bm25_take(s, 1, n * sizeof *t);
    if (!copy || !t) return BM25_NO_MEMORY;
    if (n_bytes) memcpy(copy, text, n_bytes);
    memset(copy + n_bytes, 0, 1 + PADDING);
    *tokens = t;
    for (at = copy, end = copy + n_bytes; n > 0; n--, t++) {
        uint64_t hash = UINT64_C(0x243F6A8885A308D3);
        unsigned last;
        if (at > end) return BM25_TERMS;
        t->bytes = at;
        while ((last = before_zero(word_at(at))) == 8) hash = mix(hash, word_at(at)), at += 8;
        hash = mix(hash, first_bytes(word_at(at), last));
        at += last;
        t->n_bytes = (size_t)(at - t->bytes);
        t->hash = mix(hash, t->n_bytes);
        at++;
    }
    return at == end + 1 || (at == end && !n_bytes) ? 0 : BM25_TERMS;
}

/* Is this the term of the token? Both are followed by at least as many bytes as a word needs. */
static int same(const term *x, const token *t) {
    size_t i = 0;
    if (x->hash != (uint32_t)(t->hash >> 32) || x->n_bytes != t->n_bytes) return 0;
    for (; i + 8 <= t->n_bytes; i += 8)
        if (word_at(x->bytes + i) != word_at(t->bytes + i)) return 0;
    return i == t->n_bytes || word_at(x->bytes + i) == first_bytes(word_at(t->bytes + i), (unsigned)(t->n_bytes - i));
}

term *bm25_find(const dictionary *d, const token *t) {
    term *found;
    for (uint64_t i = t->hash & d->mask; (found = acquire(&d->at[i])) != NULL; i = (i + 1) & d->mask)
        if (same(found, t)) return found;
    return NULL;
}

dictionary *bm25_new_dictionary(size_t room) {
    dictionary *made = NULL;
    if (room > SIZE_MAX / 2 / sizeof made->at[0] || bm25_grow(&made, sizeof *made + room * sizeof made->at[0], 1))
        return NULL;
    made->mask = room - 1;
    memset((void *)made->at, 0, room * sizeof made->at[0]);
    return made;
}

static void put(dictionary *d, uint64_t hash, term *t) {
    uint64_t i = hash & d->mask;
    while (d->at[i]) i = (i + 1) & d->mask;
    release(&d->at[i], t);
}

/* The low half of the hash is not kept: it is computed again. */
static uint64_t hash_again(const term *t) {
    uint64_t hash = UINT64_C(0x243F6A8885A308D3);
    size_t i = 0;
    for (; i + 8 <= t->n_bytes; i += 8) hash = mix(hash, word_at(t->bytes + i));
    hash = mix(hash, i < t->n_bytes ? word_at(t->bytes + i) : 0);
    return mix(hash, t->n_bytes);
}

static int grow_dictionary(bm25 *q, core *c) {
    dictionary *const old = c->dictionary, *grown;
    if (4 * (c->n_terms + 1) <= old->mask + 1) return 0;
    grown = bm25_new_dictionary(2 * ((size_t)old->mask + 1));
    if (!grown) return BM25_NO_MEMORY;
    for (uint64_t i = 0; i <= old->mask; i++)
        if (old->at[i]) put(grown, hash_again(old->at[i]), old->at[i]);
    release(&c->dictionary, grown);
    bm25_let_go(q, c, old, free);
    return 0;
}

term *bm25_find_or_make(bm25 *q, core *c, const token *t) {
    const size_t padded = (t->n_bytes + 7) / 8 * 8;
    term *made = bm25_find(c->dictionary, t);
    if (made) return made;
    if (t->n_bytes > UINT32_MAX - 8 || grow_dictionary(q, c)) return NULL;
    made = bm25_carve(c, sizeof *made + padded);
    if (!made) return NULL;
    memset(made, 0, sizeof *made + padded);
    made->hash = (uint32_t)(t->hash >> 32), made->n_bytes = (uint32_t)t->n_bytes;
    memcpy(made->bytes, t->bytes, t->n_bytes);
    put(c->dictionary, t->hash, made);
    c->n_terms++;
    return made;
}

int bm25_room_for_terms(core *c, size_t n) {
    size_t room = (size_t)c->dictionary->mask + 1;
    dictionary *made;
    while (room < 4 * (n + 1)) room *= 2;
    if (!(made = bm25_new_dictionary(room))) return BM25_NO_MEMORY;
    free(c->dictionary);
    c->dictionary = made;
    return 0;
}

int bm25_make_term(core *c, uint32_t n_bytes, const char *bytes, term **made) {
    term *const t = bm25_carve(c, sizeof *t + ((size_t)n_bytes + 7) / 8 * 8);
    uint64_t hash;
    if (memchr(bytes, 0, n_bytes)) return BM25_TERMS;
    if (!t) return BM25_NO_MEMORY;
    memset(t, 0, sizeof *t + ((size_t)n_bytes + 7) / 8 * 8);
    memcpy(t->bytes, bytes, n_bytes);
    t->n_bytes = n_bytes, hash = hash_again(t), t->hash = (uint32_t)(hash >> 32);
    if (bm25_find(c->dictionary, &(token){hash, t->bytes, n_bytes})) return BM25_EXISTS;
    put(c->dictionary, hash, t);
    c->n_terms++;
    *made = t;
    return 0;
}
