#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Copies of bytes pass it on their way to the tails of all streams of a thread. */
struct tap;

/*
 * The last bytes of a stream, those that still wait in the pipe that it is moved from included. The relay thread moves the
 * stream, the loop's thread reads and frees the tail.
 */
struct tail;

/* A tail of at most `capacity` bytes, more than 0. NULL with errno set when there is no memory. The tap outlives it. */
struct tail *tail_new(struct tap *tap, int pipe, size_t capacity);
void tail_free(struct tail *tail);

/* Copies the bytes, at most `tail_capacity` of them, and returns how many; `total` is the offset after them. */
size_t tail_read(struct tail *tail, char *bytes, uint64_t *total);
size_t tail_capacity(const struct tail *tail);

/* Takes what has not left the pipe, which may be closed then. */
void tail_end(struct tail *tail);

/* NULL with errno set when it cannot be opened. */
struct tap *tap_open(void);
void tap_close(struct tap *tap);

/*
 * splice(2) of up to `length` bytes from the pipe to the target, with its result and errno. Bytes that cannot be copied are
 * moved all the same, and the tail begins after them. Sets `*is_full` when the target has taken fewer bytes than it was
 * offered: to try again at once would copy for nothing.
 */
ssize_t tail_splice(struct tail *tail, int target, size_t length, bool *is_full);
