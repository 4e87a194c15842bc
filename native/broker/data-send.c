#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

#include "../init/clock.h"
#include "connection.h"
#include "data-socket.h"
#include "session/hang.h"
#include "store/outcomes.h"

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

/* Returns false if there is nothing to send, or only outcomes that wait for a request. */
static bool begin_sending(struct broker *broker, struct connection *connection) {
  struct frame *request = connection->unsent;
  if (request == NULL && connection->client.fd >= 0 && !connection->must_tell) return false;
  uint32_t count = begin_outcomes(broker, connection);
  connection->must_tell = connection->must_tell && connection->has_untold;
  if (request != NULL)
    connection->outgoing[count++] = (struct envelope){
        .kind = request->header_only ? ENVELOPE_OVERSIZED : ENVELOPE_REQUEST,
        .flags = (request->sent_before ? REQUEST_SENT_BEFORE : 0) | (request->refused ? OVERSIZED_NO_ROOM : 0),
        .number = request->number,
        .age_ns = boottime_ns() - request->arrived_ns,
        .frame_bytes = request->bytes,
    };
  connection->sending = request;
  connection->outgoing_bytes = count * (uint32_t)sizeof *connection->outgoing;
  connection->to_send = connection->outgoing_bytes + (request == NULL ? 0 : request->bytes);
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

static ssize_t send_rest(struct connection *connection) {
  struct iovec vectors[1 + SPAN_VECTORS];
  const uint32_t header = connection->outgoing_bytes;
  int count = 0;
  if (connection->sent < header)
    vectors[count++] = (struct iovec){(char *)connection->outgoing + connection->sent, header - connection->sent};
  if (connection->sending != NULL) {
    uint32_t from = connection->sent > header ? connection->sent - header : 0;
    count += frame_span(connection->sending, from, connection->sending->bytes, vectors + count);
  }
  struct msghdr message = {.msg_iov = vectors, .msg_iovlen = (size_t)count};
  return sendmsg(connection->data.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool data_send_one(struct broker *broker, struct connection *connection) {
  if (connection->to_send == 0 && !begin_sending(broker, connection)) return false;
  ssize_t bytes = send_rest(connection);
  if (bytes < 0) {
    /* data_read handles the end of the agent. */
    if (errno != EAGAIN && errno != EINTR) connection->data_is_shut = true;
    return false;
  }
  connection->sent += (uint32_t)bytes;
  if (connection->sent == connection->to_send) end_sending(broker, connection);
  return true;
}

void data_send(struct broker *broker, struct connection *connection) {
  if (connection->data.fd < 0 || !broker->session.is_ready) return;
  while (!connection->data_is_shut && data_send_one(broker, connection)) continue;
  if (connection->client.fd >= 0 || (connection->to_send > 0 && !connection->data_is_shut)) return;
  /* The shutdown reports the client's end. The agent may confirm outcomes until it closes its own end. */
  if (!connection->data_is_shut) shutdown(connection->data.fd, SHUT_WR);
  connection->data_is_shut = true;
  if (connection->data_has_ended) connection_end(broker, connection);
}
