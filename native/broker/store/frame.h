#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "blocks.h"

struct connection;
struct outcome;

TAILQ_HEAD(frame_list, frame);

/* A stored ttRPC frame, header included. It begins in `head`, and goes on in the blocks after its first one. */
struct frame {
  struct block *rest; /* the place of struct block's `next`: frame and blocks are one chain */
  struct block *last; /* of the chain */
  struct connection *connection;
  TAILQ_ENTRY(frame) of_connection;
  TAILQ_ENTRY(frame) of_all; /* open requests, in the order of their arrival */
  struct outcome *outcome;   /* of an answer that is kept; otherwise NULL */
  uint64_t number;           /* of the request */
  uint64_t arrived_ns;       /* of a request: when it was whole */
  uint32_t bytes;            /* of the whole frame */
  uint32_t filled;           /* how many of them have arrived */
  uint32_t capacity;         /* what the blocks of the chain have room for */
  uint32_t blocks;           /* reserved for the frame */
  bool header_only;          /* the payload was skipped */
  bool refused;              /* it was skipped because there was no room */
  bool listed;               /* the present agent was told that it is open */
  bool handed;               /* it was sent whole to the present agent */
  bool sent_before;          /* it was sent whole to an earlier agent */
  unsigned char head[];
};

#define HEAD_BYTES (BLOCK_BYTES - offsetof(struct frame, head))

/* The most blocks that one system call fills or sends. */
#define SPAN_VECTORS 64

/* How many blocks a frame of `bytes` takes. */
uint32_t frame_blocks(uint32_t bytes);

/* Makes a frame with one block, which must be reserved, and its header. */
struct frame *frame_open(struct blocks *blocks, struct connection *connection, uint32_t bytes);

/* Adds a block, which must be reserved. */
void frame_grow(struct frame *frame, struct blocks *blocks);

/* Returns all blocks of a frame that is in no list; they are no longer reserved either. */
void frame_close(struct frame *frame, struct blocks *blocks, enum pool pool);

/* Fills `vectors` with the memory of the bytes from `from` to `to`, as far as SPAN_VECTORS reach. Returns how many. */
int frame_span(struct frame *frame, uint32_t from, uint32_t to, struct iovec vectors[SPAN_VECTORS]);
