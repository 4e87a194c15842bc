#pragma once

#include "stream.h"

/* The most that a stream holds until it is acknowledged. */
#define KEPT_BYTES (256 * 1024)

/* Goes on with the output in the pipe `kept`. Returns 0, or -errno, in which case the caller still owns the pipes. */
int kept_open(struct stream *stream, int kept, int sent);

enum stream_state kept_move(struct stream *stream);

/* Whether more of the source fits. */
bool kept_has_room(const struct stream *stream);

/* Whether the reader has acknowledged all that was sent, and all is sent. */
bool kept_is_settled(const struct stream *stream);

/* Forgets what was to be sent; `delivered` is then free to change. */
void kept_detach(struct stream *stream);

/* Sends what comes after `delivered`. */
void kept_attach(const struct stream *stream);

void kept_close(const struct stream *stream);
