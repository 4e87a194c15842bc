#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A pipe that all tails of a thread use to copy bytes. */
struct tap;

/* The last bytes of a stream. The relay thread moves the stream; the loop's thread reads and frees the tail. */
struct tail;

/* `capacity` is above 0. Returns NULL with errno set when there is no memory. The tap must outlive the tail. */
struct tail *tail_new(struct tap *tap, int pipe, size_t capacity);
void tail_free(struct tail *tail);

/* Copies at most `tail_capacity` bytes and returns how many. `total` is the offset after them. */
size_t tail_read(struct tail *tail, char *bytes, uint64_t *total);
size_t tail_capacity(const struct tail *tail);

/* Copies what the pipe still holds. The pipe may be closed afterwards. */
void tail_end(struct tail *tail);

struct tap *tap_open(void);
void tap_close(struct tap *tap);

/* splice(2) with its result and errno. `*is_full`: the target took fewer bytes than offered, so try later. */
ssize_t tail_splice(struct tail *tail, int target, size_t length, bool *is_full);
