/* A word here is a run of ASCII letters and digits, or one of other bytes from 0x80 on. Where a part is cut out of a
 * text at word borders, runs of the first kind are the same in both, so any may be looked up. Of the second kind only
 * those inside the part are: at its ends a dash may follow a letter, and both are such bytes. */
#include "held.h"

#include <stdlib.h>
#include <string.h>

struct held {
    const uint8_t *text;
    size_t n_bytes;
    uint32_t mask;
    uint32_t *first; /* hash & mask -> its first place; mask + 2 of them */
    uint32_t *place; /* where the runs begin, ascending for each hash */
};

typedef struct {
    size_t start, end;
    uint32_t hash;
} run;

typedef enum { BORDER, ASCII, OTHER } kind;

static kind kind_of(uint8_t byte) {
    if (byte >= 0x80) return OTHER;
    return (uint8_t)(byte - '0') < 10 || (uint8_t)((byte | 32) - 'a') < 26 ? ASCII : BORDER;
}

/* The next run from `at` on; its end is its start when there is none. */
static run next_run(size_t n_bytes, const uint8_t *text, size_t at) {
    while (at < n_bytes && kind_of(text[at]) == BORDER) at++;
    run found = {at, at, 2166136261u};
    const kind its = at < n_bytes ? kind_of(text[at]) : BORDER;
    while (found.end < n_bytes && kind_of(text[found.end]) == its)
        found.hash = (found.hash ^ text[found.end++]) * 16777619u;
    found.hash ^= found.hash >> 15;
    return found;
}

static size_t count_runs(size_t n_bytes, const uint8_t *text) {
    size_t n = 0;
    kind last = BORDER;
    for (size_t i = 0; i < n_bytes; i++) {
        const kind now = kind_of(text[i]);
        n += now != last && now != BORDER;
        last = now;
    }
    return n;
}

/* Counting sort by hash: how many each has, where they begin, and then each place into its own. */
static void file_runs(held *h) {
    for (run r = next_run(h->n_bytes, h->text, 0); r.end > r.start; r = next_run(h->n_bytes, h->text, r.end))
        h->first[(r.hash & h->mask) + 1]++;
    for (uint32_t i = 0; i <= h->mask; i++) h->first[i + 1] += h->first[i];
    for (run r = next_run(h->n_bytes, h->text, 0); r.end > r.start; r = next_run(h->n_bytes, h->text, r.end))
        h->place[h->first[r.hash & h->mask]++] = (uint32_t)r.start;
    memmove(h->first + 1, h->first, (h->mask + 1) * sizeof *h->first); /* each stands at the next one's first now */
    h->first[0] = 0;
}

held *held_new(size_t n_bytes, const uint8_t *text) {
    if (n_bytes > UINT32_MAX / 2) return NULL;
    held *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    const size_t n = count_runs(n_bytes, text);
    size_t room = 64;
    while (room < n) room *= 2;
    h->text = text, h->n_bytes = n_bytes, h->mask = (uint32_t)(room - 1);
    h->first = calloc(room + 1, sizeof *h->first);
    h->place = malloc((n + 1) * sizeof *h->place);
    if (!h->first || !h->place) {
        held_free(h);
        return NULL;
    }
    file_runs(h);
    return h;
}

void held_free(held *h) {
    if (!h) return;
    free(h->first);
    free(h->place);
    free(h);
}

static int64_t find_one(const held *h, size_t n_bytes, const uint8_t *part) {
    uint32_t first = 0, last = UINT32_MAX;
    size_t offset = 0;
    for (run r = next_run(n_bytes, part, 0); r.end > r.start; r = next_run(n_bytes, part, r.end)) {
        if (kind_of(part[r.start]) == OTHER && (r.start == 0 || r.end == n_bytes)) continue;
        const uint32_t *here = h->first + (r.hash & h->mask);
        if (here[1] == here[0]) return HELD_NOWHERE;
        if (here[1] - here[0] < last - first) first = here[0], last = here[1], offset = r.start;
    }
    if (last == UINT32_MAX) return HELD_UNKNOWN;
    for (; first < last; first++) {
        const size_t place = h->place[first];
        if (place < offset || h->n_bytes - (place - offset) < n_bytes) continue;
        if (!memcmp(h->text + place - offset, part, n_bytes)) return (int64_t)(place - offset);
    }
    return HELD_NOWHERE;
}

void held_find(const held *h, size_t n, const uint32_t *n_bytes, const uint8_t *parts, int64_t *place) {
    for (size_t i = 0; i < n; parts += n_bytes[i++]) place[i] = find_one(h, n_bytes[i], parts);
}
