/* A window of a text, its characters and its words: for specifics.c alone. */
#ifndef LANTERN_SPECIFICS_TEXT_H
#define LANTERN_SPECIFICS_TEXT_H
#include "specifics.h"
#include "analyze_utf8.h"

#include <string.h>

enum { WINDOW = 1000, PAD = 4 };

/* What a character is. */
enum {
    WORD = 1,
    SPACE = 2,
    DIGIT = 4,
    LOW = 8,
    CAPITAL = 16,
    LATIN = 32,
    DASH = 64,
    DOT = 128,
    PLUS = 256,
    AT = 512,
    SLASH = 1024,
    COLON = 2048,
    PERCENT = 4096, /* $, too */
    OPENS = 8192,   /* ( and the backslash */
    EQUALS = 16384,
    QUOTE = 32768, /* ' and " */
    HASH = 65536,
    HEX = 1 << 17 /* small */
};
enum { LETTER = LOW | CAPITAL };

/* A part of the text that is matched by itself; what stands around it is as if it was not there. */
typedef struct {
    const analyze_unicode *unicode;
    const lexicon *words;
    int n;
    uint32_t chars[PAD + WINDOW + PAD], kinds[PAD + WINDOW + PAD];
    const uint8_t *bytes[WINDOW + 2];
    const uint32_t *c, *k; /* of those: zeros stand before 0 and from n on */
} window;

/* The flags of the characters from..to; in lower case when that is asked for. */
static uint32_t flags_of(const window *w, int from, int to, int in_lower_case) {
    uint8_t bytes[LEXICON_LETTERS];
    const int n = to - from;
    if (n <= 0 || n > LEXICON_LETTERS) return 0;
    for (int i = 0; i < n; i++) {
        const uint32_t c = w->c[from + i];
        if (c >= 0x80) return 0;
        bytes[i] = (uint8_t)(in_lower_case && w->k[from + i] & CAPITAL ? c | 32 : c);
    }
    return lexicon_flags(w->words, (size_t)n, bytes);
}

static uint32_t sign_kind(uint32_t c) {
    switch (c) {
    case '-': return DASH;
    case '.': return DOT;
    case '+': return PLUS;
    case '@': return AT;
    case '/': return SLASH;
    case ':': return COLON;
    case '%': case '$': return PERCENT;
    case '(': case '\\': return OPENS;
    case '=': return EQUALS;
    case '"': case '\'': return QUOTE;
    case '#': return HASH;
    default: return 0;
    }
}

static uint32_t kind_of(const analyze_unicode *u, uint32_t c) {
    const uint8_t kind = u->kind[c];
    uint32_t found = (kind & ANALYZE_WORD ? WORD : 0u) | (kind & ANALYZE_SPACE ? SPACE : 0u) | (kind & ANALYZE_DIGIT ? DIGIT : 0u);
    if (c >= 'a' && c <= 'z') found |= LOW | LATIN | (c <= 'f' ? HEX : 0u);
    else if (c >= '0' && c <= '9') found |= HEX;
    else if (c >= 'A' && c <= 'Z') found |= CAPITAL;
    else if (c >= 0xE0 && c <= 0xFF) found |= LATIN;
    else found |= sign_kind(c);
    return found;
}

static int run(const window *w, int i, uint32_t kinds) {
    while (w->k[i] & kinds) i++;
    return i;
}

/* Behind the last of `kinds` within from..to, or 0. */
static int behind_last(const window *w, int from, int to, uint32_t kinds) {
    while (to > from && !(w->k[to - 1] & kinds)) to--;
    return to > from ? to : 0;
}

static int is_border(const window *w, int i) { return (w->k[i - 1] ^ w->k[i]) & WORD; }

static int begins(const window *w, int i, const char *with) {
    for (; *with; with++, i++)
        if (w->c[i] != (uint8_t)*with) return 0;
    return 1;
}

/* Behind a run of `kinds` that ends with a word character: [...]*\w, or 0. The class before it holds \w. */
static int to_last_word(const window *w, int from, uint32_t kinds) { return behind_last(w, from, run(w, from, kinds), WORD); }

#endif
