#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What moves bytes until one side cannot go on. */
enum stream_state {
  STREAM_WAITS_FOR_SOURCE,
  STREAM_WAITS_FOR_TARGET,
  STREAM_HAS_MORE, /* others shall have their turn */
  STREAM_ENDED,    /* `error` says how */
};

/* One direction between two descriptors, both non-blocking and owned. */
struct stream {
  int source;
  int target;
  bool can_splice; /* until the kernel says otherwise */
  bool is_draining; /* ends when the source would be waited for, or after `rest_bytes` */
  size_t rest_bytes;
  uint64_t moved_bytes;
  int error; /* errno, 0 after EOF */
  /* What was read and could not be written yet; allocated only while there is such. */
  char *unsent;
  size_t unsent_offset;
  size_t unsent_length;
};

/* 0 or -errno, and then both descriptors are still the caller's. */
int stream_open(struct stream *stream, int source, int target);
/* Moves what it can. `scratch` is shared by all streams of a thread. */
enum stream_state stream_move(struct stream *stream, char *scratch, size_t scratch_bytes);
/* From now on it moves what the source holds, at most as much as it can hold, and waits for no more of it. */
void stream_drain(struct stream *stream);
/* false when the target's reader has gone away; true also while nothing can be said. */
bool stream_has_reader(const struct stream *stream);
/* Closes both descriptors, which is what tells the reader of the end. */
void stream_close(struct stream *stream);
