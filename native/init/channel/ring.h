#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "record.h"

#ifndef RING_CAPACITY
#define RING_CAPACITY 4096
#endif

/*
 * The exits that no agent has acknowledged, oldest first. Records are numbered from 0 in the order of their pushes; record
 * n is in slot n % RING_CAPACITY. A full ring displaces what the running agent was sent, and then loses what is new:
 * a living agent gets each exit even when it acknowledges none. Zero-initialised.
 */
struct ring {
  struct record slots[RING_CAPACITY];
  uint64_t oldest;        /* number of the oldest record held */
  uint64_t sent;          /* number of the first record that the running agent was not sent */
  uint64_t next;          /* number the next record will get */
  uint64_t lost;          /* exits dropped since the last overflow record */
  uint64_t acknowledged;  /* sequence number of the last exit that an agent has acknowledged */
  uint64_t sent_sequence; /* sequence number of the last exit that was sent */
};

/* Appends a copy of an exit record, or counts it as lost. */
void ring_push(struct ring *ring, const struct record *record);

/* Returns the next record to send, which counts as sent, or NULL. It is valid until the next push. */
const struct record *ring_take(struct ring *ring);

/* Removes the exits with sequence numbers up to `sequence` that were sent. */
void ring_acknowledge(struct ring *ring, uint64_t sequence);

/* Begins anew with a next agent, which is to be sent all that the ring holds. */
void ring_rewind(struct ring *ring);

/*
 * The number of exits after the last acknowledged one that are missing at the begin of the ring and that no overflow record
 * counts: those that were displaced. `last` is the sequence number of the last exit.
 */
uint64_t ring_displaced(const struct ring *ring, uint64_t last);

/* The last exit of `pid` that the ring holds, or NULL. */
const struct record *ring_find(const struct ring *ring, int32_t pid);
