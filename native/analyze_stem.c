/* English stems: Porter2 as Snowball 3 defines it (Porter 2001; https://snowballstem.org/algorithms/english/stemmer.html).
 * A character outside of ASCII is a consonant to it. 'Y' stands for a y that is a consonant. */
#include "analyze.h"

#include <string.h>

enum { VOWEL = 1, VOWEL_WXY = 2, BEFORE_LI = 4, AEO = 8, DOUBLED = 16 };

static const uint8_t kinds[256] = {
    ['a'] = VOWEL | VOWEL_WXY | AEO,
    ['e'] = VOWEL | VOWEL_WXY | AEO | BEFORE_LI,
    ['o'] = VOWEL | VOWEL_WXY | AEO,
    ['i'] = VOWEL | VOWEL_WXY,
    ['u'] = VOWEL | VOWEL_WXY,
    ['y'] = VOWEL | VOWEL_WXY,
    ['w'] = VOWEL_WXY,
    ['x'] = VOWEL_WXY,
    ['Y'] = VOWEL_WXY,
    ['b'] = DOUBLED,
    ['c'] = BEFORE_LI,
    ['d'] = BEFORE_LI | DOUBLED,
    ['f'] = DOUBLED,
    ['g'] = BEFORE_LI | DOUBLED,
    ['h'] = BEFORE_LI,
    ['k'] = BEFORE_LI,
    ['m'] = BEFORE_LI | DOUBLED,
    ['n'] = BEFORE_LI | DOUBLED,
    ['p'] = DOUBLED,
    ['r'] = BEFORE_LI | DOUBLED,
    ['t'] = BEFORE_LI | DOUBLED,
};

typedef struct {
    uint8_t *at;
    size_t n;
    size_t r1, r2; /* where the regions R1 and R2 begin */
    size_t vowel;  /* where the first vowel stands; n when there is none */
} word;

/* A suffix, how much of it stays, and what comes after that. */
typedef struct {
    char suffix[8];
    uint8_t n, keep;
    char add[3];
} rule;

/* Longest first. Most words are told from their last two letters to have none of the suffixes. */
typedef struct {
    uint32_t last, before; /* of all suffixes: the last letter and the one before it, a bit each */
    size_t n;
    rule at[25];
} rules;

#define L(letter) (UINT32_C(1) << ((letter) & 31))
#define RULE(suffix, keep, add) {suffix, sizeof suffix - 1, keep, add}
#define ENDS(word, suffix) ends((word)->at, (word)->n, suffix, sizeof suffix - 1)

static int ends(const uint8_t *at, size_t n, const char *suffix, size_t n_suffix) {
    return n >= n_suffix && at[n - 1] == (uint8_t)suffix[n_suffix - 1] && !memcmp(at + n - n_suffix, suffix, n_suffix);
}

static int is(const uint8_t *at, size_t n, const char *whole, size_t n_whole) {
    return n == n_whole && !memcmp(at, whole, n);
}
#define IS(at, n, whole) is(at, n, whole, sizeof whole - 1)

/* ---- before the steps ---- */

/* The words that follow no rule. */
static size_t exception(uint8_t *w, size_t n) {
    static const struct {
        char from[8];
        uint8_t n, n_stem;
        char last; /* letter of the stem */
    } words[] = {{"sky", 3, 3, 'y'},    {"bias", 4, 4, 's'},   {"howe", 4, 4, 'e'},   {"idly", 4, 3, 'l'},
                 {"news", 4, 4, 's'},   {"only", 4, 4, 'i'},   {"skis", 4, 3, 'i'},   {"ugly", 4, 4, 'i'},
                 {"andes", 5, 5, 's'},  {"atlas", 5, 5, 's'},  {"early", 5, 5, 'i'},  {"skies", 5, 3, 'y'},
                 {"cosmos", 6, 6, 's'}, {"gently", 6, 5, 'l'}, {"singly", 6, 5, 'l'}};
    const uint32_t first = L('a') | L('b') | L('c') | L('e') | L('g') | L('h') | L('i') | L('n') | L('o') | L('s') | L('u');
    if (n > 6 || !(first & L(w[0])) || !((L('e') | L('s') | L('y')) & L(w[n - 1]))) return 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].n == n && !memcmp(w, words[i].from, n)) {
            w[words[i].n_stem - 1] = (uint8_t)words[i].last;
            return words[i].n_stem;
        }
    return 0;
}

/* Whether there is any. */
static int mark_consonant_y(word *x) {
    int found = x->at[0] == 'y';
    if (found) x->at[0] = 'Y';
    for (size_t i = 1; i < x->n; i++)
        if (x->at[i] == 'y' && kinds[x->at[i - 1]] & VOWEL) x->at[i] = 'Y', found = 1;
    return found;
}

/* Behind the first vowel from `at` and the first consonant after that; n when there are none. */
static size_t region(const word *x, size_t at) {
    while (at < x->n && !(kinds[x->at[at]] & VOWEL)) at++;
    while (at < x->n && kinds[x->at[at]] & VOWEL) at++;
    return at < x->n ? at + 1 : x->n;
}

static size_t known_prefix(const word *x) {
    static const struct {
        char at[8];
        uint8_t n;
    } known[] = {{"past", 4},  {"arsen", 5}, {"emerg", 5},  {"gener", 5}, {"inter", 5},
                 {"later", 5}, {"organ", 5}, {"commun", 6}, {"univers", 7}};
    const uint32_t first = L('a') | L('c') | L('e') | L('g') | L('i') | L('l') | L('o') | L('p') | L('u');
    const uint32_t second = L('a') | L('e') | L('m') | L('n') | L('o') | L('r');
    if (x->n < 4 || !(first & L(x->at[0])) || !(second & L(x->at[1]))) return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (x->n >= known[i].n && !memcmp(x->at, known[i].at, known[i].n)) return known[i].n;
    return 0;
}

static void mark_regions(word *x) {
    const size_t prefix = known_prefix(x);
    x->vowel = 0;
    while (x->vowel < x->n && !(kinds[x->at[x->vowel]] & VOWEL)) x->vowel++;
    x->r1 = prefix ? prefix : region(x, x->vowel);
    x->r2 = region(x, x->r1);
}

/* ---- the steps ---- */

/* Do the first n letters end in a short syllable? */
static int is_short(const uint8_t *w, size_t n) {
    if (n >= 3 && !(kinds[w[n - 1]] & VOWEL_WXY) && kinds[w[n - 2]] & VOWEL && !(kinds[w[n - 3]] & VOWEL)) return 1;
    return (n == 2 && !(kinds[w[1]] & VOWEL) && kinds[w[0]] & VOWEL) || ends(w, n, "past", 4);
}

static void step_1a(word *x) {
    if (ENDS(x, "'"))
        x->n -= ENDS(x, "'s'") ? 3 : 1;
    else if (ENDS(x, "'s"))
        x->n -= 2;
    if (ENDS(x, "sses"))
        x->n -= 2;
    else if (ENDS(x, "ied") || ENDS(x, "ies"))
        x->n -= x->n >= 5 ? 2 : 1;
    else if (ENDS(x, "s") && !ENDS(x, "ss") && !ENDS(x, "us") && x->vowel + 2 < x->n)
        x->n--;
}

/* After the removal of -ed, -ing and the like. */
static void repair(word *x) {
    uint8_t *const w = x->at;
    const size_t n = x->n;
    if (ENDS(x, "at") || ENDS(x, "bl") || ENDS(x, "iz")) {
        w[x->n++] = 'e';
    } else if (n >= 2 && w[n - 1] == w[n - 2] && kinds[w[n - 1]] & DOUBLED) {
        if (!(n == 3 && kinds[w[0]] & AEO)) x->n--;
    } else if (n == x->r1 && is_short(w, n)) {
        w[x->n++] = 'e';
    }
}

/* -ing, where it is no suffix, or one of a verb in -ie. */
static int odd_ing(word *x, size_t n) {
    uint8_t *const w = x->at;
    if (n == 2 && w[1] == 'y' && !(kinds[w[0]] & VOWEL)) {
        w[1] = 'i', w[2] = 'e', x->n = 3;
        return 1;
    }
    return IS(w, n, "inn") || IS(w, n, "out") || IS(w, n, "cann") || IS(w, n, "herr") || IS(w, n, "earr") ||
           IS(w, n, "even");
}

static void step_1b(word *x) {
    const size_t ly = ENDS(x, "ly") ? 2 : 0, n = x->n - ly;
    uint8_t *const w = x->at;
    size_t left;
    if (ends(w, n, "eed", 3)) {
        left = n - 3;
        if (x->r1 > left || IS(w, left, "proc") || IS(w, left, "succ") || IS(w, left, "exc")) return;
        x->n = left + 2;
        return;
    }
    if (ends(w, n, "ed", 2))
        left = n - 2;
    else if (ends(w, n, "ing", 3))
        left = n - 3;
    else
        return;
    if ((!ly && left == n - 3 && odd_ing(x, left)) || x->vowel >= left) return;
    x->n = left;
    repair(x);
}

static void step_1c(word *x) {
    const size_t n = x->n;
    if (n >= 3 && (x->at[n - 1] | 32) == 'y' && !(kinds[x->at[n - 2]] & VOWEL)) x->at[n - 1] = 'i';
}

/* The longest suffix that the word ends in, or NULL. */
static const rule *find(const word *x, const rules *all) {
    const size_t n = x->n;
    if (n < 2 || !(all->last & L(x->at[n - 1])) || !(all->before & L(x->at[n - 2]))) return NULL;
    for (const rule *r = all->at; r < all->at + all->n; r++)
        if (r->suffix[r->n - 1] == (char)x->at[n - 1] && r->suffix[r->n - 2] == (char)x->at[n - 2] && n >= r->n &&
            !memcmp(x->at + n - r->n, r->suffix, r->n))
            return r;
    return NULL;
}

static void apply(word *x, const rule *r) {
    x->n -= r->n - r->keep;
    for (const char *add = r->add; *add; add++) x->at[x->n++] = (uint8_t)*add;
}

static void step_2(word *x) {
    static const rules all = {
        L('i') | L('l') | L('m') | L('n') | L('r') | L('s') | L('t'),
        L('a') | L('c') | L('e') | L('g') | L('l') | L('o') | L('s') | L('t'), 25, {
        RULE("ational", 2, "e"), RULE("fulness", 3, ""), RULE("iveness", 3, ""), RULE("ization", 2, "e"),
        RULE("ousness", 3, ""),  RULE("biliti", 1, "le"), RULE("lessli", 4, ""), RULE("tional", 4, ""),
        RULE("alism", 2, ""),    RULE("aliti", 2, ""),   RULE("ation", 2, "e"),  RULE("entli", 3, ""),
        RULE("fulli", 3, ""),    RULE("iviti", 2, "e"),  RULE("ogist", 2, ""),   RULE("ousli", 3, ""),
        RULE("abli", 3, "e"),    RULE("alli", 2, ""),    RULE("anci", 3, "e"),   RULE("ator", 2, "e"),
        RULE("enci", 3, "e"),    RULE("izer", 3, ""),    RULE("bli", 2, "e"),    RULE("ogi", 2, ""),
        RULE("li", 0, "")}};
    const rule *const r = find(x, &all);
    const size_t left = r ? x->n - r->n : 0;
    if (!r || left < x->r1) return;
    if (r->n == 3 && r->suffix[0] == 'o' && !(left && x->at[left - 1] == 'l')) return; /* -ogi */
    if (r->n == 2 && !(left && kinds[x->at[left - 1]] & BEFORE_LI)) return;            /* -li */
    apply(x, r);
}

static void step_3(word *x) {
    static const rules all = {
        L('e') | L('i') | L('l') | L('s'), L('a') | L('s') | L('t') | L('u') | L('v') | L('z'), 9, {RULE("ational", 2, "e"), RULE("tional", 4, ""), RULE("alize", 2, ""),
                                 RULE("ative", 0, ""),    RULE("icate", 2, ""),  RULE("iciti", 2, ""),
                                 RULE("ical", 2, ""),     RULE("ness", 0, ""),   RULE("ful", 0, "")}};
    const rule *const r = find(x, &all);
    const size_t left = r ? x->n - r->n : 0;
    if (r && left >= x->r1 && (r->suffix[1] != 't' || r->suffix[2] != 'i' || r->n != 5 || left >= x->r2)) apply(x, r);
}

static void step_4(word *x) {
    static const rules all = {
        L('c') | L('e') | L('i') | L('l') | L('m') | L('n') | L('r') | L('s') | L('t'),
        L('a') | L('c') | L('e') | L('i') | L('l') | L('n') | L('o') | L('s') | L('t') | L('u') | L('v') | L('z'), 18, {RULE("ement", 0, ""), RULE("able", 0, ""), RULE("ance", 0, ""), RULE("ence", 0, ""),
                                 RULE("ible", 0, ""),  RULE("ment", 0, ""), RULE("ant", 0, ""),  RULE("ate", 0, ""),
                                 RULE("ent", 0, ""),   RULE("ion", 0, ""),  RULE("ism", 0, ""),  RULE("iti", 0, ""),
                                 RULE("ive", 0, ""),   RULE("ize", 0, ""),  RULE("ous", 0, ""),  RULE("al", 0, ""),
                                 RULE("er", 0, ""),    RULE("ic", 0, "")}};
    const rule *const r = find(x, &all);
    const size_t left = r ? x->n - r->n : 0;
    if (!r || left < x->r2) return;
    if (r->suffix[1] == 'o' && r->suffix[2] == 'n' && !(left && (x->at[left - 1] == 's' || x->at[left - 1] == 't')))
        return; /* -ion */
    apply(x, r);
}

static void step_5(word *x) {
    const size_t left = x->n - 1;
    if (!x->n) return;
    if (x->at[left] == 'e') {
        if (left >= x->r2 || (left >= x->r1 && !is_short(x->at, left))) x->n--;
    } else if (x->at[left] == 'l' && left >= x->r2 && left && x->at[left - 1] == 'l') {
        x->n--;
    }
}

size_t analyze_stem(uint8_t *w, size_t n) {
    word x = {w, n, n, n, n};
    size_t excepted;
    int has_y;
    if (n < 3) return n;
    if ((excepted = exception(w, n)) != 0) return excepted;
    if (w[0] == '\'') memmove(w, w + 1, --x.n);
    if (w[x.n - 1] != '\'' && (w[x.n - 1] < 'a' || w[x.n - 1] > 'z')) return x.n;
    has_y = mark_consonant_y(&x);
    mark_regions(&x);
    step_1a(&x), step_1b(&x), step_1c(&x);
    step_2(&x), step_3(&x), step_4(&x), step_5(&x);
    for (size_t i = 0; has_y && i < x.n; i++)
        if (w[i] == 'Y') w[i] = 'y';
    return x.n;
}
