#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The last bytes that a stream has moved. The relay thread adds to it, the loop's thread reads it. */
struct tail;

/* Copies of bytes pass it on their way to a tail. It is empty between two moves, so that all streams share it. */
struct tap;

/* A tail of at most `capacity` bytes, more than 0. NULL with errno set when there is no memory. */
struct tail *tail_new(size_t capacity);
void tail_free(struct tail *tail);

/* Copies the bytes, at most `tail_capacity` of them, and returns how many; `total` is how many the stream has moved. */
size_t tail_read(struct tail *tail, char *bytes, uint64_t *total);
size_t tail_capacity(const struct tail *tail);

/* NULL with errno set when it cannot be opened. */
struct tap *tap_open(void);
void tap_close(struct tap *tap);

/*
 * splice(2) of up to `length` bytes from a pipe to the target, with its result and errno; the tail has a copy of what was
 * moved. Bytes that cannot be copied are moved all the same, and the tail begins after them. Sets `*is_full` when the target
 * has taken fewer bytes than were copied: to try again at once would copy for nothing.
 */
ssize_t tap_splice(struct tap *tap, struct tail *tail, int pipe, int target, size_t length, bool *is_full);
