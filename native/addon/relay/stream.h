#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tail.h"

enum stream_state {
  STREAM_WAITS_FOR_SOURCE,
  STREAM_WAITS_FOR_TARGET,
  STREAM_HAS_MORE,
  STREAM_WAITS_FOR_CONNECTION,
  STREAM_ENDED,
};

/*
 * In a file in memory, which outlives the agent. One of the two is exact at any moment: while bytes leave the pipe
 * `through`, what was received, otherwise what was delivered. That pipe holds the difference.
 */
struct totals {
  _Atomic uint64_t delivered;
  _Atomic uint64_t received;
  _Atomic uint32_t is_flushing;
};

/* Owns its descriptors, which are non-blocking. */
struct stream {
  int source; /* -1 while the connection is lost */
  int target;
  bool is_input;         /* the source is the connection with the host, otherwise the target */
  bool outlives_device;  /* the loss of the connection's device ends only the connection */
  struct totals *totals; /* or NULL */
  int through;           /* a pipe between them, open for both ends; -1 when the source is a pipe */
  size_t held_bytes;     /* in that pipe */
  bool shuts_down;       /* at the end, shutdown(2) both sides */
  bool is_draining;      /* ends when the source is empty, or after `rest_bytes` */
  size_t rest_bytes;
  uint64_t moved_bytes;
  struct tail *tail; /* or NULL; not owned */
  int error;         /* errno, 0 after EOF */
};

/* One of `source` and `target` may be -1. Returns 0, or -errno, in which case the caller still owns the descriptors. */
int stream_open(struct stream *stream, int source, int target, int through);

/* Goes on with the totals at `offset` in a file. Returns 0 or -errno. */
int stream_count(struct stream *stream, int file, off_t offset);

/* Whether the stream has ended because the device of its connection is gone. */
bool stream_lost_device(const struct stream *stream);

/* Closes the connection only. */
void stream_detach(struct stream *stream);

/* Takes another connection. Returns 0, or -errno, in which case the caller still owns it. */
int stream_attach(struct stream *stream, int connection);

enum stream_state stream_move(struct stream *stream);

/* Ends the stream once the source is empty, or after as many bytes as the source can hold. */
void stream_drain(struct stream *stream);

/* Returns false when the target's reader is known to be gone. */
bool stream_has_reader(const struct stream *stream);

void stream_close(struct stream *stream);
