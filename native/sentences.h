/* Where the sentences of a text stand: sentences() of lantern_proxy/analyze in C, for what is no fence, with the same result
 * for every text that it takes. build.py hands this file to cffi as it stands, but for the lines that start with '#'. There is
 * no state. */
#ifndef LANTERN_SENTENCES_H
#define LANTERN_SENTENCES_H
#include "analyze.h"

/* Writes the start and the end of each sentence, in code points, in order, and returns how many there are: n_bytes / 2 + 1 at
 * most, which `spans` has room for (two numbers each). ANALYZE_FOREIGN as analyze_terms. */
int64_t sentences_of(const analyze_unicode *unicode, size_t n_bytes, const char *text, uint32_t *spans);

#endif
