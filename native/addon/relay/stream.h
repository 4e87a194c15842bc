#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tail.h"

enum stream_state {
  STREAM_WAITS_FOR_SOURCE,
  STREAM_WAITS_FOR_TARGET,
  STREAM_HAS_MORE,
  STREAM_ENDED,
};

/* Owns its descriptors, which are non-blocking. */
struct stream {
  int source;
  int target;
  int through;       /* a pipe between them, open for both ends; -1 when the source is a pipe */
  size_t held_bytes; /* in that pipe */
  bool shuts_down;   /* at the end, shutdown(2) both sides */
  bool is_draining;  /* ends when the source is empty, or after `rest_bytes` */
  size_t rest_bytes;
  uint64_t moved_bytes;
  struct tail *tail; /* or NULL; not owned */
  int error;         /* errno, 0 after EOF */
};

/* Returns 0, or -errno, in which case the caller still owns the descriptors. */
int stream_open(struct stream *stream, int source, int target, int through);

enum stream_state stream_move(struct stream *stream);

/* Ends the stream once the source is empty, or after as many bytes as the source can hold. */
void stream_drain(struct stream *stream);

/* Returns false when the target's reader is known to be gone. */
bool stream_has_reader(const struct stream *stream);

void stream_close(struct stream *stream);
