#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

#include "../init/clock.h"
#include "connection.h"
#include "data-socket.h"
#include "session/hang.h"
#include "session/session.h"
#include "store/outcomes.h"

/* The most requests that one sendmsg(2) hands over. */
#define REQUESTS_AT_ONCE 16

/* Returns how many outcomes it has put into `outgoing`. */
static uint32_t begin_outcomes(struct broker *broker, struct connection *connection) {
  uint32_t count = 0;
  while (connection->has_untold && count < OUTCOMES_AT_ONCE) {
    struct outcome *outcome = outcome_untold(&broker->outcomes, connection);
    connection->has_untold = outcome != NULL;
    if (outcome == NULL) break;
    outcome->told = (int)outcome->state;
    uint32_t kind = outcome->state == REQUEST_WRITTEN ? ENVELOPE_WRITTEN : ENVELOPE_DROPPED;
    connection->outgoing[count++] = (struct envelope){.kind = kind, .number = outcome->number};
  }
  return count;
}

static struct envelope envelope_of(const struct frame *request) {
  return (struct envelope){
      .kind = request->header_only ? ENVELOPE_OVERSIZED : ENVELOPE_REQUEST,
      .flags = (request->sent_before ? REQUEST_SENT_BEFORE : 0) | (request->refused ? OVERSIZED_NO_ROOM : 0) |
               (request->file >= 0 ? REQUEST_FILE : 0),
      .number = request->number,
      .age_ns = boottime_ns() - request->arrived_ns,
      .frame_bytes = request->bytes,
  };
}

/* The first `count` envelopes of `outgoing` are filled, the last of them for the request, if there is one. */
static void set_sending(struct connection *connection, uint32_t count, struct frame *request) {
  connection->sending = request;
  connection->outgoing_bytes = count * (uint32_t)sizeof *connection->outgoing;
  connection->to_send = connection->outgoing_bytes + (request == NULL || request->file >= 0 ? 0 : request->bytes);
}

/* Returns false if there is nothing to send, or only outcomes that wait for a request. */
static bool begin_sending(struct broker *broker, struct connection *connection) {
  struct frame *request = connection->unsent;
  if (request != NULL && request->file >= 0 && !session_send_file(broker, request)) request = NULL;
  if (request == NULL && connection->client.fd >= 0 && !connection->must_tell) return false;
  uint32_t count = begin_outcomes(broker, connection);
  connection->must_tell = connection->must_tell && connection->has_untold;
  if (request != NULL) connection->outgoing[count++] = envelope_of(request);
  if (connection->was_lost && connection->client.fd < 0 && !connection->has_untold) {
    connection->outgoing[count++] = (struct envelope){.kind = ENVELOPE_LOST};
    connection->was_lost = false;
  }
  set_sending(connection, count, request);
  return count > 0;
}

static void end_sending(struct broker *broker, struct connection *connection) {
  struct frame *request = connection->sending;
  connection->sending = NULL;
  connection->sent = connection->to_send = 0;
  if (request == NULL) return;
  hang_want_ping(broker);
  if (connection->sending_is_orphan) {
    connection->sending_is_orphan = false;
    connection_release(broker, request, POOL_REQUESTS);
    return;
  }
  request->handed = true;
  connection->unsent = TAILQ_NEXT(request, of_connection);
  connection->unsent_blocks -= request->blocks;
}

/* The requests behind the one in `sending` that go with it in one sendmsg(2). */
struct further {
  uint32_t count;
  struct envelope envelopes[REQUESTS_AT_ONCE - 1];
};

static size_t add_further(const struct connection *connection, struct further *further, struct iovec *vectors) {
  size_t count = 0;
  struct frame *request = connection->sending_is_orphan ? NULL : TAILQ_NEXT(connection->sending, of_connection);
  while (request != NULL && request->bytes <= HEAD_BYTES && further->count < REQUESTS_AT_ONCE - 1) {
    struct envelope *envelope = &further->envelopes[further->count++];
    *envelope = envelope_of(request);
    vectors[count++] = (struct iovec){envelope, sizeof *envelope};
    vectors[count++] = (struct iovec){request->head, request->bytes};
    request = TAILQ_NEXT(request, of_connection);
  }
  return count;
}

static ssize_t send_rest(const struct connection *connection, struct further *further, bool alone) {
  struct iovec vectors[1 + SPAN_VECTORS + 2 * (REQUESTS_AT_ONCE - 1)];
  struct msghdr message = {.msg_iov = vectors};
  const uint32_t header = connection->outgoing_bytes;
  if (connection->sent < header)
    vectors[message.msg_iovlen++] =
        (struct iovec){(char *)connection->outgoing + connection->sent, header - connection->sent};
  struct frame *request = connection->sending;
  if (request != NULL && request->file < 0) {
    uint32_t from = connection->sent > header ? connection->sent - header : 0;
    message.msg_iovlen += (size_t)frame_span(request, from, request->bytes, vectors + message.msg_iovlen);
    if (!alone && request->bytes <= HEAD_BYTES)
      message.msg_iovlen += add_further(connection, further, vectors + message.msg_iovlen);
  }
  return sendmsg(connection->data.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void sent(struct broker *broker, struct connection *connection, uint32_t bytes, const struct further *further) {
  for (uint32_t i = 0; bytes > 0; i++) {
    uint32_t rest = connection->to_send - connection->sent;
    if (bytes < rest) {
      connection->sent += bytes;
      return;
    }
    bytes -= rest;
    end_sending(broker, connection);
    if (bytes == 0) return;
    connection->outgoing[0] = further->envelopes[i];
    set_sending(connection, 1, connection->unsent);
  }
}

static bool send_some(struct broker *broker, struct connection *connection, bool alone) {
  if (connection->to_send == 0 && !begin_sending(broker, connection)) return false;
  struct further further = {.count = 0};
  ssize_t bytes = send_rest(connection, &further, alone);
  if (bytes < 0) {
    /* data_read handles the end of the agent. */
    if (errno != EAGAIN && errno != EINTR) connection->data_is_shut = true;
    return false;
  }
  sent(broker, connection, (uint32_t)bytes, &further);
  return true;
}

bool data_send_one(struct broker *broker, struct connection *connection) {
  return send_some(broker, connection, true);
}

void data_send(struct broker *broker, struct connection *connection) {
  if (connection->data.fd < 0 || !broker->session.is_ready) return;
  while (!connection->data_is_shut && send_some(broker, connection, false)) continue;
  if (connection->client.fd >= 0 || (connection->to_send > 0 && !connection->data_is_shut)) return;
  /* The shutdown reports the client's end. The agent may confirm outcomes until it closes its own end. */
  if (!connection->data_is_shut) shutdown(connection->data.fd, SHUT_WR);
  connection->data_is_shut = true;
  if (connection->data_has_ended) connection_end(broker, connection);
}
