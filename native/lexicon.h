/* Words and what they are: flags by word, as it is written. build.py hands this file to cffi as it stands, but for the lines
 * that start with '#'. One thread fills it in, any number read. */
#ifndef LANTERN_LEXICON_H
#define LANTERN_LEXICON_H
#include <stddef.h>
#include <stdint.h>

enum { LEXICON_LETTERS = 16, LEXICON_SLOTS = 2048 };

typedef struct {
    uint64_t letters[2]; /* zeros behind them; all zeros: nothing is here */
    uint32_t flags;
} lexicon_word;

/* To begin with: zeros. */
typedef struct {
    size_t n;
    lexicon_word at[2048];
} lexicon;

/* Adds flags to a word of up to LEXICON_LETTERS bytes. 0: it is longer or empty, or there are too many. */
int lexicon_add(lexicon *words, size_t n, const char *word, uint32_t flags);

/* The flags of n bytes; 0 for a word that is not there. */
uint32_t lexicon_flags(const lexicon *words, size_t n, const uint8_t *word);

#endif
