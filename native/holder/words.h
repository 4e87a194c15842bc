#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for the encoded form of `bytes` bytes. */
#define ENCODED_ROOM(bytes) ((bytes)*3 + 1)

/*
 * Splits a line at its spaces and decodes %XX in place. Returns the number of words, which a NULL follows, or -1 for
 * more than `max`, a NUL or a wrong %.
 */
int words_split(char *line, char **words, int max);

/* Decimal digits only, at most `max`. */
bool word_number(const char *word, uint64_t max, uint64_t *number);

/* Cuts what has no room. */
void word_encode(const char *text, char *encoded, size_t room);
