#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../init/clock.h"
#include "../../init/log.h"
#include "../../process/message.h"
#include "../connection.h"
#include "../data-socket.h"
#include "../store/outcomes.h"
#include "../watch.h"
#include "hang.h"
#include "hello.h"

/* Time for a client to read its last answers after CLOSE. */
#define CLOSE_MS 5000

#define ANNOUNCE_PAUSE_MS 100

#define READ_BATCH 64

#define STATES 256

/* Reads what the agent has sent, then opens the requests without an answer again. */
static void session_end(struct broker *broker) {
  struct session *session = &broker->session;
  if (session->control.fd < 0) return;
  watch_close(broker, &session->control);
  for (uint32_t i = 0; i < broker->places; i++) {
    struct connection *connection = &broker->connections[i];
    if (connection->id == 0 || connection->has_ended || connection->data.fd < 0) continue;
    data_drain(broker, connection);
    connection_lose_agent(broker, connection);
  }
  /* Requests of connections without a data socket were listed, too. */
  struct frame *request;
  TAILQ_FOREACH(request, &broker->requests, of_all) request->listed = false;
  outcomes_tell_again(&broker->outcomes);
}

/* Cuts off an agent that broke the protocol, and makes vminit kill it. */
static void fail(struct broker *broker, const char *reason) {
  struct session *session = &broker->session;
  if (session->control.fd < 0) return;
  log_line("broker: agent %u %s: it is cut off", session->pid, reason);
  broker->hung_pid = session->pid;
  session_end(broker);
}

static void on_hello(struct broker *broker, const struct control_header *header, const struct hello *hello,
                     int listener) {
  const char *fault = hello_accept(broker, header, hello, listener);
  if (fault != NULL) {
    fail(broker, fault);
    return;
  }
  struct session *session = &broker->session;
  session->has_said_hello = session->has_untold = session->has_unannounced = true;
  /* The wait for HELLO becomes the wait until the agent has taken all that comes before READY. */
  session->look_at_ms = NEVER;
  if (broker->hang_ms > 0) hang_begin_wait(broker, monotonic_ms());
}

static void on_close(struct broker *broker, uint64_t id) {
  struct connection *connection = connection_find(broker, id);
  if (connection == NULL || connection->is_closing || connection->client.fd < 0) return;
  connection->is_closing = true;
  connection_set_deadline(broker, connection, monotonic_ms() + CLOSE_MS);
  connection_touch(broker, connection);
}

static void handle_message(struct broker *broker, const struct control_header *header) {
  switch (header->kind) {
    case CONTROL_PONG:
      hang_got_pong(&broker->session, header->a);
      return;
    case CONTROL_STOP:
      broker->is_stopped = true;
      broker->accept_at_ms = NEVER;
      watch_remove(broker, &broker->listener);
      return;
    case CONTROL_CLOSE:
      on_close(broker, header->a);
      return;
    case CONTROL_CONFIRM:
      outcome_confirm(&broker->outcomes, header->a);
      return;
    default:
      fail(broker, "sent a control message of unknown kind");
  }
}

static bool read_message(struct broker *broker) {
  struct __attribute__((packed)) {
    struct control_header header;
    struct hello hello;
  } message = {0};
  int passed;
  struct session *session = &broker->session;
  ssize_t length = message_receive(session->control.fd, &message, sizeof message, &passed);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  /* The agent died with unread messages. Its own messages can still be read. */
  if (length < 0 && errno == ECONNRESET) return true;
  struct control_header header = message.header;
  struct hello hello = message.hello;
  if (length == 0) {
    session_end(broker);
  } else if (length == sizeof message && header.kind == CONTROL_HELLO && !session->has_said_hello) {
    on_hello(broker, &header, &hello, passed);
    passed = -1;
  } else if (length != sizeof header || !session->has_said_hello) {
    fail(broker, "sent a control message of wrong length or at a wrong time");
  } else {
    handle_message(broker, &header);
  }
  if (passed >= 0) close(passed);
  return true;
}

void session_read(struct broker *broker) {
  for (int i = 0; i < READ_BATCH && broker->session.control.fd >= 0; i++)
    if (!read_message(broker)) return;
}

void session_begin(struct broker *broker, int control, uint32_t pid) {
  /* Read what the previous agent has sent. */
  while (broker->session.control.fd >= 0 && read_message(broker)) continue;
  session_end(broker);
  broker->session = (struct session){
      .control = {.fd = control, .kind = WATCH_CONTROL},
      .pid = pid,
      .announce_at_ms = NEVER,
  };
  hang_begin(broker);
  if (!watch_set(broker, &broker->session.control, EPOLLIN)) fail(broker, "cannot be waited for");
}

/* Returns false when the socket takes no message; session_flush tries again later. */
static bool send_message(struct broker *broker, const void *bytes, size_t length, int passed) {
  struct session *session = &broker->session;
  if (message_send(session->control.fd, bytes, length, passed) >= 0) return true;
  if (errno == EAGAIN || errno == EPIPE || errno == ECONNRESET)
    session->control_is_full = true;
  else
    /* ETOOMANYREFS: the agent does not take its descriptors, and no event reports when it does. ENOBUFS: no memory. */
    session->announce_at_ms = monotonic_ms() + ANNOUNCE_PAUSE_MS;
  return false;
}

struct states {
  struct request_pair pairs[STATES];
  struct outcome *outcomes[STATES]; /* NULL: a request */
  struct frame *requests[STATES];
  uint32_t count;
};

/* Before READY the control socket tells every outcome, later settled ones of connections without a data socket. */
static bool is_to_be_told(const struct session *session, const struct outcome *outcome) {
  if (outcome->told == (int)outcome->state) return false;
  if (!session->is_ready) return true;
  if (outcome->state == REQUEST_ANSWERED) return false;
  return outcome->connection == NULL || outcome->connection->data.fd < 0;
}

static void collect_states(const struct broker *broker, struct states *states) {
  states->count = 0;
  struct outcome *outcome;
  TAILQ_FOREACH(outcome, &broker->outcomes.all, entry) {
    if (states->count == STATES) return;
    if (!is_to_be_told(&broker->session, outcome)) continue;
    states->pairs[states->count] = (struct request_pair){outcome->number, outcome->state};
    states->outcomes[states->count++] = outcome;
  }
  if (broker->session.is_ready) return;
  struct frame *request;
  TAILQ_FOREACH(request, &broker->requests, of_all) {
    if (states->count == STATES) return;
    if (request->listed) continue;
    states->pairs[states->count] = (struct request_pair){request->number, REQUEST_OPEN};
    states->outcomes[states->count] = NULL;
    states->requests[states->count++] = request;
  }
}

static void mark_told(struct broker *broker, const struct states *states) {
  for (uint32_t i = 0; i < states->count; i++) {
    struct outcome *outcome = states->outcomes[i];
    if (outcome == NULL) {
      states->requests[i]->listed = true;
      continue;
    }
    outcome->told = (int)outcome->state;
    if (outcome->forgotten_when_told) outcome_forget(&broker->outcomes, outcome);
  }
}

static bool tell_states(struct broker *broker) {
  struct states states;
  collect_states(broker, &states);
  if (states.count == 0) {
    broker->session.has_untold = false;
    return false;
  }
  struct {
    struct control_header header;
    struct request_pair pairs[STATES];
  } message;
  message.header = (struct control_header){
      .kind = CONTROL_REQUEST_STATE, .flags = (uint32_t)states.pairs[0].state, .a = states.pairs[0].number};
  size_t further = (states.count - 1) * sizeof *message.pairs;
  memcpy(message.pairs, states.pairs + 1, further);
  if (!send_message(broker, &message, sizeof message.header + further, -1)) return false;
  mark_told(broker, &states);
  return true;
}

static bool send_connection(struct broker *broker, const struct connection *connection, int passed) {
  char message[sizeof(struct control_header) + sizeof(struct peer_address) + ADDRESS_TEXT_BYTES + sizeof(uint32_t) +
               MAX_FIRST_BYTES];
  char *next = message;
  const struct control_header header = {
      .kind = CONTROL_CONNECTION, .flags = connection->is_grpc ? CONNECTION_GRPC : 0, .a = connection->id};
  const struct peer *peer = &connection->peer;
  const uint32_t first_bytes = connection->is_grpc ? connection->header_bytes : 0;
  next = mempcpy(next, &header, sizeof header);
  next = mempcpy(next, &peer->address, sizeof peer->address);
  next = mempcpy(next, peer->text, peer->address.text_bytes);
  next = mempcpy(next, &first_bytes, sizeof first_bytes);
  next = mempcpy(next, connection->header, first_bytes);
  return send_message(broker, message, (size_t)(next - message), passed);
}

/* Gives the agent the client's own socket. */
static bool hand_over(struct broker *broker, struct connection *connection) {
  if (!send_connection(broker, connection, connection->client.fd)) return false;
  connection_end(broker, connection);
  return true;
}

static bool open_data_socket(struct broker *broker, struct connection *connection) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    broker->session.announce_at_ms = monotonic_ms() + ANNOUNCE_PAUSE_MS;
    return false;
  }
  bool is_sent = send_connection(broker, connection, pair[1]);
  close(pair[1]);
  if (!is_sent) {
    close(pair[0]);
    return false;
  }
  connection->data.fd = pair[0];
  connection->data_is_shut = connection->data_has_ended = false;
  connection->is_announced = true;
  connection_touch(broker, connection);
  return true;
}

/* Gives the agent the connections that it lacks. Returns false if some are left. */
static bool announce(struct broker *broker) {
  for (uint32_t i = 0; i < broker->places; i++) {
    struct connection *connection = &broker->connections[i];
    if (connection->id == 0 || connection->client.fd < 0 || !connection->has_called || connection->is_announced)
      continue;
    if (!(connection->is_grpc ? hand_over(broker, connection) : open_data_socket(broker, connection))) return false;
  }
  broker->session.has_unannounced = false;
  return true;
}

bool session_send_file(struct broker *broker, const struct frame *request) {
  struct session *session = &broker->session;
  const struct control_header file = {.kind = CONTROL_FILE, .a = request->number, .b = request->connection->id};
  bool may_send = !session->control_is_full && session->announce_at_ms == NEVER;
  if (may_send && send_message(broker, &file, sizeof file, request->file)) return true;
  session->has_unsent_file = true;
  return false;
}

static void touch_all(struct broker *broker) {
  for (uint32_t i = 0; i < broker->places; i++)
    if (broker->connections[i].id != 0) connection_touch(broker, &broker->connections[i]);
}

/* Sends READY, then the open requests in the order of arrival, as far as the data sockets take them. */
static bool become_ready(struct broker *broker) {
  const struct control_header ready = {.kind = CONTROL_READY};
  if (!send_message(broker, &ready, sizeof ready, -1)) return false;
  broker->session.is_ready = true;
  broker->session.look_at_ms = NEVER;
  struct frame *request;
  TAILQ_FOREACH(request, &broker->requests, of_all) {
    struct connection *connection = request->connection;
    bool may_go_on = connection->data.fd >= 0;
    while (may_go_on && connection->unsent == request) may_go_on = data_send_one(broker, connection);
  }
  touch_all(broker);
  return true;
}

static void send_ping(struct broker *broker, int64_t now_ms) {
  const struct control_header ping = {.kind = CONTROL_PING, .a = broker->session.pings + 1};
  /* Before the PING, because an agent that does not read the control socket is late, too. */
  hang_begin_wait(broker, now_ms);
  if (send_message(broker, &ping, sizeof ping, -1)) hang_ping_sent(&broker->session, now_ms);
}

void session_flush(struct broker *broker) {
  struct session *session = &broker->session;
  if (session->control.fd < 0 || !session->has_said_hello) return;
  bool may_go_on = !session->control_is_full && session->announce_at_ms == NEVER;
  while (may_go_on && session->has_untold) may_go_on = tell_states(broker) || !session->has_untold;
  if (may_go_on && session->has_unannounced) may_go_on = announce(broker);
  if (may_go_on && !session->is_ready) may_go_on = become_ready(broker);
  if (may_go_on && session->has_unsent_file) {
    session->has_unsent_file = false;
    touch_all(broker);
  }
  int64_t now_ms = monotonic_ms();
  if (session->is_ready && hang_is_ping_due(broker, now_ms)) send_ping(broker, now_ms);
  watch_set(broker, &session->control, session->control_is_full ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void session_expire(struct broker *broker, int64_t now_ms) {
  struct session *session = &broker->session;
  if (session->fault != NULL) fail(broker, session->fault);
  if (session->control.fd < 0) return;
  if (session->announce_at_ms != NEVER && now_ms >= session->announce_at_ms) session->announce_at_ms = NEVER;
  hang_look(broker, now_ms);
}

int64_t session_next_ms(const struct broker *broker) {
  const struct session *session = &broker->session;
  if (session->control.fd < 0) return NEVER;
  int64_t next = session->look_at_ms;
  int64_t other = session->announce_at_ms;
  /* A PING that finds no room begins the wait. */
  if (other == NEVER && (!session->control_is_full || next == NEVER)) other = hang_next_ping_ms(session);
  return next == NEVER || (other != NEVER && other < next) ? other : next;
}
