#include "client.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../connection.h"
#include "../watch.h"
#include "ring-file.h"

#define INPUT_READS 4

static bool is_client_of(const struct connection *connection, uint32_t ring) {
  return connection->mode == CONNECTION_ATTACHED && connection->ring == ring;
}

/* Returns false when the client has to read first, or is closed. */
static bool send_some(struct holder *holder, struct connection *client, const char *bytes, size_t length) {
  ssize_t sent = send(client->socket.fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) {
    connection_close(holder, client);
    return false;
  }
  if (sent > 0) client->offset += (uint64_t)sent;
  if (sent == (ssize_t)length) return true;
  client->is_full = true;
  connection_wait(holder, client);
  return false;
}

/*
 * By copies: sendfile(2) into a unix socket would queue the pages of the ring themselves, whose bytes may be newer ones
 * when the client reads them.
 */
void client_send(struct holder *holder, struct connection *client) {
  const struct ring *ring = &holder->rings[client->ring];
  client->is_full = false;
  while (client->offset < ring->end) {
    uint64_t left = ring->end - client->offset;
    size_t wanted = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    ssize_t length = ring_read(ring, client->offset, holder->chunk, wanted);
    if (length <= 0) {
      connection_close(holder, client);
      return;
    }
    if (!send_some(holder, client, holder->chunk, (size_t)length)) return;
  }
  if (ring->is_closed)
    connection_close(holder, client);
  else
    connection_wait(holder, client);
}

/* Returns how many of the bytes are done with, or -1 when the peer has to connect or to read first. */
static ssize_t pass_on(struct holder *holder, struct ring *ring, size_t length) {
  if (ring->peer.fd < 0) return ring->is_closed ? (ssize_t)length : -1;
  ssize_t passed = send(ring->peer.fd, holder->chunk, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (passed >= 0) return passed;
  if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) return (ssize_t)length;
  uint32_t events = ring->peer.events | EPOLLOUT;
  watch_set(holder, &ring->peer, SUBJECT_PEER, (uint32_t)(ring - holder->rings), events);
  return -1;
}

void client_read(struct holder *holder, struct connection *client) {
  struct ring *ring = &holder->rings[client->ring];
  for (int i = 0; i < INPUT_READS; i++) {
    ssize_t length = recv(client->socket.fd, holder->chunk, sizeof holder->chunk, MSG_PEEK | MSG_DONTWAIT);
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) {
      client->input_ended = true;
      return;
    }
    ssize_t passed = pass_on(holder, ring, (size_t)length);
    if (passed < 0) {
      client->input_waits = true;
      return;
    }
    recv(client->socket.fd, holder->chunk, (size_t)passed, MSG_DONTWAIT);
  }
}

void client_event(struct holder *holder, struct connection *client, uint32_t events) {
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) client_read(holder, client);
  /* The client is gone; the peer may never read the rest of its input. */
  if (events & (EPOLLHUP | EPOLLERR) && (client->input_ended || client->input_waits)) {
    connection_close(holder, client);
    return;
  }
  if (events & EPOLLOUT)
    client_send(holder, client);
  else
    connection_wait(holder, client);
}

void clients_send_new(struct holder *holder, uint32_t ring, size_t length) {
  const uint64_t end = holder->rings[ring].end;
  for (uint32_t i = 0; i < holder->connections_used; i++) {
    struct connection *client = &holder->connections[i];
    if (is_client_of(client, ring) && !client->is_full && client->offset == end - length)
      send_some(holder, client, holder->chunk, length);
  }
}

uint64_t clients_room(const struct holder *holder, uint32_t ring) {
  const struct ring *source = &holder->rings[ring];
  uint64_t room = source->capacity;
  for (uint32_t i = 0; i < holder->connections_used; i++) {
    const struct connection *client = &holder->connections[i];
    if (!is_client_of(client, ring)) continue;
    uint64_t behind = source->end - client->offset;
    if (behind >= source->capacity) return 0;
    if (source->capacity - behind < room) room = source->capacity - behind;
  }
  return room;
}

void clients_close_behind(struct holder *holder, uint32_t ring, uint64_t margin) {
  const uint64_t first = ring_first(&holder->rings[ring]);
  for (uint32_t i = 0; i < holder->connections_used; i++) {
    struct connection *client = &holder->connections[i];
    if (is_client_of(client, ring) && client->offset < first + margin) connection_close(holder, client);
  }
}

void clients_resume_input(struct holder *holder, uint32_t ring) {
  for (uint32_t i = 0; i < holder->connections_used; i++) {
    struct connection *client = &holder->connections[i];
    if (!is_client_of(client, ring) || !client->input_waits) continue;
    client->input_waits = false;
    connection_wait(holder, client);
  }
}

void clients_finish(struct holder *holder, uint32_t ring) {
  for (uint32_t i = 0; i < holder->connections_used; i++) {
    struct connection *client = &holder->connections[i];
    if (is_client_of(client, ring) && !client->is_full) client_send(holder, client);
  }
}

void clients_close(struct holder *holder, uint32_t ring) {
  for (uint32_t i = 0; i < holder->connections_used; i++)
    if (is_client_of(&holder->connections[i], ring)) connection_close(holder, &holder->connections[i]);
}
