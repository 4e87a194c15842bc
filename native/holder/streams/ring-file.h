#pragma once

#include "../state.h"

/*
 * console.ring or streams/NUMBER.ring: this header, then from RING_DATA_OFFSET on `span` bytes, where the byte at
 * position P of the stream is at P modulo `span`. Little endian. It is read when the holder is dead: `span` exceeds the
 * capacity by the longest write, so that a write whose end is not yet in the header has overwritten nothing that is kept.
 */
struct ring_header {
  char magic[8];
  uint32_t version;
  uint32_t is_closed;
  uint64_t capacity;
  uint64_t span;
  uint64_t base;
  uint64_t end;
};
_Static_assert(sizeof(struct ring_header) == 48, "48 bytes in the file");

#define RING_MAGIC "HOLDRING"
#define RING_VERSION 1
#define RING_DATA_OFFSET 4096

/* Opens or makes the whole file. Goes on after the bytes of an earlier holder. Returns false with errno set. */
bool ring_file_open(struct ring *ring, uint32_t number);

/* Goes on after the bytes that its file has by now. */
void ring_take(struct ring *ring);

/* Closes and removes it. */
void ring_file_remove(struct ring *ring);

uint64_t ring_first(const struct ring *ring);

/* How many bytes from `position` on are in one piece. */
size_t ring_piece(const struct ring *ring, uint64_t position);

/* Appends at most ring_piece(ring, ring->end) bytes. What cannot be written is lost, and all before it. */
void ring_append(struct ring *ring, const char *bytes, size_t length);

/* Returns the number of bytes read, at most one piece; or -1 with errno set. */
ssize_t ring_read(const struct ring *ring, uint64_t position, char *bytes, size_t length);

void ring_store(const struct ring *ring);
