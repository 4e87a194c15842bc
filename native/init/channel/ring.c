#define _GNU_SOURCE
#include "ring.h"

#include <stddef.h>

#include "../clock.h"

static struct record *slot(struct ring *ring, uint64_t number) {
  return &ring->slots[number % RING_CAPACITY];
}

/* Returns whether a record fits, if necessary in the place of one that was sent. */
static bool make_room(struct ring *ring) {
  if (ring->next - ring->oldest < RING_CAPACITY) return true;
  if (ring->oldest == ring->sent) return false;
  ring->oldest++;
  return true;
}

/* Reports lost exits once there is room. Returns whether an exit may follow. */
static bool report_lost(struct ring *ring) {
  if (ring->lost == 0) return true;
  if (!make_room(ring)) return false;
  *slot(ring, ring->next++) = (struct record){
      .version = RECORD_VERSION,
      .kind = RECORD_OVERFLOW,
      .boottime_ns = boottime_ns(),
      .sequence = ring->lost,
  };
  ring->lost = 0;
  return true;
}

void ring_push(struct ring *ring, const struct record *record) {
  if (report_lost(ring) && make_room(ring))
    *slot(ring, ring->next++) = *record;
  else
    ring->lost++;
}

const struct record *ring_take(struct ring *ring) {
  if (ring->sent == ring->next) report_lost(ring);
  if (ring->sent == ring->next) return NULL;
  const struct record *record = slot(ring, ring->sent++);
  if (record->kind == RECORD_EXIT && record->sequence > ring->sent_sequence) ring->sent_sequence = record->sequence;
  return record;
}

void ring_acknowledge(struct ring *ring, uint64_t sequence) {
  if (sequence > ring->sent_sequence) sequence = ring->sent_sequence;
  if (sequence <= ring->acknowledged) return;
  ring->acknowledged = sequence;
  /* An overflow record has no sequence number, and is removed with the exit after it. */
  for (uint64_t number = ring->oldest; number < ring->sent; number++) {
    const struct record *record = slot(ring, number);
    if (record->kind != RECORD_EXIT) continue;
    if (record->sequence > sequence) break;
    ring->oldest = number + 1;
  }
}

void ring_rewind(struct ring *ring) {
  ring->sent = ring->oldest;
}

uint64_t ring_displaced(const struct ring *ring, uint64_t last) {
  uint64_t counted = 0;
  for (uint64_t number = ring->oldest; number < ring->next; number++) {
    const struct record *record = &ring->slots[number % RING_CAPACITY];
    if (record->kind == RECORD_EXIT) return record->sequence - 1 - ring->acknowledged - counted;
    counted += record->sequence;
  }
  return last - ring->acknowledged - counted - ring->lost;
}

const struct record *ring_find(const struct ring *ring, int32_t pid) {
  for (uint64_t number = ring->next; number > ring->oldest; number--) {
    const struct record *record = &ring->slots[(number - 1) % RING_CAPACITY];
    if (record->kind == RECORD_EXIT && record->pid == pid) return record;
  }
  return NULL;
}
