#define _GNU_SOURCE
#include "connection.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "streams/source.h"
#include "watch.h"
#include "words.h"

#define TEXT_BYTES 512

/* More than the queue of a socket holds is never read before a close. */
#define DRAIN_READS 256

static uint32_t index_of(const struct holder *holder, const struct connection *connection) {
  return (uint32_t)(connection - holder->connections);
}

static struct connection *unused(struct holder *holder) {
  for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
    if (holder->connections[i].mode != CONNECTION_UNUSED) continue;
    if (i >= holder->connections_used) holder->connections_used = i + 1;
    return &holder->connections[i];
  }
  return NULL;
}

static bool is_allowed(int fd) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void connection_open(struct holder *holder, int fd) {
  struct connection *connection = unused(holder);
  if (connection == NULL) {
    static const char text[] = "error RESOURCE_EXHAUSTED connections:%20too%20many\n";
    send(fd, text, sizeof text - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
    return;
  }
  *connection = (struct connection){.socket.fd = fd, .mode = CONNECTION_COMMANDS};
  answer(holder, connection, "holder 1 %d %llu", holder->outer_pid, holder->start_time);
  if (connection->mode == CONNECTION_COMMANDS) connection_wait(holder, connection);
}

void connections_accept(struct holder *holder) {
  for (int i = 0; i < LINES_BATCH; i++) {
    int fd = accept4(holder->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      holder->accepts_later = true;
      watch_set(holder, &holder->listener, SUBJECT_LISTENER, 0, 0);
    }
    if (fd < 0) return;
    if (is_allowed(fd))
      connection_open(holder, fd);
    else
      close(fd);
  }
}

void connection_wait(struct holder *holder, struct connection *connection) {
  uint32_t events = 0;
  if (connection->mode != CONNECTION_ATTACHED) {
    /* By edges, because a line stays in the socket until it is whole. */
    events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  } else {
    if (!connection->input_ended && !connection->input_waits) events |= EPOLLIN;
    if (connection->is_full) events |= EPOLLOUT;
  }
  if (!watch_set(holder, &connection->socket, SUBJECT_CONNECTION, index_of(holder, connection), events))
    connection_close(holder, connection);
}

void answer(struct holder *holder, struct connection *connection, const char *format, ...) {
  char line[ENCODED_ROOM(TEXT_BYTES)];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  line[length++] = '\n';
  ssize_t sent = send(connection->socket.fd, line, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != length) connection_close(holder, connection);
}

void refuse(struct holder *holder, struct connection *connection, const char *code, const char *format, ...) {
  char text[TEXT_BYTES];
  char encoded[ENCODED_ROOM(TEXT_BYTES) - sizeof "error RESOURCE_EXHAUSTED "];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  word_encode(text, encoded, sizeof encoded);
  answer(holder, connection, "error %s %s", code, encoded);
}

static const char *code_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EAGAIN:
      return "RESOURCE_EXHAUSTED";
    case ENOENT:
      return "NOT_FOUND";
    case EACCES:
    case EPERM:
      return "PERMISSION_DENIED";
    case EADDRINUSE:
    case EEXIST:
      return "ALREADY_EXISTS";
    case ENAMETOOLONG:
    case EINVAL:
      return "INVALID_ARGUMENT";
    case ETIMEDOUT:
      return "DEADLINE_EXCEEDED";
    default:
      return "INTERNAL";
  }
}

void refuse_errno(struct holder *holder, struct connection *connection, const char *what) {
  int error = errno;
  refuse(holder, connection, code_of(error), "%s: %s", what, strerrorname_np(error));
}

void connection_close(struct holder *holder, struct connection *connection) {
  /* What is left unread would make the peer's last reads fail with ECONNRESET. */
  char discarded[4096];
  for (int i = 0; i < DRAIN_READS && recv(connection->socket.fd, discarded, sizeof discarded, MSG_DONTWAIT) > 0;) i++;
  watch_close(holder, &connection->socket);
  if (connection->mode == CONNECTION_ATTACHED) holder->clients--;
  connection->mode = CONNECTION_CLOSED;
  holder->has_closed = true;
  if (connection->is_leash) holder_end(holder);
}

void connections_clean(struct holder *holder) {
  if (!holder->has_closed) return;
  holder->has_closed = false;
  for (uint32_t i = 0; i < holder->connections_used; i++)
    if (holder->connections[i].mode == CONNECTION_CLOSED) holder->connections[i].mode = CONNECTION_UNUSED;
  while (holder->connections_used > 0 && holder->connections[holder->connections_used - 1].mode == CONNECTION_UNUSED)
    holder->connections_used--;
}
