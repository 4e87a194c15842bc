#define _GNU_SOURCE
#include "frame.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(offsetof(struct frame, rest) == offsetof(struct block, next), "a frame begins as a block does");

#define REST_BYTES (sizeof((struct block *)0)->bytes)

uint32_t frame_blocks(uint32_t bytes) {
  if (bytes <= HEAD_BYTES) return 1;
  return 1 + (uint32_t)((bytes - HEAD_BYTES + REST_BYTES - 1) / REST_BYTES);
}

struct frame *frame_open(struct blocks *blocks, struct connection *connection, uint32_t bytes) {
  struct block *block = block_take(blocks);
  struct frame *frame = (struct frame *)block;
  *frame = (struct frame){
      .last = block, .connection = connection, .bytes = bytes, .capacity = HEAD_BYTES, .blocks = 1, .file = -1};
  return frame;
}

bool frame_open_file(struct frame *frame) {
  int file = memfd_create("request", MFD_CLOEXEC);
  if (file < 0) return false;
  if (pwrite(file, frame->head, frame->filled, 0) != (ssize_t)frame->filled) {
    close(file);
    return false;
  }
  frame->file = file;
  return true;
}

void frame_grow(struct frame *frame, struct blocks *blocks) {
  if (frame->file >= 0) {
    frame->capacity += REST_BYTES;
    return;
  }
  struct block *block = block_take(blocks);
  frame->last->next = block;
  frame->last = block;
  frame->capacity += REST_BYTES;
}

void frame_close(struct frame *frame, struct blocks *blocks, enum pool pool) {
  if (frame->file >= 0) close(frame->file);
  blocks_release(blocks, pool, frame->blocks);
  block_return_chain(blocks, (struct block *)frame);
}

int frame_span(struct frame *frame, uint32_t from, uint32_t to, struct iovec vectors[SPAN_VECTORS]) {
  int count = 0;
  struct block *next = frame->rest;
  unsigned char *piece = frame->head;
  uint32_t begin = 0, size = HEAD_BYTES;
  while (from < to && count < SPAN_VECTORS) {
    if (from < begin + size) {
      uint32_t offset = from - begin;
      uint32_t length = size - offset < to - from ? size - offset : to - from;
      vectors[count++] = (struct iovec){.iov_base = piece + offset, .iov_len = length};
      from += length;
    }
    if (from == to || next == NULL) break;
    begin += size;
    size = REST_BYTES;
    piece = next->bytes;
    next = next->next;
  }
  return count;
}
