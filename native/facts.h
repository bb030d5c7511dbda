/* What can be counted of a sentence: lantern_proxy/analyze/facts.py in C, with the same result for every text that it takes.
 * build.py hands this file to cffi as it stands, but for the lines that start with '#'. There is no state. */
#ifndef LANTERN_FACTS_H
#define LANTERN_FACTS_H
#include "analyze.h"
#include "lexicon.h"

/* Flags of a sentence; of a stem in the lexicon the first alone, and others from 8 on, which a sentence has from its stems. */
enum { FACTS_COMMON = 1, FACTS_CALLS = 2, FACTS_DIGIT = 4 };

typedef struct {
    uint32_t pieces, plain, prose, wide, signs, flags;
} facts;

/* Of n_parts texts, which stand one behind the other in `text`: found[i], and in `terms` the index terms of each that are not
 * common and say something by themselves, repeats kept, a line break between two and a zero byte behind those of each part.
 * Returns and room as analyze_parts. */
int64_t facts_of(const analyze_unicode *unicode, const lexicon *stems, size_t n_parts, const uint32_t *n_bytes,
                 const char *text, facts *found, size_t room, char *terms);

/* What the words of a text are. The sorts are flags of words in lower case: 1, 2, 4, 8. */
typedef struct {
    uint32_t of_sort[4];
    uint32_t years;        /* words of four digits */
    uint32_t ends, asking; /* runs of . ! ? and line breaks, and those of them with a question mark */
    uint32_t times;        /* places where a digit follows : or -, or m or s follows "this " */
} facts_counts;

/* Of n_parts texts, as above: found[i]. Returns 0 or ANALYZE_FOREIGN. */
int64_t facts_count(const analyze_unicode *unicode, const lexicon *words, size_t n_parts, const uint32_t *n_bytes,
                    const char *text, facts_counts *found);

#endif
