#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

#ifndef RING_CAPACITY
#define RING_CAPACITY 65536
#endif

/* One slot more than exits may fill, so that a shutdown always finds room. */
#define RING_SLOTS (RING_CAPACITY + 1)

/*
 * The records that the agent has not read yet, oldest first. Records are numbered from 0 in the order they
 * were pushed; record n lives in slot n % RING_SLOTS.
 */
struct ring {
  struct record slots[RING_SLOTS];
  uint64_t oldest; /* number of the oldest record held */
  uint64_t next;   /* number the next record will get */
  uint64_t lost;   /* exits dropped since the last overflow record */
};

/* Whether `RING_CAPACITY` records are held. */
bool ring_full(const struct ring *ring);

/* Appends a copy of `record`; when the ring is full it is only counted as lost. */
void ring_push(struct ring *ring, const struct record *record);

/* Appends a record that must not be lost. There is room for one over the capacity. */
void ring_push_reserved(struct ring *ring, const struct record *record);

/* Forgets every record numbered below `number`, and reports lost exits in the room that this makes. */
void ring_release(struct ring *ring, uint64_t number);

/* The longest run of bytes that lies contiguous in memory from `offset` on, counted from record 0. Sets `*length`. */
const void *ring_bytes(const struct ring *ring, uint64_t offset, size_t *length);
