/* The specific terms of a text: lantern_proxy/analyze/specific.py in C, with the same result for every text that it takes.
 * build.py hands this file to cffi as it stands, but for the lines that start with '#'. There is no state. */
#ifndef LANTERN_SPECIFICS_H
#define LANTERN_SPECIFICS_H
#include "analyze.h"
#include "lexicon.h"

enum { SPECIFICS_ENDLESS = -3 };

/* What a word is, as it is written. analyze/specific.py has the lists. */
enum {
    SPECIFICS_LINK = 1,
    SPECIFICS_UNNAMED = 2,
    SPECIFICS_STOP = 4,
    SPECIFICS_CHAT = 8,
    SPECIFICS_MONTH = 16,
    SPECIFICS_WEEKDAY = 32,
    SPECIFICS_EXTENSION = 64,
    SPECIFICS_WHICH = 128,
    SPECIFICS_PERIOD = 256,
    SPECIFICS_COUNT = 512,
    SPECIFICS_UNIT = 1024,
    SPECIFICS_DAY = 2048
};

/* The specific terms of a text in UTF-8, in order, repeats kept, with a zero byte between two. Returns the bytes written to
 * `terms`; ANALYZE_ROOM when they are more than `room`; SPECIFICS_ENDLESS when more than 300 characters stand without a
 * space, or as many spaces; ANALYZE_FOREIGN as analyze_terms does. */
int64_t specifics_of(const analyze_unicode *unicode, const lexicon *words, size_t n_bytes, const char *text,
                     size_t room, char *terms);

#endif
