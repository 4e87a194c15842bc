#define _GNU_SOURCE
#include "relay.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "watch.h"

/* By edges, because a record stays in the socket until it is whole. */
#define EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

/* In a row, before other events are handled. */
#define READS 4

/* Before TLS: the server's greeting, and its answer to STARTTLS (NBD's doc/proto.md). */
#define GREETING_BYTES 18
#define REPLY_BYTES 20
#define REPLY_TYPE 12
#define REPLY_ACK "\0\0\0\1"

/* Of a record: its type, the version, and the length of what follows (RFC 8446, 5.1). */
#define HEADER_BYTES 5

static size_t whole(size_t unit, size_t length) {
  return unit <= length ? unit : 0;
}

/* Returns how many bytes belong together from here on, or 0 when they are not all there. */
static size_t next_unit(struct relay *relay, const unsigned char *bytes, size_t length) {
  size_t unit = length;
  switch (relay->stage) {
    case RELAY_GREETING:
      unit = whole(GREETING_BYTES, length);
      if (unit > 0) relay->stage = RELAY_REPLY;
      break;
    case RELAY_REPLY:
      unit = whole(REPLY_BYTES, length);
      if (unit > 0) relay->stage = memcmp(bytes + REPLY_TYPE, REPLY_ACK, 4) == 0 ? RELAY_RECORDS : RELAY_PLAIN;
      break;
    case RELAY_RECORDS:
      if (length < HEADER_BYTES) return 0;
      unit = HEADER_BYTES + ((size_t)bytes[3] << 8 | bytes[4]);
      if (unit <= sizeof relay->held) return whole(unit, length);
      /* No record at all: QEMU will say so. */
      relay->stage = RELAY_PLAIN;
      return length;
    case RELAY_PLAIN:
      break;
  }
  return unit;
}

/* Of what is held, QEMU gets all that is whole. */
static void admit(struct relay *relay) {
  while (relay->admitted < relay->length) {
    size_t unit = next_unit(relay, relay->held + relay->admitted, relay->length - relay->admitted);
    if (unit == 0) return;
    relay->admitted += unit;
  }
}

/* Returns whether it was interrupted or has to wait. */
static bool is_short(ssize_t length) {
  return length < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Setting the events again reports bytes that are left. */
static void go_on_later(struct relay *relay) {
  relay->near.events = relay->wire.events = 0;
}

/* Returns false when nothing more comes. */
static bool pass_to_wire(struct holder *holder, struct relay *relay) {
  for (int i = 0; i < READS; i++) {
    ssize_t length = recv(relay->near.fd, holder->chunk, sizeof holder->chunk, MSG_PEEK | MSG_DONTWAIT);
    if (is_short(length)) return true;
    if (length <= 0) return false;
    ssize_t sent = send(relay->wire.fd, holder->chunk, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (is_short(sent)) return true;
    /* Nobody gets the rest. */
    if (sent < 0) sent = length;
    recv(relay->near.fd, holder->chunk, (size_t)sent, MSG_DONTWAIT);
  }
  go_on_later(relay);
  return true;
}

/* The same. What is not whole is read all the same: TCP may have no room for the rest beside it. */
static bool pass_to_qemu(struct relay *relay) {
  for (int i = 0; i < READS;) {
    if (relay->admitted > 0) {
      ssize_t sent = send(relay->near.fd, relay->held, relay->admitted, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (is_short(sent)) return true;
      if (sent < 0) return false;
      relay->admitted -= (size_t)sent;
      relay->length -= (size_t)sent;
      memmove(relay->held, relay->held + sent, relay->length);
    } else {
      ssize_t length =
          recv(relay->wire.fd, relay->held + relay->length, sizeof relay->held - relay->length, MSG_DONTWAIT);
      if (is_short(length)) return true;
      if (length <= 0) return false;
      relay->length += (size_t)length;
      admit(relay);
      i++;
    }
  }
  go_on_later(relay);
  return true;
}

static void relay_close(struct holder *holder, struct relay *relay) {
  /* The daemon may have it, too. */
  shutdown(relay->wire.fd, SHUT_RDWR);
  watch_close(holder, &relay->near);
  watch_close(holder, &relay->wire);
  relay->is_used = false;
}

static bool wait_for_both(struct holder *holder, struct relay *relay) {
  const uint32_t index = (uint32_t)(relay - holder->relays);
  return watch_set(holder, &relay->near, SUBJECT_RELAY, index, EVENTS) &&
         watch_set(holder, &relay->wire, SUBJECT_RELAY, index, EVENTS);
}

bool relay_open(struct holder *holder, int near, int wire) {
  struct relay *relay = holder->relays;
  while (relay < holder->relays + RELAYS_MAX && relay->is_used) relay++;
  if (relay == holder->relays + RELAYS_MAX) {
    close(near);
    close(wire);
    errno = ENOBUFS;
    return false;
  }
  *relay = (struct relay){.is_used = true, .near.fd = near, .wire.fd = wire};
  if (wait_for_both(holder, relay)) return true;
  const int error = errno;
  relay_close(holder, relay);
  errno = error;
  return false;
}

void relay_event(struct holder *holder, uint32_t index) {
  struct relay *relay = &holder->relays[index];
  if (!relay->is_used) return;
  /* An event may be of a relay that was here before. Without events, poll(2) tells of a hang-up alone. */
  const bool is_gone = poll(&(struct pollfd){.fd = relay->near.fd}, 1, 0) > 0;
  if (!pass_to_wire(holder, relay) || is_gone) {
    relay_close(holder, relay);
    return;
  }
  if (!relay->has_told_end && !pass_to_qemu(relay)) {
    relay->has_told_end = true;
    shutdown(relay->near.fd, SHUT_WR);
  }
  if (!wait_for_both(holder, relay)) relay_close(holder, relay);
}
