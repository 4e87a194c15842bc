#define _GNU_SOURCE
#include "ring-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file with more is damaged. */
#define END_MAX (1ull << 62)

#define PATH_BYTES sizeof "streams/4294967295.ring"

static void path_of(uint32_t number, char path[PATH_BYTES]) {
  if (number == 0)
    strcpy(path, "console.ring");
  else
    snprintf(path, PATH_BYTES, "streams/%u.ring", number);
}

static uint64_t span_of(const struct ring *ring) {
  return ring->capacity + CHUNK_BYTES;
}

/* Takes over the state of an earlier holder, if the file has one. */
void ring_take(struct ring *ring) {
  struct ring_header header;
  if (pread(ring->file, &header, sizeof header, 0) != sizeof header) return;
  if (memcmp(header.magic, RING_MAGIC, sizeof header.magic) != 0 || header.version != RING_VERSION) return;
  if (header.capacity != ring->capacity || header.span != span_of(ring) || header.base > header.end ||
      header.end > END_MAX)
    return;
  ring->base = header.base;
  ring->end = header.end;
}

bool ring_file_open(struct ring *ring, uint32_t number) {
  if (number != 0 && mkdir("streams", 0700) != 0 && errno != EEXIST) return false;
  char path[PATH_BYTES];
  path_of(number, path);
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  *ring = (struct ring){
      .number = number,
      .capacity = number == 0 ? CONSOLE_RING_BYTES : STREAM_RING_BYTES,
      .file = file,
      .peer.fd = -1,
      .port.fd = -1,
      .wait_since_ms = NEVER,
  };
  ring_take(ring);
  int error = posix_fallocate(file, 0, (off_t)(RING_DATA_OFFSET + span_of(ring)));
  if (error != 0) {
    ring_file_remove(ring);
    errno = error;
    return false;
  }
  ring_store(ring);
  return true;
}

void ring_file_remove(struct ring *ring) {
  char path[PATH_BYTES];
  path_of(ring->number, path);
  close(ring->file);
  unlink(path);
}

uint64_t ring_first(const struct ring *ring) {
  uint64_t kept = ring->end > ring->capacity ? ring->end - ring->capacity : 0;
  return kept > ring->base ? kept : ring->base;
}

size_t ring_piece(const struct ring *ring, uint64_t position) {
  size_t piece = (size_t)(span_of(ring) - position % span_of(ring));
  return piece < CHUNK_BYTES ? piece : CHUNK_BYTES;
}

static off_t place_of(const struct ring *ring, uint64_t position) {
  return (off_t)(RING_DATA_OFFSET + position % span_of(ring));
}

void ring_append(struct ring *ring, const char *bytes, size_t length) {
  bool is_written = pwrite(ring->file, bytes, length, place_of(ring, ring->end)) == (ssize_t)length;
  ring->end += length;
  if (!is_written) ring->base = ring->end;
  ring_store(ring);
}

ssize_t ring_read(const struct ring *ring, uint64_t position, char *bytes, size_t length) {
  size_t piece = ring_piece(ring, position);
  return pread(ring->file, bytes, length < piece ? length : piece, place_of(ring, position));
}

void ring_store(const struct ring *ring) {
  struct ring_header header = {
      .version = RING_VERSION,
      .is_closed = ring->is_closed,
      .capacity = ring->capacity,
      .span = span_of(ring),
      .base = ring->base,
      .end = ring->end,
  };
  memcpy(header.magic, RING_MAGIC, sizeof header.magic);
  ssize_t written = pwrite(ring->file, &header, sizeof header, 0);
  (void)written;
}
