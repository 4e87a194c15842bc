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
  STREAM_WAITS_FOR_EITHER, /* of the sides that it wants */
  STREAM_ENDED,
};

/*
 * In a file in memory, which outlives the agent. One of the two is exact at any moment: while bytes leave the pipe
 * `through`, what was received, otherwise what was delivered. That pipe holds the difference.
 */
struct totals {
  _Atomic uint64_t delivered;
  _Atomic uint64_t received;
  _Atomic uint64_t acknowledged; /* by the reader of a stream that resumes */
  _Atomic uint64_t sent_once;    /* what was delivered of it on any connection: a reader may have it */
  _Atomic uint32_t is_flushing;
  /* Of an output that resumes (kept.c): while acknowledged bytes are dropped, what was received is exact, else `dropped`. */
  _Atomic uint32_t is_dropping;
  _Atomic uint64_t dropped;
  _Atomic uint64_t sent_end; /* at the end of the pipe `sent`; UINT64_MAX: `delivered` is exact */
};

/* Owns its descriptors, which are non-blocking. */
struct stream {
  int source; /* -1 while the connection is lost */
  int target;
  bool is_input;         /* the source is the connection with the host, otherwise the target */
  bool outlives_device;  /* the loss of the connection's device ends only the connection */
  struct totals *totals; /* or NULL */
  bool resumes;          /* the reader's totals go the other way on the connection */
  uint64_t told;         /* of an input that resumes: the last total that the host was told */
  int kept;              /* of an output that resumes: the pipe where it waits (kept.c); otherwise -1 */
  int sent;
  int nowhere;
  size_t sent_bytes; /* in the pipe `sent` */
  bool is_kept_full;
  bool has_ended;    /* the process's side, of such an output */
  bool is_stopping;  /* such an output takes nothing more until it is detached */
  int through;       /* a pipe between them, open for both ends; -1 when the source is a pipe */
  size_t held_bytes; /* in that pipe */
  bool shuts_down;   /* at the end, shutdown(2) both sides */
  bool is_draining;  /* ends when the source is empty, or after `rest_bytes` */
  size_t rest_bytes;
  uint64_t moved_bytes;
  struct tail *tail; /* or NULL; not owned */
  int error;         /* errno, 0 after EOF */
};

/* One of `source` and `target` may be -1. Returns 0, or -errno, in which case the caller still owns the descriptors. */
int stream_open(struct stream *stream, int source, int target, int through);

/* Goes on with the totals at `offset` in a file; those of an output that resumes are left to kept_open. Returns 0 or -errno. */
int stream_count(struct stream *stream, int file, off_t offset, bool resumes_output);

/* Whether the stream has ended because the device of its connection is gone. */
bool stream_lost_device(const struct stream *stream);

/* The events of the source and of the target for which STREAM_WAITS_FOR_EITHER waits. */
uint32_t stream_source_events(const struct stream *stream);
uint32_t stream_target_events(const struct stream *stream);

/* Returns whether the connection can be closed now; otherwise the stream prepares for it. */
bool stream_stop(struct stream *stream);

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

/* For a stream that does not start. */
void stream_forget_totals(struct stream *stream);
