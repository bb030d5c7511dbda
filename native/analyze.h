/* Text to the terms of the lexical index: lantern_proxy/analyze in C, with the same result for every text that it
 * takes. build.py hands this file to cffi as it stands, but for the lines that start with '#'. There is no state. */
#ifndef LANTERN_ANALYZE_H
#define LANTERN_ANALYZE_H
#include <stddef.h>
#include <stdint.h>
#include "lexicon.h"

enum { ANALYZE_FOREIGN = -1, ANALYZE_ROOM = -2 };

/* What a code point is. FOREIGN: its lower case depends on what stands around it, or is more than one character. */
enum {
    ANALYZE_WORD = 1,
    ANALYZE_SPACE = 2,
    ANALYZE_DIGIT = 4,
    ANALYZE_ALPHA = 8,
    ANALYZE_UPPER = 16,
    ANALYZE_WIDE = 32,
    ANALYZE_OTHER = 64,
    ANALYZE_MARK = 128
};

/* What the endings of words are, and what is written together with the next one: analyze/letters.py. */
enum { ANALYZE_ENDING = 1, ANALYZE_BEGINNING = 2, ANALYZE_ELIDED = 4, ANALYZE_ATTACHED = 8 };

/* Unicode as the Python beside us knows it: analyze/native.py fills it in. */
typedef struct {
    size_t n_kinds;
    const uint8_t *kind; /* of each code point below n_kinds */
    size_t n_upper;
    const uint32_t *upper, *lower; /* those that are UPPER, ascending, and what each becomes */
    size_t n_folds;
    const uint32_t *folded, *folds; /* those that others stand for, ascending, and up to two each; zeros behind them */
    const lexicon *endings;
} analyze_unicode;

/* What the caller calls plain words that it has met; one thread at a time. To begin with: zeros. */
enum { ANALYZE_WORDS = 65536, ANALYZE_LETTERS = 16 };
typedef struct {
    uint64_t letters[2]; /* lower case, zeros behind them; all zeros: nothing is here */
    void *name;          /* of its stem; NULL: not known yet */
} analyze_word;
typedef struct {
    analyze_word at[65536];
} analyze_memo;

/* The plain words of one text. Those that have a name are told by it, and are not among the terms; the others come
 * behind all other terms, and it is told which, so that the caller can name them: in this order, since a later word may
 * take the place of an earlier one. named and fresh have room for one word for each two bytes of text, and one more. */
typedef struct {
    uint64_t letters[2];
    analyze_word *word;
    size_t n, term; /* letters; which of the terms */
} analyze_fresh;
typedef struct {
    analyze_memo *memo;
    size_t n_named, n_fresh;
    void **named;
    analyze_fresh *fresh;
} analyze_words;

/* The terms of a text in UTF-8, in order (but see above), repeats kept, with `between` between two of them (a line break or a
 * zero byte; no term holds either). words: may be NULL, and then all are terms. Returns the bytes written to `terms`,
 * with the number of terms in *n_terms unless that is NULL; ANALYZE_ROOM when they are more than `room`; ANALYZE_FOREIGN for
 * what only the reference can do: malformed UTF-8, a zero byte, a code point that is OTHER or not below n_kinds. */
int64_t analyze_terms(const analyze_unicode *unicode, analyze_words *words, size_t n_bytes, const char *text,
                      char between, size_t room, char *terms, size_t *n_terms);

/* The same of n_parts texts, which stand one behind the other in `text`: a line break between two terms, a zero byte behind
 * the terms of each part. */
int64_t analyze_parts(const analyze_unicode *unicode, size_t n_parts, const uint32_t *n_bytes, const char *text,
                      size_t room, char *terms);

/* Stem the n characters of a word in place; returns how many are left, never more. One byte a character: lower-case
 * ASCII as it is, any other character as 0x80. */
size_t analyze_stem(uint8_t *word, size_t n);

#endif
