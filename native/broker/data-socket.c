#define _GNU_SOURCE
#include "data-socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "../init/log.h"
#include "../process/message.h"
#include "connection.h"
#include "store/outcomes.h"
#include "watch.h"

/* Beyond this many unread bytes of a client, answers stay in the data socket. */
#define UNREAD_ANSWERS_BYTES (1024 * 1024)

#define READ_BATCH 32

/* Enough reads to empty a dead agent's socket: each takes up to 256 KiB. */
#define DRAIN_READS 1024

#define SINK_BYTES 65536

#define PEEKED_BYTES 16384

static unsigned char sink[SINK_BYTES];

static bool has_room_for(const struct broker *broker, const struct connection *connection, uint32_t bytes) {
  if (!TAILQ_EMPTY(&connection->answers) && connection->blocks[POOL_ANSWERS] * BLOCK_BYTES >= UNREAD_ANSWERS_BYTES)
    return false;
  return connection_has_room(broker, connection, POOL_ANSWERS, frame_blocks(bytes));
}

bool data_has_room(const struct broker *broker, const struct connection *connection) {
  return connection->client.fd < 0 || has_room_for(broker, connection, connection->incoming.frame_bytes);
}

/* Searches the newest requests first, because old ones are calls that wait. */
static struct frame *find_request(const struct connection *connection, uint64_t number) {
  struct frame *request;
  TAILQ_FOREACH_REVERSE(request, &connection->requests, frame_list, of_connection) if (request->number == number) break;
  return request != NULL && request->handed ? request : NULL;
}

static void fail(struct broker *broker, struct connection *connection, const char *reason) {
  connection->data_has_ended = true;
  broker->session.fault = reason;
}

static bool is_file_valid(const struct connection *connection) {
  const struct envelope *envelope = &connection->incoming;
  if ((envelope->flags & ANSWER_FILE) == 0) return connection->file < 0 && envelope->file_bytes == 0;
  if (envelope->file_bytes > envelope->frame_bytes - FRAME_HEADER_BYTES) return false;
  /* Only a memfd has seals. A read from another file might block. */
  return connection->file >= 0 && fcntl(connection->file, F_GET_SEALS) >= 0;
}

static bool is_envelope_valid(const struct broker *broker, const struct connection *connection) {
  const struct envelope *envelope = &connection->incoming;
  if ((envelope->flags & ~(ANSWER_KEEP | ANSWER_FILE)) != 0) return false;
  switch (envelope->kind) {
    case ENVELOPE_ANSWER:
      return envelope->frame_bytes >= FRAME_HEADER_BYTES &&
             envelope->frame_bytes - FRAME_HEADER_BYTES <= broker->max_payload_bytes && is_file_valid(connection);
    case ENVELOPE_NOTHING:
    case ENVELOPE_CONFIRM:
      return envelope->frame_bytes == 0 && envelope->file_bytes == 0;
    default:
      return false;
  }
}

/* Skips an answer to a request that is not open: the client is gone, or the agent is wrong. */
static void discard_answer(struct broker *broker, struct connection *connection) {
  const struct envelope *envelope = &connection->incoming;
  connection->discard = envelope->frame_bytes - envelope->file_bytes;
  connection->incoming_bytes = 0;
  connection_close_file(connection);
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

/* Returns false when the envelope is invalid or its frame has no room yet. */
static bool handle_envelope(struct broker *broker, struct connection *connection) {
  const struct envelope *envelope = &connection->incoming;
  connection->awaits_room = false;
  if (!is_envelope_valid(broker, connection)) {
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

static void take_answer(struct broker *broker, struct connection *connection) {
  struct frame *answer = connection->answer;
  uint32_t payload;
  memcpy(&payload, answer->head, sizeof payload);
  if (ntohl(payload) != answer->bytes - FRAME_HEADER_BYTES) {
    fail(broker, connection, "sent an answer whose length is not that of its frame");
    return;
  }
  connection->answer = NULL;
  connection->incoming_bytes = 0;
  TAILQ_INSERT_TAIL(&connection->answers, answer, of_connection);
  if (connection->incoming.flags & ANSWER_KEEP) {
    answer->outcome = outcome_add(&broker->outcomes, answer->number, REQUEST_ANSWERED);
    answer->outcome->connection = connection;
  }
  struct frame *request = find_request(connection, answer->number);
  if (request != NULL) end_request(broker, connection, request);
}

static bool received(struct broker *broker, struct connection *connection, ssize_t bytes) {
  if (bytes > 0) return true;
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  /* Not a request to close the client, because a dying agent's descriptors are closed in any order. */
  connection->data_has_ended = true;
  watch_remove(broker, &connection->data);
  return false;
}

/* The file belongs to the next ANSWER, maybe after some CONFIRMs. */
static void take_file(struct connection *connection, int passed) {
  if (passed < 0) return;
  connection_close_file(connection);
  connection->file = passed;
}

static bool read_envelope(struct broker *broker, struct connection *connection) {
  int passed;
  ssize_t bytes = message_receive(connection->data.fd, (char *)&connection->incoming + connection->incoming_bytes,
                                  sizeof connection->incoming - connection->incoming_bytes, &passed);
  take_file(connection, passed);
  if (!received(broker, connection, bytes)) return false;
  connection->incoming_bytes += (uint32_t)bytes;
  return connection->incoming_bytes < sizeof connection->incoming || handle_envelope(broker, connection);
}

static bool read_discarded(struct broker *broker, struct connection *connection) {
  size_t most = connection->discard < SINK_BYTES ? connection->discard : SINK_BYTES;
  ssize_t bytes = recv(connection->data.fd, sink, most, MSG_DONTWAIT);
  if (!received(broker, connection, bytes)) return false;
  connection->discard -= (uint32_t)bytes;
  return true;
}

/* Fills `vectors` with reserved memory for the answer's bytes before `end`. Returns how many. */
static size_t grow(struct broker *broker, struct frame *answer, uint32_t end, struct iovec vectors[SPAN_VECTORS]) {
  for (int i = 0; i < SPAN_VECTORS && answer->capacity < end; i++) {
    if (answer->capacity - answer->filled >= SPAN_VECTORS * BLOCK_BYTES) break;
    frame_grow(answer, &broker->blocks);
  }
  return (size_t)frame_span(answer, answer->filled, end < answer->capacity ? end : answer->capacity, vectors);
}

/* Reads the answer's part of the file at once, because nothing would wake the broker for the rest. */
static bool read_file(struct broker *broker, struct connection *connection) {
  struct frame *answer = connection->answer;
  uint64_t from = connection->incoming.file_offset;
  while (answer->filled < answer->bytes) {
    struct iovec vectors[SPAN_VECTORS];
    size_t count = grow(broker, answer, answer->bytes, vectors);
    ssize_t bytes = preadv(connection->file, vectors, (int)count, (off_t)from);
    if (bytes <= 0) {
      fail(broker, connection, "sent an answer that its file does not have");
      return false;
    }
    answer->filled += (uint32_t)bytes;
    from += (uint64_t)bytes;
  }
  connection_close_file(connection);
  return true;
}

static bool read_answer(struct broker *broker, struct connection *connection) {
  struct frame *answer = connection->answer;
  const uint32_t end = answer->bytes - connection->incoming.file_bytes;
  struct iovec vectors[SPAN_VECTORS];
  size_t count = grow(broker, answer, end, vectors);
  int passed;
  ssize_t bytes = message_receive_parts(connection->data.fd, vectors, count, &passed);
  if (!received(broker, connection, bytes)) return false;
  answer->filled += (uint32_t)bytes;
  bool is_whole = answer->filled == end;
  if (is_whole && (connection->file < 0 || read_file(broker, connection))) take_answer(broker, connection);
  take_file(connection, passed);
  return !is_whole;
}

/* Returns false when there is nothing to read, and after an answer. */
static bool read_some(struct broker *broker, struct connection *connection) {
  if (connection->discard > 0) return read_discarded(broker, connection);
  if (connection->answer != NULL) return read_answer(broker, connection);
  if (connection->incoming_bytes < sizeof connection->incoming) return read_envelope(broker, connection);
  return handle_envelope(broker, connection);
}

static bool is_readable(const struct connection *connection) {
  return connection->data.fd >= 0 && !connection->data_has_ended;
}

/* Takes the messages of which all bytes are there, but for long answers. Returns how many bytes they have. */
static uint32_t take_short_messages(struct broker *broker, struct connection *connection, const unsigned char *bytes,
                                    uint32_t count) {
  struct envelope *envelope = &connection->incoming;
  uint32_t taken = 0;
  while (is_readable(connection) && count - taken >= sizeof *envelope) {
    memcpy(envelope, bytes + taken, sizeof *envelope);
    const uint32_t frame = envelope->frame_bytes;
    if ((envelope->flags & ANSWER_FILE) != 0 || frame > count - taken - sizeof *envelope || frame > HEAD_BYTES) break;
    taken += sizeof *envelope;
    connection->incoming_bytes = sizeof *envelope;
    if (!handle_envelope(broker, connection)) break;
    if (connection->answer != NULL) {
      memcpy(connection->answer->head, bytes + taken, frame);
      connection->answer->filled = frame;
      take_answer(broker, connection);
    }
    connection->discard = 0;
    taken += frame;
  }
  return taken;
}

/* Reads messages with two system calls, not with two for each. Returns false if the next one has to be read alone. */
static bool read_short_messages(struct broker *broker, struct connection *connection) {
  if (!is_readable(connection) || connection->incoming_bytes > 0 || connection->discard > 0) return false;
  struct msghdr message = {.msg_iov = &(struct iovec){sink, PEEKED_BYTES}, .msg_iovlen = 1};
  ssize_t bytes = recvmsg(connection->data.fd, &message, MSG_PEEK | MSG_DONTWAIT);
  if (bytes <= 0) return !received(broker, connection, bytes);
  bool has_file = (message.msg_flags & MSG_CTRUNC) != 0;
  uint32_t taken = has_file ? 0 : take_short_messages(broker, connection, sink, (uint32_t)bytes);
  if (taken > 0) recv(connection->data.fd, sink, taken, MSG_DONTWAIT);
  return taken > 0;
}

void data_read(struct broker *broker, struct connection *connection) {
  bool is_done = read_short_messages(broker, connection);
  for (int i = 0; !is_done && i < READ_BATCH && is_readable(connection); i++) is_done = !read_some(broker, connection);
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
