#define _GNU_SOURCE
#include "data-socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "../init/clock.h"
#include "../init/log.h"
#include "connection.h"
#include "session.h"
#include "sockets/watch.h"
#include "store/outcomes.h"

/* While a client does not read so much, the agent keeps its further answers. */
#define UNREAD_ANSWERS_BYTES (1024 * 1024)

/* System calls for one connection before the others have their turn. */
#define READ_BATCH 8

/* What an agent that is gone can have left in a socket takes fewer reads: each fills up to 256 KiB. */
#define DRAIN_READS 1024

#define SINK_BYTES 65536

static bool has_room_for(const struct broker *broker, const struct connection *connection, uint32_t bytes) {
  if (connection->answers.first != NULL && connection->blocks[POOL_ANSWERS] * BLOCK_BYTES >= UNREAD_ANSWERS_BYTES)
    return false;
  return connection_has_room(broker, connection, POOL_ANSWERS, frame_blocks(bytes));
}

bool data_has_room(const struct broker *broker, const struct connection *connection) {
  return connection->client.fd < 0 || has_room_for(broker, connection, connection->incoming.frame_bytes);
}

/* An open request that the agent has. The newest are looked at first: old ones are calls that wait. */
static struct frame *find_request(const struct connection *connection, uint64_t number) {
  struct frame *request = connection->requests.last;
  while (request != NULL && request->number != number) request = request->links[LIST_OF_CONNECTION].previous;
  return request != NULL && request->handed ? request : NULL;
}

/* What follows cannot be understood. */
static void fail(struct broker *broker, struct connection *connection, const char *reason) {
  connection->data_has_ended = true;
  session_fail(broker, reason);
}

static bool is_envelope_valid(const struct broker *broker, const struct envelope *envelope) {
  if (envelope->reserved != 0 || (envelope->flags & ~ANSWER_KEEP) != 0) return false;
  switch (envelope->kind) {
    case ENVELOPE_ANSWER:
      return envelope->frame_bytes >= FRAME_HEADER_BYTES &&
             envelope->frame_bytes - FRAME_HEADER_BYTES <= broker->max_payload_bytes;
    case ENVELOPE_NOTHING:
    case ENVELOPE_CONFIRM:
      return envelope->frame_bytes == 0;
    default:
      return false;
  }
}

/* An answer to a request that is not open: its client is gone, or the agent is confused. */
static void discard_answer(struct broker *broker, struct connection *connection) {
  const struct envelope *envelope = &connection->incoming;
  connection->discard = envelope->frame_bytes;
  connection->incoming_bytes = 0;
  if (connection->client.fd < 0) return;
  if (!broker->session.has_warned)
    log_line("broker: agent %u answered request %llu, which is not open", broker->session.pid,
             (unsigned long long)envelope->number);
  broker->session.has_warned = true;
}

static void end_request(struct broker *broker, struct connection *connection, struct frame *request) {
  connection->incoming_bytes = 0;
  connection_close_request(broker, connection, request);
}

/* Handles a whole envelope. Returns false when its frame has no room yet. */
static bool handle_envelope(struct broker *broker, struct connection *connection) {
  const struct envelope *envelope = &connection->incoming;
  connection->awaits_room = false;
  if (!is_envelope_valid(broker, envelope)) {
    fail(broker, connection, "sent an invalid envelope");
    return false;
  }
  if (envelope->kind == ENVELOPE_CONFIRM) {
    connection->incoming_bytes = 0;
    outcome_confirm(&broker->outcomes, envelope->number);
    return true;
  }
  struct frame *request = find_request(connection, envelope->number);
  if (request == NULL) {
    discard_answer(broker, connection);
    return true;
  }
  if (envelope->kind == ENVELOPE_NOTHING) {
    end_request(broker, connection, request);
    return true;
  }
  if (!has_room_for(broker, connection, envelope->frame_bytes)) {
    connection->awaits_room = true;
    return false;
  }
  uint32_t blocks = frame_blocks(envelope->frame_bytes);
  connection_reserve(broker, connection, POOL_ANSWERS, blocks);
  connection->answer = frame_open(&broker->blocks, connection, envelope->frame_bytes);
  connection->answer->blocks = blocks;
  connection->answer->number = envelope->number;
  return true;
}

/* The answer is whole: from now on it is the broker that has to write it. */
static void take_answer(struct broker *broker, struct connection *connection) {
  struct frame *answer = connection->answer;
  uint32_t payload;
  memcpy(&payload, answer->head, sizeof payload);
  if (ntohl(payload) != answer->bytes - FRAME_HEADER_BYTES) {
    fail(broker, connection, "sent an answer whose length is not that of its frame");
    return;
  }
  connection->answer = NULL;
  frame_append(&connection->answers, answer, LIST_OF_CONNECTION);
  if (connection->incoming.flags & ANSWER_KEEP) {
    answer->outcome = outcome_add(&broker->outcomes, answer->number, REQUEST_ANSWERED);
    answer->outcome->connection = connection;
  }
  struct frame *request = find_request(connection, answer->number);
  if (request != NULL) end_request(broker, connection, request);
}

/* Handles the result of a recv(2) from the agent. Returns whether there was something. */
static bool received(struct broker *broker, struct connection *connection, ssize_t bytes) {
  if (bytes > 0) return true;
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  /*
   * The descriptors of an agent that dies are closed in any order: this end alone does not mean that the agent wants the
   * client closed.
   */
  connection->data_has_ended = true;
  watch_remove(broker, &connection->data);
  return false;
}

static bool read_envelope(struct broker *broker, struct connection *connection) {
  ssize_t bytes = recv(connection->data.fd, (char *)&connection->incoming + connection->incoming_bytes,
                       sizeof connection->incoming - connection->incoming_bytes, MSG_DONTWAIT);
  if (!received(broker, connection, bytes)) return false;
  connection->incoming_bytes += (uint32_t)bytes;
  return connection->incoming_bytes < sizeof connection->incoming || handle_envelope(broker, connection);
}

static bool read_discarded(struct broker *broker, struct connection *connection) {
  static unsigned char sink[SINK_BYTES];
  size_t most = connection->discard < SINK_BYTES ? connection->discard : SINK_BYTES;
  ssize_t bytes = recv(connection->data.fd, sink, most, MSG_DONTWAIT);
  if (!received(broker, connection, bytes)) return false;
  connection->discard -= (uint32_t)bytes;
  return true;
}

static bool read_answer(struct broker *broker, struct connection *connection) {
  struct frame *answer = connection->answer;
  for (int i = 0; i < SPAN_VECTORS && answer->capacity < answer->bytes; i++) {
    if (answer->capacity - answer->filled >= SPAN_VECTORS * BLOCK_BYTES) break;
    frame_grow(answer, &broker->blocks);
  }
  struct iovec vectors[SPAN_VECTORS];
  uint32_t end = answer->bytes < answer->capacity ? answer->bytes : answer->capacity;
  struct msghdr message = {.msg_iov = vectors};
  message.msg_iovlen = (size_t)frame_span(answer, answer->filled, end, vectors);
  ssize_t bytes = recvmsg(connection->data.fd, &message, MSG_DONTWAIT);
  if (!received(broker, connection, bytes)) return false;
  answer->filled += (uint32_t)bytes;
  if (answer->filled < answer->bytes) return true;
  take_answer(broker, connection);
  return false;
}

/* Returns false when there is nothing more to read now, and after an answer. */
static bool read_some(struct broker *broker, struct connection *connection) {
  if (connection->discard > 0) return read_discarded(broker, connection);
  if (connection->answer != NULL) return read_answer(broker, connection);
  if (connection->incoming_bytes < sizeof connection->incoming) return read_envelope(broker, connection);
  return handle_envelope(broker, connection);
}

static bool is_readable(const struct connection *connection) {
  return connection->data.fd >= 0 && !connection->data_has_ended;
}

void data_read(struct broker *broker, struct connection *connection) {
  for (int i = 0; i < READ_BATCH && is_readable(connection); i++)
    if (!read_some(broker, connection)) break;
  connection_touch(broker, connection);
}

bool data_is_empty(const struct connection *connection) {
  int unread = 0;
  return connection->data.fd < 0 || ioctl(connection->data.fd, FIONREAD, &unread) != 0 || unread == 0;
}

void data_drain(struct broker *broker, struct connection *connection) {
  for (int i = 0; i < DRAIN_READS && is_readable(connection) && !data_is_empty(connection); i++) {
    read_some(broker, connection);
    if (connection->awaits_room) break;
  }
}

/* Puts the envelope of the next outcome or request in front. Returns false when there is neither. */
static bool begin_sending(struct broker *broker, struct connection *connection) {
  if (connection->has_untold) {
    struct outcome *outcome = outcome_untold(&broker->outcomes, connection);
    connection->has_untold = outcome != NULL;
    if (outcome != NULL) {
      outcome->told = (int)outcome->state;
      uint32_t kind = outcome->state == REQUEST_WRITTEN ? ENVELOPE_WRITTEN : ENVELOPE_DROPPED;
      connection->outgoing = (struct envelope){.kind = kind, .number = outcome->number};
      connection->to_send = sizeof connection->outgoing;
      return true;
    }
  }
  struct frame *request = connection->unsent;
  if (request == NULL) return false;
  connection->outgoing = (struct envelope){
      .kind = request->header_only ? ENVELOPE_OVERSIZED : ENVELOPE_REQUEST,
      .flags = (request->sent_before ? REQUEST_SENT_BEFORE : 0) | (request->refused ? OVERSIZED_NO_ROOM : 0),
      .number = request->number,
      .age_ns = boottime_ns() - request->arrived_ns,
      .frame_bytes = request->bytes,
  };
  connection->sending = request;
  connection->to_send = (uint32_t)sizeof connection->outgoing + request->bytes;
  return true;
}

static void end_sending(struct broker *broker, struct connection *connection) {
  struct frame *request = connection->sending;
  connection->sending = NULL;
  connection->sent = connection->to_send = 0;
  if (request == NULL) return;
  session_want_ping(broker);
  if (connection->sending_is_orphan) {
    connection->sending_is_orphan = false;
    connection_release(broker, request, POOL_REQUESTS);
    return;
  }
  request->handed = true;
  connection->unsent = request->links[LIST_OF_CONNECTION].next;
  connection->unsent_blocks -= request->blocks;
}

/* Returns what sendmsg(2) does. */
static ssize_t send_rest(struct connection *connection) {
  struct iovec vectors[1 + SPAN_VECTORS];
  const uint32_t header = sizeof connection->outgoing;
  int count = 0;
  if (connection->sent < header)
    vectors[count++] = (struct iovec){(char *)&connection->outgoing + connection->sent, header - connection->sent};
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
    /* Otherwise the agent is dying, or confused: data_read tells. */
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
  /* The agent reads the end of the client, and closes its end. Until then it may confirm what it was told. */
  if (!connection->data_is_shut) shutdown(connection->data.fd, SHUT_WR);
  connection->data_is_shut = true;
  if (connection->data_has_ended) connection_end(broker, connection);
}
