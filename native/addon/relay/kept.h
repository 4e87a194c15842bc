#pragma once

#include "stream.h"

/* The most that a stream holds until it is acknowledged. */
#define KEPT_BYTES (256 * 1024)

/* Goes on with the output in a file whose position is its end; `sent` is another open file of it. Returns 0 or -errno. */
int kept_open(struct stream *stream, int file, int sent);

enum stream_state kept_move(struct stream *stream);

/* Whether the reader has acknowledged all that was sent, and all is sent. */
bool kept_is_settled(const struct stream *stream);

/* Sends what comes after the position of `sent`. */
void kept_attach(struct stream *stream);

void kept_close(const struct stream *stream);
