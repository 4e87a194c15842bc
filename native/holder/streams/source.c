#define _GNU_SOURCE
#include "source.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../init/clock.h"
#include "../listen.h"
#include "../watch.h"
#include "client.h"
#include "ring-file.h"

static uint32_t index_of(const struct holder *holder, const struct ring *ring) {
  return (uint32_t)(ring - holder->rings);
}

struct ring *ring_find(struct holder *holder, uint32_t number) {
  for (uint32_t i = 0; i < holder->rings_used; i++)
    if (holder->rings[i].is_used && holder->rings[i].number == number) return &holder->rings[i];
  return NULL;
}

static struct ring *unused(struct holder *holder) {
  for (uint32_t i = 0; i < RINGS_MAX; i++) {
    if (holder->rings[i].is_used) continue;
    if (i >= holder->rings_used) holder->rings_used = i + 1;
    return &holder->rings[i];
  }
  errno = ENOBUFS;
  return NULL;
}

struct ring *ring_open(struct holder *holder, uint32_t number) {
  struct ring *ring = ring_find(holder, number);
  if (ring != NULL && !ring->is_closed) {
    errno = EEXIST;
    return NULL;
  }
  if (ring == NULL) {
    ring = unused(holder);
    if (ring == NULL || !ring_file_open(ring, number)) return NULL;
    ring->is_used = true;
  }
  ring->is_closed = false;
  ring_store(ring);
  return ring;
}

bool source_begin(struct holder *holder, struct ring *ring, int fd) {
  ring->peer = (struct watch){.fd = fd};
  return watch_set(holder, &ring->peer, SUBJECT_PEER, index_of(holder, ring), EPOLLIN);
}

static void port_close(struct holder *holder, struct ring *ring) {
  if (ring->port.fd < 0) return;
  struct sockaddr_un address;
  socklen_t length = sizeof address;
  if (getsockname(ring->port.fd, (struct sockaddr *)&address, &length) == 0) unlink(address.sun_path);
  watch_close(holder, &ring->port);
}

void source_end(struct holder *holder, struct ring *ring) {
  watch_close(holder, &ring->peer);
  port_close(holder, ring);
  if (ring->wait_since_ms != NEVER) holder->rings_waiting--;
  ring->wait_since_ms = NEVER;
  ring->is_closed = true;
  ring_store(ring);
  clients_resume_input(holder, index_of(holder, ring));
  clients_finish(holder, index_of(holder, ring));
}

bool port_open(struct holder *holder, uint32_t number, const char *path) {
  /* Its folder is for the user of the guest's programs only. */
  int fd = listen_on(path, 0666);
  if (fd < 0) return false;
  struct ring *ring = ring_open(holder, number);
  if (ring == NULL) {
    int error = errno;
    unlink(path);
    close(fd);
    errno = error;
    return false;
  }
  ring->port = (struct watch){.fd = fd};
  if (watch_set(holder, &ring->port, SUBJECT_PORT, index_of(holder, ring), EPOLLIN)) return true;
  int error = errno;
  ring_close(holder, ring);
  errno = error;
  return false;
}

void port_accept(struct holder *holder, struct ring *ring) {
  int fd = accept4(ring->port.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return;
  bool has_begun = fd >= 0 && source_begin(holder, ring, fd);
  port_close(holder, ring);
  if (has_begun)
    clients_resume_input(holder, index_of(holder, ring));
  else
    source_end(holder, ring);
}

static void set_events(struct holder *holder, struct ring *ring, uint32_t events) {
  watch_set(holder, &ring->peer, SUBJECT_PEER, index_of(holder, ring), events);
}

/* Lets the source wait for its slowest clients, or closes them. Returns whether to read now. */
static bool make_room(struct holder *holder, struct ring *ring) {
  int64_t now_ms = monotonic_ms();
  if (ring->waited_ms < LAG_WAIT_MS) {
    if (ring->wait_since_ms != NEVER) return false;
    ring->wait_since_ms = now_ms;
    holder->rings_waiting++;
    /* By edges, or a peer that has hung up would be reported all the time. */
    set_events(holder, ring, (ring->peer.events & ~(uint32_t)EPOLLIN) | EPOLLET);
    return false;
  }
  clients_close_behind(holder, index_of(holder, ring), CHUNK_BYTES);
  return true;
}

static void source_read(struct holder *holder, struct ring *ring) {
  const uint32_t index = index_of(holder, ring);
  uint64_t room = clients_room(holder, index);
  if (room == 0) {
    if (!make_room(holder, ring)) return;
    room = CHUNK_BYTES;
  }
  size_t wanted = ring_piece(ring, ring->end);
  if (wanted > room) wanted = (size_t)room;
  ssize_t length = recv(ring->peer.fd, holder->chunk, wanted, MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length <= 0) {
    source_end(holder, ring);
    return;
  }
  if (ring->end / ring->capacity != (ring->end + (uint64_t)length) / ring->capacity) ring->waited_ms = 0;
  ring_append(ring, holder->chunk, (size_t)length);
  clients_close_behind(holder, index, 0);
  clients_send_new(holder, index, (size_t)length);
}

void source_event(struct holder *holder, struct ring *ring, uint32_t events) {
  if (events & EPOLLOUT) {
    set_events(holder, ring, ring->peer.events & ~(uint32_t)EPOLLOUT);
    clients_resume_input(holder, index_of(holder, ring));
  }
  if (events & ~(uint32_t)EPOLLOUT) source_read(holder, ring);
}

int sources_resume(struct holder *holder) {
  if (holder->rings_waiting == 0) return -1;
  int64_t now_ms = monotonic_ms();
  int64_t next_ms = LAG_WAIT_MS;
  for (uint32_t i = 0; i < holder->rings_used; i++) {
    struct ring *ring = &holder->rings[i];
    if (!ring->is_used || ring->wait_since_ms == NEVER) continue;
    int64_t left_ms = ring->wait_since_ms + LAG_WAIT_MS - ring->waited_ms - now_ms;
    if (left_ms > 0 && clients_room(holder, i) == 0) {
      if (left_ms < next_ms) next_ms = left_ms;
      continue;
    }
    ring->waited_ms += (int32_t)(now_ms - ring->wait_since_ms);
    ring->wait_since_ms = NEVER;
    holder->rings_waiting--;
    set_events(holder, ring, (ring->peer.events & ~(uint32_t)EPOLLET) | EPOLLIN);
  }
  return holder->rings_waiting == 0 ? -1 : (int)next_ms;
}

void ring_close(struct holder *holder, struct ring *ring) {
  clients_close(holder, index_of(holder, ring));
  if (!ring->is_closed) source_end(holder, ring);
  ring_file_remove(ring);
  ring->is_used = false;
  while (holder->rings_used > 0 && !holder->rings[holder->rings_used - 1].is_used) holder->rings_used--;
}

static void ports_remove(struct holder *holder) {
  for (uint32_t i = 0; i < holder->rings_used; i++)
    if (holder->rings[i].is_used) port_close(holder, &holder->rings[i]);
}

void holder_end(struct holder *holder) {
  ports_remove(holder);
  unlink("holder.sock");
  _exit(EXIT_SUCCESS);
}
