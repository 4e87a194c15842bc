#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

#ifndef RING_CAPACITY
#define RING_CAPACITY 65536
#endif

/* One slot more than exits can fill, so that a shutdown record always has room. */
#define RING_SLOTS (RING_CAPACITY + 1)

/*
 * The records that the agent has not read yet, oldest first. Records are numbered from 0 in the order of their pushes.
 * Record n is in slot n % RING_SLOTS.
 */
struct ring {
  struct record slots[RING_SLOTS];
  uint64_t oldest; /* number of the oldest record held */
  uint64_t next;   /* number the next record will get */
  uint64_t lost;   /* exits dropped since the last overflow record */
};

/* Whether the ring holds RING_CAPACITY records or more. */
bool ring_full(const struct ring *ring);

/* Appends a copy of an exit record. A full ring only counts it as lost. */
void ring_push(struct ring *ring, const struct record *record);

/* Appends a record that must not be lost. Only one such record may exceed the capacity. */
void ring_push_reserved(struct ring *ring, const struct record *record);

/* Removes every record numbered below `number`, then appends an overflow record if exits were lost. */
void ring_release(struct ring *ring, uint64_t number);

/* The contiguous bytes from `offset` on, counted from the start of record 0. Sets `*length`, 0 at the end. */
const void *ring_bytes(const struct ring *ring, uint64_t offset, size_t *length);
