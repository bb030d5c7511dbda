#include "lexicon.h"

#include <string.h>

static size_t place_of(const lexicon *words, const uint64_t letters[2]) {
    const uint64_t hash = (letters[0] ^ letters[1] * UINT64_C(0xC2B2AE3D27D4EB4F)) * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = hash >> 32 & (LEXICON_SLOTS - 1);
    while (words->at[at].letters[0] && memcmp(words->at[at].letters, letters, sizeof words->at[at].letters))
        at = (at + 1) & (LEXICON_SLOTS - 1);
    return at;
}

int lexicon_add(lexicon *words, size_t n, const char *word, uint32_t flags) {
    uint64_t letters[2] = {0, 0};
    lexicon_word *place;
    if (!n || n > LEXICON_LETTERS) return 0;
    memcpy(letters, word, n);
    place = words->at + place_of(words, letters);
    if (!place->letters[0]) {
        if (words->n == LEXICON_SLOTS / 2) return 0;
        words->n++;
        memcpy(place->letters, letters, sizeof letters);
    }
    place->flags |= flags;
    return 1;
}

uint32_t lexicon_flags(const lexicon *words, size_t n, const uint8_t *word) {
    uint64_t letters[2] = {0, 0};
    if (!n || n > LEXICON_LETTERS) return 0;
    memcpy(letters, word, n);
    return words->at[place_of(words, letters)].flags;
}
