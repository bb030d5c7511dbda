/* For the C tests: what is not so ends the program, and says where; and chance that is the same in every run. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(truth)                                                        \
    do {                                                                    \
        if (!(truth)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #truth); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* 31 bits of Knuth's linear congruential generator (MMIX). */
static uint32_t drawn(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}
