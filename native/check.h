/* For the C tests: what is not so ends the program, and says where. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(truth)                                                        \
    do {                                                                    \
        if (!(truth)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #truth); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)
