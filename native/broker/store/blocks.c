#define _GNU_SOURCE
#include "blocks.h"

#include <sys/mman.h>

/* The address sanitizer reports the use of a returned block. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

static void *map(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

bool blocks_open(struct blocks *blocks, uint64_t bytes) {
  uint32_t count = (uint32_t)(bytes / BLOCK_BYTES);
  *blocks = (struct blocks){.pool_limit = count / POOL_COUNT};
  blocks->memory = map((size_t)count * BLOCK_BYTES);
  blocks->unused = map(count * sizeof *blocks->unused);
  blocks->touched = map(count);
  if (blocks->memory == NULL || blocks->unused == NULL || blocks->touched == NULL) return false;
  ASAN_POISON_MEMORY_REGION(blocks->memory, (size_t)count * BLOCK_BYTES);
  return true;
}

bool blocks_have_room(const struct blocks *blocks, enum pool pool, uint32_t held, uint32_t wanted) {
  uint32_t limit = blocks->pool_limit;
  if (held + wanted > SMALL_BLOCKS) limit -= limit / 8;
  return blocks->reserved[pool] + wanted <= limit;
}

void blocks_reserve(struct blocks *blocks, enum pool pool, uint32_t count) {
  blocks->reserved[pool] += count;
}

void blocks_release(struct blocks *blocks, enum pool pool, uint32_t count) {
  blocks->reserved[pool] -= count;
  blocks->released++;
}

struct block *block_take(struct blocks *blocks) {
  uint32_t number = blocks->unused_count > 0 ? blocks->unused[--blocks->unused_count] : blocks->used++;
  if (blocks->touched[number]) blocks->idle_pages--;
  blocks->touched[number] = true;
  struct block *block = (struct block *)(blocks->memory + (size_t)number * BLOCK_BYTES);
  ASAN_UNPOISON_MEMORY_REGION(block, BLOCK_BYTES);
  block->next = NULL;
  return block;
}

void block_return_chain(struct blocks *blocks, struct block *first) {
  while (first != NULL) {
    struct block *next = first->next;
    ASAN_POISON_MEMORY_REGION(first, BLOCK_BYTES);
    blocks->unused[blocks->unused_count++] = (uint32_t)(((unsigned char *)first - blocks->memory) / BLOCK_BYTES);
    blocks->idle_pages++;
    first = next;
  }
}

void blocks_trim(struct blocks *blocks) {
  for (uint32_t i = 0; i < blocks->unused_count; i++) {
    uint32_t number = blocks->unused[i];
    if (!blocks->touched[number]) continue;
    madvise(blocks->memory + (size_t)number * BLOCK_BYTES, BLOCK_BYTES, MADV_DONTNEED);
    blocks->touched[number] = false;
  }
  blocks->idle_pages = 0;
}
