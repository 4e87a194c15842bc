#define _GNU_SOURCE
#include "connection.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../init/clock.h"
#include "store/outcomes.h"
#include "watch.h"

/* How long an outcome waits for a request to go with, which spares the agent a wake-up. */
#define TELL_MS 5

bool connections_open(struct broker *broker, uint32_t count) {
  uint32_t places = count + ACCEPT_BATCH;
  void *memory = mmap(NULL, places * sizeof(struct connection), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  broker->connections = memory;
  broker->places = places;
  broker->max_connections = count;
  return true;
}

static struct connection *unused_place(struct broker *broker) {
  for (uint32_t i = 0; i < broker->places; i++)
    if (broker->connections[i].id == 0) return &broker->connections[i];
  return NULL;
}

static bool is_older(const struct connection *one, const struct connection *other) {
  return other == NULL || one->id < other->id;
}

/* Ends the oldest connection without a client or a whole frame; others may be the sandbox's life line. */
static bool make_place(struct broker *broker) {
  struct connection *gone = NULL, *silent = NULL;
  for (uint32_t i = 0; i < broker->places; i++) {
    struct connection *connection = &broker->connections[i];
    if (connection->id == 0 || connection->has_ended) continue;
    if (connection->client.fd < 0) {
      if (is_older(connection, gone)) gone = connection;
    } else if (!connection->has_called && is_older(connection, silent)) {
      silent = connection;
    }
  }
  if (gone != NULL)
    connection_end(broker, gone);
  else if (silent != NULL)
    connection_hang_up(broker, silent);
  return gone != NULL || silent != NULL;
}

void connection_begin(struct broker *broker, int client, const struct peer *peer) {
  bool fits = broker->open_connections < broker->max_connections || make_place(broker);
  struct connection *connection = fits ? unused_place(broker) : NULL;
  if (connection == NULL) {
    close(client);
    return;
  }
  *connection = (struct connection){
      .id = ++broker->last_connection_id,
      .peer = *peer,
      .client = {.fd = client, .kind = WATCH_CLIENT, .connection = connection},
      .data = {.fd = -1, .kind = WATCH_DATA, .connection = connection},
      .file = -1,
      .deadline_ms = NEVER,
  };
  TAILQ_INIT(&connection->requests);
  TAILQ_INIT(&connection->answers);
  broker->open_connections++;
  connection_touch(broker, connection);
}

struct connection *connection_find(struct broker *broker, uint64_t id) {
  for (uint32_t i = 0; id != 0 && i < broker->places; i++)
    if (broker->connections[i].id == id) return &broker->connections[i];
  return NULL;
}

void connection_touch(struct broker *broker, struct connection *connection) {
  if (connection->is_dirty) return;
  connection->is_dirty = true;
  connection->next_dirty = broker->dirty;
  broker->dirty = connection;
}

void connection_release(struct broker *broker, struct frame *frame, enum pool pool) {
  frame->connection->blocks[pool] -= frame->blocks;
  frame_close(frame, &broker->blocks, pool);
}

bool connection_has_room(const struct broker *broker, const struct connection *connection, enum pool pool,
                         uint32_t blocks) {
  return blocks_have_room(&broker->blocks, pool, connection->blocks[pool], blocks);
}

void connection_reserve(struct broker *broker, struct connection *connection, enum pool pool, uint32_t blocks) {
  connection->blocks[pool] += blocks;
  blocks_reserve(&broker->blocks, pool, blocks);
}

void connection_set_deadline(struct broker *broker, struct connection *connection, int64_t deadline_ms) {
  connection->deadline_ms = deadline_ms;
  if (deadline_ms == NEVER) return;
  if (broker->next_deadline_ms == NEVER || deadline_ms < broker->next_deadline_ms)
    broker->next_deadline_ms = deadline_ms;
}

void connections_expire(struct broker *broker, int64_t now_ms) {
  if (broker->next_deadline_ms == NEVER || now_ms < broker->next_deadline_ms) return;
  broker->next_deadline_ms = NEVER;
  for (uint32_t i = 0; i < broker->places; i++) {
    struct connection *connection = &broker->connections[i];
    if (connection->id == 0 || connection->client.fd < 0 || connection->deadline_ms == NEVER) continue;
    if (now_ms >= connection->deadline_ms)
      connection_hang_up(broker, connection);
    else
      connection_set_deadline(broker, connection, connection->deadline_ms);
  }
}

static void unlink_request(struct broker *broker, struct connection *connection, struct frame *request) {
  if (connection->unsent == request) connection->unsent = TAILQ_NEXT(request, of_connection);
  if (!request->handed) connection->unsent_blocks -= request->blocks;
  TAILQ_REMOVE(&connection->requests, request, of_connection);
  TAILQ_REMOVE(&broker->requests, request, of_all);
}

void connection_close_request(struct broker *broker, struct connection *connection, struct frame *request) {
  unlink_request(broker, connection, request);
  connection_release(broker, request, POOL_REQUESTS);
}

/* Tells the agent that a request it was told of will not come. */
static void tell_dropped(struct broker *broker, const struct frame *request) {
  if (!request->listed || request->handed) return;
  outcome_add(&broker->outcomes, request->number, REQUEST_DROPPED)->forgotten_when_told = true;
  broker->session.has_untold = true;
}

static void drop_requests(struct broker *broker, struct connection *connection) {
  for (struct frame *request; (request = TAILQ_FIRST(&connection->requests)) != NULL;) {
    /* A part of it is in the data socket, so the rest must follow. */
    if (request == connection->sending) {
      unlink_request(broker, connection, request);
      connection->sending_is_orphan = true;
      continue;
    }
    tell_dropped(broker, request);
    /* The agent has the file, too, so its bytes count until the agent closes its end of the data socket. */
    uint32_t lent_blocks = request->handed && request->file >= 0 ? request->blocks : 0;
    connection_close_request(broker, connection, request);
    connection_reserve(broker, connection, POOL_REQUESTS, lent_blocks);
  }
  if (connection->request != NULL) connection_release(broker, connection->request, POOL_REQUESTS);
  connection->request = NULL;
}

void connection_settle_answer(struct broker *broker, struct connection *connection, enum request_state state) {
  struct frame *answer = TAILQ_FIRST(&connection->answers);
  if (answer->outcome != NULL) {
    answer->outcome->state = state;
    connection->has_untold = true;
    broker->session.has_untold = true;
    if (broker->tell_at_ms == NEVER) broker->tell_at_ms = monotonic_ms() + TELL_MS;
  }
  TAILQ_REMOVE(&connection->answers, answer, of_connection);
  connection_release(broker, answer, POOL_ANSWERS);
  connection->written = 0;
}

void connections_tell(struct broker *broker, int64_t now_ms) {
  if (broker->tell_at_ms == NEVER || now_ms < broker->tell_at_ms) return;
  broker->tell_at_ms = NEVER;
  for (uint32_t i = 0; i < broker->places; i++) {
    struct connection *connection = &broker->connections[i];
    if (connection->id == 0 || !connection->has_untold) continue;
    connection->must_tell = true;
    connection_touch(broker, connection);
  }
}

void connection_close_file(struct connection *connection) {
  if (connection->file >= 0) close(connection->file);
  connection->file = -1;
}

static void discard_incoming_answer(struct broker *broker, struct connection *connection) {
  if (connection->answer == NULL) return;
  connection->discard = connection->answer->bytes - connection->incoming.file_bytes - connection->answer->filled;
  connection_close_file(connection);
  connection_release(broker, connection->answer, POOL_ANSWERS);
  connection->answer = NULL;
  connection->incoming_bytes = 0;
}

void connection_hang_up(struct broker *broker, struct connection *connection) {
  if (connection->client.fd < 0) return;
  watch_close(broker, &connection->client);
  drop_requests(broker, connection);
  while (!TAILQ_EMPTY(&connection->answers)) connection_settle_answer(broker, connection, REQUEST_DROPPED);
  discard_incoming_answer(broker, connection);
  if (connection->data.fd < 0) connection_end(broker, connection);
  connection_touch(broker, connection);
}

void connection_lose_client(struct broker *broker, struct connection *connection, int error) {
  int pending = 0;
  socklen_t length = sizeof pending;
  /* A vsock tells ENOTCONN, and ECONNRESET only here. */
  if (getsockopt(connection->client.fd, SOL_SOCKET, SO_ERROR, &pending, &length) < 0) pending = 0;
  connection->was_lost = error == ECONNRESET || error == ENOTCONN || pending == ECONNRESET;
  connection_hang_up(broker, connection);
}

static void forget_unsent(struct broker *broker, const struct connection *connection) {
  const uint32_t size = sizeof *connection->outgoing;
  for (uint32_t i = 0; connection->to_send > 0 && i < connection->outgoing_bytes / size; i++) {
    const struct envelope *envelope = &connection->outgoing[i];
    bool is_outcome = envelope->kind == ENVELOPE_WRITTEN || envelope->kind == ENVELOPE_DROPPED;
    if (is_outcome && connection->sent < (i + 1) * size) outcome_tell_again(&broker->outcomes, envelope->number);
  }
}

void connection_end(struct broker *broker, struct connection *connection) {
  if (connection->has_ended) return;
  watch_close(broker, &connection->client);
  watch_close(broker, &connection->data);
  if (connection->sending_is_orphan) connection_release(broker, connection->sending, POOL_REQUESTS);
  blocks_release(&broker->blocks, POOL_REQUESTS, connection->blocks[POOL_REQUESTS]);
  connection_close_file(connection);
  forget_unsent(broker, connection);
  connection->sending = NULL;
  connection->sending_is_orphan = false;
  outcomes_leave(&broker->outcomes, connection);
  broker->session.has_untold = true;
  connection->has_ended = true;
  broker->open_connections--;
  connection_touch(broker, connection);
}

void connection_lose_agent(struct broker *broker, struct connection *connection) {
  watch_close(broker, &connection->data);
  discard_incoming_answer(broker, connection);
  connection_close_file(connection);
  connection->discard = connection->incoming_bytes = 0;
  connection->awaits_room = connection->data_has_ended = connection->is_announced = false;
  if (connection->client.fd < 0) {
    connection_end(broker, connection);
    return;
  }
  connection->sending = NULL;
  connection->sent = connection->to_send = 0;
  connection->unsent = TAILQ_FIRST(&connection->requests);
  connection->unsent_blocks = 0;
  struct frame *request;
  TAILQ_FOREACH(request, &connection->requests, of_connection) {
    request->sent_before |= request->handed;
    request->handed = request->listed = false;
    connection->unsent_blocks += request->blocks;
  }
  connection_touch(broker, connection);
}
