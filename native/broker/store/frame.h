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

/*
 * A stored ttRPC frame with its header: `head`, continued in the blocks after the first. A long request is in `file`
 * instead, but as many blocks are reserved.
 */
struct frame {
  struct block *rest; /* in the place of struct block's `next` */
  struct block *last;
  struct connection *connection;
  TAILQ_ENTRY(frame) of_connection;
  TAILQ_ENTRY(frame) of_all; /* open requests, in the order of their arrival */
  struct outcome *outcome;   /* of a kept answer, or NULL */
  uint64_t number;
  uint64_t arrived_ns; /* when a request was whole */
  uint32_t bytes;
  uint32_t filled;
  uint32_t capacity; /* bytes that fit the chain */
  uint32_t blocks;
  int file;         /* or -1 */
  bool header_only; /* the payload was skipped */
  bool refused;     /* it was skipped for lack of room */
  bool listed;      /* the running agent was told of it */
  bool handed;      /* sent whole to the running agent */
  bool sent_before; /* sent whole to an earlier agent */
  unsigned char head[];
};

#define HEAD_BYTES (BLOCK_BYTES - offsetof(struct frame, head))

/* A longer request is in a file. */
#define FRAME_FILE_BYTES 65536

/* The most blocks that one system call fills or sends. */
#define SPAN_VECTORS 64

uint32_t frame_blocks(uint32_t bytes);

/* Makes a frame of one block, which must be reserved. */
struct frame *frame_open(struct blocks *blocks, struct connection *connection, uint32_t bytes);

/* Adds a block, which must be reserved. */
void frame_grow(struct frame *frame, struct blocks *blocks);

/* Gives the frame of one block a file in memory, which begins with what `head` holds. Returns false without one. */
bool frame_open_file(struct frame *frame);

/* Releases the frame's blocks. The frame must be in no list. */
void frame_close(struct frame *frame, struct blocks *blocks, enum pool pool);

/* Fills `vectors` with the bytes from `from` to `to`, up to SPAN_VECTORS. Returns how many vectors. */
int frame_span(struct frame *frame, uint32_t from, uint32_t to, struct iovec vectors[SPAN_VECTORS]);
