#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The store of all frames: blocks of one page in one mapping of fixed size. */

#define BLOCK_BYTES 4096

struct block {
  struct block *next;
  unsigned char bytes[BLOCK_BYTES - sizeof(struct block *)];
};

/* Each pool has half of the blocks, so that requests always leave room for answers. */
enum pool { POOL_REQUESTS, POOL_ANSWERS, POOL_COUNT };

/* A connection with at most this many blocks may use the pool's reserve, an eighth of it. */
#define SMALL_BLOCKS 16

struct blocks {
  unsigned char *memory;
  uint32_t *unused; /* a stack of block numbers */
  uint8_t *touched; /* of each block: it has a page */
  uint32_t unused_count;
  uint32_t used;       /* blocks that were ever taken */
  uint32_t idle_pages; /* unused blocks that have a page */
  uint32_t pool_limit;
  uint32_t reserved[POOL_COUNT];
  uint64_t released;
};

/* Returns false with errno set. */
bool blocks_open(struct blocks *blocks, uint64_t bytes);

/* Whether a connection that has `held` blocks in the pool may reserve `wanted` more. */
bool blocks_have_room(const struct blocks *blocks, enum pool pool, uint32_t held, uint32_t wanted);

void blocks_reserve(struct blocks *blocks, enum pool pool, uint32_t count);
void blocks_release(struct blocks *blocks, enum pool pool, uint32_t count);

/* The block must be reserved. */
struct block *block_take(struct blocks *blocks);

/* The blocks stay reserved. */
void block_return_chain(struct blocks *blocks, struct block *first);

void blocks_trim(struct blocks *blocks);
