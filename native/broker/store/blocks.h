#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The store of all frames: blocks of one page, out of one mapping of a fixed size. */

#define BLOCK_BYTES 4096

struct block {
  struct block *next;
  unsigned char bytes[BLOCK_BYTES - sizeof(struct block *)];
};

/* Requests and answers have a half of the blocks each, so that requests never leave no room for their answers. */
enum pool { POOL_REQUESTS, POOL_ANSWERS, POOL_COUNT };

/* A connection with so few blocks in a pool may use the pool's reserve, an eighth of it. */
#define SMALL_BLOCKS 16

struct blocks {
  unsigned char *memory;
  uint32_t *unused; /* a stack of the numbers of blocks that were returned */
  uint8_t *touched; /* of each block: whether it has a page */
  uint32_t unused_count;
  uint32_t used;       /* blocks that were taken once: the first ones */
  uint32_t idle_pages; /* unused blocks that have a page */
  uint32_t pool_limit;
  uint32_t reserved[POOL_COUNT]; /* of each pool, at most its limit */
  uint64_t released;             /* how often room became free */
};

/* Maps memory for `bytes`. Returns false with errno set. */
bool blocks_open(struct blocks *blocks, uint64_t bytes);

/* Whether a connection that has `held` blocks in the pool may reserve `wanted` more. */
bool blocks_have_room(const struct blocks *blocks, enum pool pool, uint32_t held, uint32_t wanted);

void blocks_reserve(struct blocks *blocks, enum pool pool, uint32_t count);
void blocks_release(struct blocks *blocks, enum pool pool, uint32_t count);

/* Takes a block that was reserved. */
struct block *block_take(struct blocks *blocks);

/* Returns a chain of blocks, which stay reserved. */
void block_return_chain(struct blocks *blocks, struct block *first);

/* Gives the pages of unused blocks back to the kernel. */
void blocks_trim(struct blocks *blocks);
