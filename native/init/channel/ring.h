#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "record.h"

#ifndef RING_CAPACITY
#define RING_CAPACITY 4096
#endif

/* Unacknowledged exits. A full ring displaces records that the running agent was sent, or loses the new exit. */
struct ring {
  struct record slots[RING_CAPACITY];
  uint64_t oldest;
  uint64_t sent; /* first record that the running agent was not sent */
  uint64_t next;
  uint64_t lost;         /* exits dropped since the last overflow record */
  uint64_t acknowledged; /* last sequence number that an agent has acknowledged */
  uint64_t sent_sequence;
};

/* Appends an exit, or counts it as lost. */
void ring_push(struct ring *ring, const struct record *record);

/* Returns the next record and counts it as sent, or NULL. Valid until the next push. */
const struct record *ring_take(struct ring *ring);

/* Removes the sent exits up to `sequence`. */
void ring_acknowledge(struct ring *ring, uint64_t sequence);

/* Counts all records as unsent, for the next agent. */
void ring_rewind(struct ring *ring);

/* Returns how many unacknowledged exits were displaced. `last` is the sequence number of the last exit. */
uint64_t ring_displaced(const struct ring *ring, uint64_t last);

const struct record *ring_find(const struct ring *ring, int32_t pid);
