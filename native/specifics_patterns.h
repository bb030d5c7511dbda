/* The patterns of analyze/specific.py, each under its name or what it is for: for specifics.c alone. Each returns where its match
 * ends, or 0. Where a pattern of Python's would try again with less, it says why nothing is left to try, or tries it. */
#ifndef LANTERN_SPECIFICS_PATTERNS_H
#define LANTERN_SPECIFICS_PATTERNS_H
#include "specifics_text.h"

static int is_plain(const window *w, int i) {
    const int end = run(w, i, LOW), n = run(w, i, WORD) - i;
    if (end == i) return 0;
    if (w->k[end] & (WORD | DOT | AT | PLUS | DASH | SLASH | COLON | EQUALS | OPENS)) return 0;
    if (w->c[end] == ' ' && w->c[end + 1] == '=') return 0;
    if (n >= 7 && n <= 40 && run(w, i, HEX) >= i + n) return 0; /* letters alone: no digit comes before `end` */
    return !(flags_of(w, i, i + n, 0) & (SPECIFICS_WHICH | SPECIFICS_DAY | SPECIFICS_COUNT));
}

static int url(const window *w, int i) {
    int at;
    if (!begins(w, i, "http")) return 0;
    at = i + 4 + (w->c[i + 4] == 's');
    if (!begins(w, at, "://")) return 0;
    for (i = at += 3; w->c[at] && !(w->k[at] & SPACE) && (w->c[at] >= 0x80 || !memchr("<>\"'`)]", (int)w->c[at], 7)); at++) {}
    return at > i ? at : 0;
}

static int mail(const window *w, int i) {
    int at = run(w, i, WORD | DOT | PLUS | DASH), host;
    if (at == i || w->c[at] != '@') return 0;
    host = run(w, at + 1, WORD | DASH);
    return host > at + 1 && w->c[host] == '.' ? to_last_word(w, host + 1, WORD | DOT | DASH) : 0;
}

/* A piece between two signs, without them or a line break in it. */
static int between(const window *w, int i, int least, int most) {
    int at = i + 1;
    while (w->c[at] && w->c[at] != w->c[i] && w->c[at] != '\n' && at - i - 1 <= most) at++;
    return at - i - 1 >= least && at - i - 1 <= most && w->c[at] == w->c[i] ? at + 1 : 0;
}

static int code(const window *w, int i) {
    const int end = w->c[i - 1] == '`' ? 0 : between(w, i, 2, 80);
    return w->c[end] == '`' && end ? 0 : end;
}

static int assign(const window *w, int i) {
    int at;
    if (!(w->k[i] & LETTER) && w->c[i] != '_') return 0;
    at = run(w, i + 1, WORD | DOT | DASH);
    at += w->c[at] == ' ';
    if (w->c[at] != '=') return 0;
    at++;
    at += w->c[at] == ' ';
    at += (w->k[at] & QUOTE) != 0;
    return to_last_word(w, at, WORD | DOT | SLASH | COLON | AT | PERCENT | PLUS | DASH);
}

/* Behind one or more of /name from i on, or 0. */
static int names_of_path(const window *w, int i) {
    int end = 0;
    for (int next_end; w->c[i] == '/' && (next_end = to_last_word(w, i + 1, WORD | DOT | AT | PLUS | DASH)) != 0;) i = end = next_end;
    return end;
}

static int path_from_root(const window *w, int i) {
    int end;
    if (w->k[i - 1] & (WORD | SLASH)) return 0;
    if (w->c[i] == '~') i++;
    else if (w->c[i] == '.') i += w->c[i + 1] == '.' ? 2 : 1;
    end = names_of_path(w, i);
    return end ? end + (w->c[end] == '/') : 0;
}

static int path_of_windows(const window *w, int i) {
    int at = i + 3;
    if (!(w->k[i] & LETTER) || !begins(w, i + 1, ":\\")) return 0;
    while (w->c[at] && !(w->k[at] & SPACE) && (w->c[at] >= 0x80 || !memchr("\"'<>|", (int)w->c[at], 5))) at++;
    return at > i + 3 ? at : 0;
}

static int path_of_names(const window *w, int i) {
    return names_of_path(w, run(w, i + 1, WORD | DOT | AT | PLUS | DASH));
}

/* a-file.name.py: the last of its dots behind which an extension stands. */
static int file(const window *w, int i) {
    int end = 0;
    for (int at = run(w, i, WORD | DASH); at > i && w->c[at] == '.';) {
        const int word = run(w, at + 1, WORD), next_end = run(w, at + 1, WORD | DASH);
        if (flags_of(w, at + 1, word, 0) & SPECIFICS_EXTENSION) end = word;
        if (next_end == at + 1) break;
        at = next_end;
    }
    return end;
}

/* Behind n digits, or 0. */
static int digits(const window *w, int i, int n) {
    for (; n; n--, i++)
        if (!(w->k[i] & DIGIT)) return 0;
    return i;
}

static int month(const window *w, int i) {
    const int end = run(w, i, WORD);
    return flags_of(w, i, end, 0) & SPECIFICS_MONTH ? end : 0;
}

/* (?:,? \d{4})?\b from i on, or 0. */
static int year(const window *w, int i) {
    const int comma = i + (w->c[i] == ','), end = w->c[comma] == ' ' ? digits(w, comma + 1, 4) : 0;
    if (end && is_border(w, end)) return end;
    return is_border(w, i) ? i : 0;
}

static int is_suffix(const window *w, int i) {
    return begins(w, i, "st") || begins(w, i, "nd") || begins(w, i, "rd") || begins(w, i, "th");
}

static int day_and_month(const window *w, int i) {
    for (int n = 2; n; n--) {
        const int day = digits(w, i, n);
        for (int suffix = day && is_suffix(w, day); day && suffix >= 0; suffix--)
            for (int of = begins(w, day + 2 * suffix, " of"); of >= 0; of--) {
                const int at = day + 2 * suffix + 3 * of, named = w->c[at] == ' ' ? month(w, at + 1) : 0;
                const int end = named ? year(w, named) : 0;
                if (end) return end;
            }
    }
    return 0;
}

static int month_and_day(const window *w, int i) {
    int at = month(w, i);
    if (!at) return 0;
    at += w->c[at] == '.';
    if (w->c[at] != ' ') return 0;
    for (int n = 2; n; n--) {
        const int day = digits(w, at + 1, n);
        for (int suffix = day && is_suffix(w, day); day && suffix >= 0; suffix--) {
            const int end = year(w, day + 2 * suffix);
            if (end) return end;
        }
    }
    return 0;
}

static int month_and_year(const window *w, int i) {
    const int at = month(w, i), end = at && w->c[at] == ' ' ? digits(w, at + 1, 4) : 0;
    return end && is_border(w, end) ? end : 0;
}

static int iso_date(const window *w, int i) {
    int end = digits(w, i, 4);
    end = end && w->c[end] == '-' ? digits(w, end + 1, 2) : 0;
    end = end && w->c[end] == '-' ? digits(w, end + 1, 2) : 0;
    return end && is_border(w, end) ? end : 0;
}

/* ` ?[apAP]\.?[mM]\b` from i on, or 0. */
static int half_of_day(const window *w, int i, int dotted) {
    i += w->c[i] == ' ';
    if ((w->c[i] | 32) != 'a' && (w->c[i] | 32) != 'p') return 0;
    i++;
    i += dotted && w->c[i] == '.';
    return (w->c[i] | 32) == 'm' && is_border(w, i + 1) ? i + 1 : 0;
}

static int time_of_day(const window *w, int i) {
    for (int n = 2; n; n--) {
        const int hour = digits(w, i, n);
        int end = hour && w->c[hour] == ':' ? digits(w, hour + 1, 2) : 0, half;
        if (!end) continue;
        if (w->c[end] == ':' && digits(w, end + 1, 2)) end += 3;
        half = half_of_day(w, end, 1);
        return half ? half : end;
    }
    for (int n = 2; n; n--) {
        const int hour = digits(w, i, n), end = hour ? half_of_day(w, hour, 0) : 0;
        if (end) return end;
    }
    return 0;
}

static int relative_day(const window *w, int i, int word, uint32_t flags) {
    const int number = run(w, i, DIGIT);
    if (flags & SPECIFICS_WHICH && w->c[word] == ' ') {
        const int end = run(w, word + 1, WORD);
        if (flags_of(w, word + 1, end, 0) & SPECIFICS_PERIOD) return end;
    }
    if (flags & SPECIFICS_DAY) return word;
    if ((flags & SPECIFICS_COUNT || number == word) && w->c[word] == ' ') {
        const int end = run(w, word + 1, WORD);
        if (flags_of(w, word + 1, end, 0) & SPECIFICS_UNIT && begins(w, end, " ago") && is_border(w, end + 4)) return end + 4;
    }
    return 0;
}

static int date(const window *w, int i, int word, uint32_t flags) {
    int end = 0;
    if (w->k[i] & DIGIT) {
        if ((end = iso_date(w, i)) || (end = day_and_month(w, i)) || (end = time_of_day(w, i))) return end;
    } else if (flags & SPECIFICS_MONTH) {
        if ((end = month_and_day(w, i)) || (end = month_and_year(w, i))) return end;
    } else if (flags & SPECIFICS_WEEKDAY) {
        return word;
    }
    return relative_day(w, i, word, flags);
}

static int flag(const window *w, int i) {
    int end, value;
    if (w->k[i - 1] & (WORD | DASH) || !begins(w, i, "--") || !(w->k[i + 2] & LETTER)) return 0;
    end = run(w, i + 3, WORD | DASH);
    value = w->c[end] == '=' ? run(w, end + 1, WORD | DOT | SLASH | COLON | DASH) : 0;
    return value > end + 1 ? value : end;
}

/* Behind all of (?:\.\d+)* from i on; *n of them, and where the last but one ended. */
static int numbers(const window *w, int i, int *n, int *before) {
    for (*n = 0, *before = i; w->c[i] == '.' && w->k[i + 1] & DIGIT; ++*n) *before = i, i = run(w, i + 1, DIGIT);
    return i;
}

/* v1.2.3-rc.1:80 behind the third number; 0 when a word goes on there. */
static int rest_of_version(const window *w, int i) {
    const int more = w->k[i] & (DASH | PLUS) ? to_last_word(w, i + 1, WORD | DOT) : 0;
    const int at = more ? more : i, port = w->c[at] == ':' ? run(w, at + 1, DIGIT) : 0;
    if (port > at + 1 && is_border(w, port)) return port;
    return is_border(w, at) ? at : 0;
}

static int version(const window *w, int i) {
    const int is_v = w->c[i] == 'v', first = run(w, i + is_v, DIGIT);
    int n, before, end, whole;
    if (first == i + is_v) return 0;
    end = numbers(w, first, &n, &before);
    whole = n >= 2 ? rest_of_version(w, end) : 0;
    if (whole) return whole;
    if (n >= 3) return before;
    if (!is_v) return 0;
    return is_border(w, end) ? end : n ? before : 0;
}

/* parse_config, parseConfig, ParseConfig: is the word of that form? */
static int is_joined(const window *w, int i, int word) {
    int at = run(w, i + 1, LOW), last = word - 2;
    if (!(w->k[i] & LETTER)) return 0;
    if (w->k[i] & LOW && w->k[at] & CAPITAL) return 1;
    while (last > i && w->c[last] != '_') last--;
    if (last > i) return 1;
    if (!(w->k[i] & CAPITAL) || at == i + 1 || !(w->k[at] & CAPITAL)) return 0;
    while (w->k[at] & LETTER || (w->c[at] >= '0' && w->c[at] <= '9')) at++;
    return at == word;
}

/* a.name.with.dots, each of two characters or more. */
static int dotted(const window *w, int i, int word) {
    int end = 0;
    if ((!(w->k[i] & LETTER) && w->c[i] != '_') || word < i + 2) return 0;
    for (int at = word; w->c[at] == '.' && (w->k[at + 1] & LETTER || w->c[at + 1] == '_') && w->k[at + 2] & WORD;)
        at = end = run(w, at + 1, WORD);
    return end;
}

static int is_capital_or_number(const window *w, int i) { return w->k[i] & CAPITAL || (w->c[i] >= '0' && w->c[i] <= '9'); }

/* ERR-2047 and HTTP: capitals and numbers, in groups; the last group is left out when a word goes on behind it. */
static int capitals(const window *w, int i) {
    int at = i + 1, before = 0;
    if (!(w->k[i] & CAPITAL)) return 0;
    while (is_capital_or_number(w, at)) at++;
    if (at == i + 1) return 0;
    while (w->c[at] == '-' && is_capital_or_number(w, at + 1))
        for (before = at++; is_capital_or_number(w, at);) at++;
    return is_border(w, at) ? at : before;
}

static int hexadecimal(const window *w, int i) {
    int at = i + 2;
    if (!begins(w, i, "0x")) return 0;
    while (w->k[at] & HEX || (w->c[at] >= 'A' && w->c[at] <= 'F')) at++;
    return at > i + 2 && is_border(w, at) ? at : 0;
}

/* gpt-4, abc-def-2b, abc2: letters, groups of letters behind dashes, and somewhere a digit. Wherever the first digit is, the
 * match goes on to the last word character of the run. */
static int numbered(const window *w, int i) {
    int at = i;
    if (!(w->k[i] & LETTER)) return 0;
    while (!(w->k[at] & DIGIT)) {
        if (w->c[at] == '-' && w->k[at + 1] & (LETTER | DIGIT)) at++;
        else if (w->k[at] & LETTER) at++;
        else return 0;
    }
    return to_last_word(w, i, WORD | DASH);
}

static int id(const window *w, int i, int word) {
    int end;
    if (is_joined(w, i, word)) return word;
    if ((end = dotted(w, i, word))) return end;
    if (begins(w, word, "()")) return word + 2;
    if ((end = capitals(w, i)) || (end = hexadecimal(w, i)) || (end = numbered(w, i))) return end;
    return word - i >= 7 && word - i <= 40 && run(w, i, HEX) >= word ? word : 0;
}

static int unit(const window *w, int i) {
    const uint32_t c = w->c[i] < 0x80 ? w->c[i] | 32 : 0;
    if (w->c[i] == '%') return i + 1;
    if (c == 'k' || c == 'm' || c == 'g') {
        if ((w->c[i + 1] | 32) == 'b' && is_border(w, i + 2)) return i + 2;
        if (is_border(w, i + 1)) return i + 1;
    }
    if ((begins(w, i, "ms") || begins(w, i, "px")) && is_border(w, i + 2)) return i + 2;
    if ((w->c[i] == 's' || w->c[i] == 'h') && is_border(w, i + 1)) return i + 1;
    return i;
}

static int number(const window *w, int i) {
    if (w->c[i] == '$' || w->c[i] == 0x20AC || w->c[i] == 0xA3) i++;
    if (!(w->k[i] & DIGIT)) return 0;
    while (w->k[i] & DIGIT || w->c[i] == ',') i++;
    if (w->c[i] == '.' && w->k[i + 1] & DIGIT) i = run(w, i + 1, DIGIT);
    return unit(w, i);
}

static int capitalised(const window *w, int i) {
    const int end = w->k[i] & CAPITAL ? run(w, i + 1, LATIN) : i;
    return end > i + 1 ? end : 0;
}

static int name(const window *w, int i) {
    static const char *const joins[] = {"of ", "the ", "de ", "van "};
    int end = capitalised(w, i);
    while (end && w->c[end] == ' ') {
        int more = capitalised(w, end + 1);
        for (size_t j = 0; !more && j < sizeof joins / sizeof *joins; j++)
            if (begins(w, end + 1, joins[j])) more = capitalised(w, end + 1 + (int)strlen(joins[j]));
        if (!more) break;
        end = more;
    }
    return end;
}

#endif
