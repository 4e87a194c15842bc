#define _GNU_SOURCE
#include "ring.h"

#include "../clock.h"

bool ring_full(const struct ring *ring) {
  return ring->next - ring->oldest >= RING_CAPACITY;
}

void ring_push(struct ring *ring, const struct record *record) {
  if (ring_full(ring)) {
    ring->lost++;
    return;
  }
  ring_push_reserved(ring, record);
}

void ring_push_reserved(struct ring *ring, const struct record *record) {
  ring->slots[ring->next % RING_SLOTS] = *record;
  ring->next++;
}

void ring_release(struct ring *ring, uint64_t number) {
  if (number > ring->oldest) ring->oldest = number;
  /* Exits are lost only while the ring is full, so they belong into the first slot that becomes free. */
  if (ring->lost == 0 || ring_full(ring)) return;
  struct record overflow = {
      .version = RECORD_VERSION,
      .kind = RECORD_OVERFLOW,
      .boottime_ns = boottime_ns(),
      .sequence = ring->lost,
  };
  ring->lost = 0;
  ring_push_reserved(ring, &overflow);
}

const void *ring_bytes(const struct ring *ring, uint64_t offset, size_t *length) {
  uint64_t number = offset / sizeof(struct record);
  size_t within = offset % sizeof(struct record);
  size_t slot = number % RING_SLOTS;
  uint64_t records = ring->next - number;
  if (records > RING_SLOTS - slot) records = RING_SLOTS - slot;
  *length = records == 0 ? 0 : records * sizeof(struct record) - within;
  return (const char *)&ring->slots[slot] + within;
}
