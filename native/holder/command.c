#define _GNU_SOURCE
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "children/child.h"
#include "children/lease.h"
#include "children/memory.h"
#include "children/walls.h"
#include "connection.h"
#include "relay.h"
#include "streams/client.h"
#include "streams/ring-file.h"
#include "streams/source.h"
#include "words.h"

/* A part of a listing, which a socket takes whole or not at all. */
#define LISTING_BYTES 4096
#define RING_TEXT_BYTES 80

#define SIGNALS_MAX 64

static void start_child(struct holder *holder, struct connection *connection, char **words, struct child_plan *plan) {
  const char *name = plan->name = words[1];
  plan->is_console = strcmp(words[2], "console") == 0;
  if (!child_name_is_valid(name)) {
    refuse(holder, connection, "INVALID_ARGUMENT", "child name: \"%.*s\"", 2 * NAME_BYTES_MAX, name);
    return;
  }
  if (!plan->is_console && strcmp(words[2], "log") != 0) {
    refuse(holder, connection, "INVALID_ARGUMENT", "output: unknown, want console or log");
    return;
  }
  if (lease_has_ended(holder)) {
    refuse(holder, connection, "FAILED_PRECONDITION", "start %s: the lease has ended", name);
    return;
  }
  int failed_wall;
  const struct child *child = child_start(holder, plan, &failed_wall);
  if (child == NULL && failed_wall >= 0) {
    refuse(holder, connection, "FAILED_PRECONDITION", "start %s: %.300s: %s", name, plan->walls[failed_wall],
           strerrorname_np(errno));
  } else if (child == NULL) {
    char what[NAME_BYTES_MAX + 140];
    snprintf(what, sizeof what, "start %s: %.128s", name, plan->argv[0]);
    refuse_errno(holder, connection, what);
  } else {
    answer(holder, connection, "ok %d", child->outer_pid);
  }
}

static void start(struct holder *holder, struct connection *connection, char **words) {
  start_child(holder, connection, words, &(struct child_plan){.argv = words + 3});
}

/* The walls end at the word `--`. */
static void start_walled(struct holder *holder, struct connection *connection, char **words) {
  struct child_plan plan = {.walls = words + 3};
  while (words[3 + plan.wall_count] != NULL && strcmp(words[3 + plan.wall_count], "--") != 0) plan.wall_count++;
  if (words[3 + plan.wall_count] == NULL || words[4 + plan.wall_count] == NULL) {
    refuse(holder, connection, "INVALID_ARGUMENT", "walled: no program, want -- and a program after the walls");
    return;
  }
  plan.argv = words + 4 + plan.wall_count;
  const char *wrong = walls_wrong(plan.walls, plan.wall_count);
  if (wrong != NULL)
    refuse(holder, connection, "INVALID_ARGUMENT", "wall \"%.100s\": wrong, " WALLS_USAGE, wrong);
  else
    start_child(holder, connection, words, &plan);
}

static void kill_child(struct holder *holder, struct connection *connection, char **words) {
  uint64_t number;
  const struct child *child = child_name_is_valid(words[1]) ? child_find(holder, words[1]) : NULL;
  if (child == NULL) {
    refuse(holder, connection, "NOT_FOUND", "child \"%.*s\": not found", 2 * NAME_BYTES_MAX, words[1]);
    return;
  }
  if (!word_number(words[2], SIGNALS_MAX, &number)) {
    refuse(holder, connection, "INVALID_ARGUMENT", "signal: not a number from 0 to %d", SIGNALS_MAX);
    return;
  }
  /* The child leads its process group. */
  if (child->pid != 0 && kill(-child->pid, (int)number) != 0 && errno != ESRCH) {
    refuse_errno(holder, connection, "kill");
    return;
  }
  answer(holder, connection, "ok");
}

static void list_children(struct holder *holder, struct connection *connection, char **words) {
  (void)words;
  char lines[CHILDREN_MAX * (CHILD_TEXT_BYTES + sizeof "child ")] = "";
  size_t length = 0;
  for (int i = 0; i < CHILDREN_MAX; i++) {
    if (holder->children[i].name[0] == '\0') continue;
    char text[CHILD_TEXT_BYTES];
    child_describe(&holder->children[i], text);
    length += (size_t)sprintf(lines + length, "child %s\n", text);
  }
  answer(holder, connection, "%sok", lines);
}

/* Returns NULL after an error. */
static struct ring *named_ring(struct holder *holder, struct connection *connection, const char *word) {
  uint64_t number;
  if (!word_number(word, UINT32_MAX, &number)) {
    refuse(holder, connection, "INVALID_ARGUMENT", "ring: not a number below 2^32");
    return NULL;
  }
  struct ring *ring = ring_find(holder, (uint32_t)number);
  if (ring == NULL) refuse(holder, connection, "NOT_FOUND", "ring %u: not found", (uint32_t)number);
  return ring;
}

static void listen_for_peer(struct holder *holder, struct connection *connection, char **words) {
  uint64_t number;
  if (!word_number(words[2], UINT32_MAX, &number) || number == 0) {
    refuse(holder, connection, "INVALID_ARGUMENT", "ring: not a number from 1 to 2^32 - 1");
    return;
  }
  if (port_open(holder, (uint32_t)number, words[1])) {
    answer(holder, connection, "ok");
    return;
  }
  char what[160];
  snprintf(what, sizeof what, "ring %u: listen on %.128s", (uint32_t)number, words[1]);
  refuse_errno(holder, connection, what);
}

static void list_rings(struct holder *holder, struct connection *connection) {
  while (connection->next_ring < holder->rings_used) {
    char lines[LISTING_BYTES];
    size_t length = 0;
    uint32_t next = connection->next_ring;
    for (; next < holder->rings_used && length + RING_TEXT_BYTES < sizeof lines; next++) {
      const struct ring *ring = &holder->rings[next];
      if (!ring->is_used) continue;
      length += (size_t)snprintf(lines + length, sizeof lines - length, "ring %u %llu %llu %s\n", ring->number,
                                 (unsigned long long)ring_first(ring), (unsigned long long)ring->end,
                                 ring->is_closed ? "closed" : "open");
    }
    if (length > 0 && send(connection->socket.fd, lines, length, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)length) {
      if (errno != EAGAIN) connection_close(holder, connection);
      return;
    }
    connection->next_ring = next;
  }
  connection->mode = CONNECTION_COMMANDS;
  answer(holder, connection, "ok");
}

static void begin_list_rings(struct holder *holder, struct connection *connection, char **words) {
  (void)words;
  connection->mode = CONNECTION_LISTS_RINGS;
  connection->next_ring = 0;
  list_rings(holder, connection);
}

static void attach(struct holder *holder, struct connection *connection, char **words) {
  uint64_t offset;
  struct ring *ring = named_ring(holder, connection, words[1]);
  if (ring == NULL) return;
  if (!word_number(words[2], UINT64_MAX, &offset)) {
    refuse(holder, connection, "INVALID_ARGUMENT", "offset: not a number below 2^64");
    return;
  }
  if (offset > ring->end) {
    refuse(holder, connection, "OUT_OF_RANGE", "ring %u: offset %s: after the end, which is %llu", ring->number,
           words[2], (unsigned long long)ring->end);
    return;
  }
  if (holder->clients == CLIENTS_MAX) {
    refuse(holder, connection, "RESOURCE_EXHAUSTED", "ring %u: %d clients are attached", ring->number, CLIENTS_MAX);
    return;
  }
  const uint64_t first = ring_first(ring);
  connection->offset = offset < first ? first : offset;
  answer(holder, connection, "ok %llu", (unsigned long long)connection->offset);
  if (connection->mode != CONNECTION_COMMANDS) return;
  connection->mode = CONNECTION_ATTACHED;
  connection->ring = (uint32_t)(ring - holder->rings);
  holder->clients++;
  client_send(holder, connection);
}

static void close_ring(struct holder *holder, struct connection *connection, char **words) {
  struct ring *ring = named_ring(holder, connection, words[1]);
  if (ring == NULL) return;
  ring_close(holder, ring);
  answer(holder, connection, "ok");
}

/* Goes on after what its file has, which has come from another host: nothing has been read yet. */
static void take_ring(struct holder *holder, struct connection *connection, char **words) {
  struct ring *ring = named_ring(holder, connection, words[1]);
  if (ring == NULL) return;
  ring_take(ring);
  answer(holder, connection, "ok");
}

/* Takes the content of a file, for all that ask. */
static void make_memory(struct holder *holder, struct connection *connection, char **words) {
  if (holder->memory >= 0) {
    refuse(holder, connection, "ALREADY_EXISTS", "memory: the holder has one");
    return;
  }
  holder->memory = memory_open(words[1]);
  if (holder->memory >= 0) {
    answer(holder, connection, "ok");
    return;
  }
  char what[160];
  snprintf(what, sizeof what, "memory of %.128s", words[1]);
  refuse_errno(holder, connection, what);
}

static void give_memory(struct holder *holder, struct connection *connection, char **words) {
  (void)words;
  if (holder->memory < 0)
    refuse(holder, connection, "NOT_FOUND", "memory: none");
  else if (!memory_send(connection->socket.fd, holder->memory))
    connection_close(holder, connection);
}

/* Comes with two sockets: QEMU has the other end of the first one, and the second one is connected to a server. */
static void relay(struct holder *holder, struct connection *connection, char **words) {
  (void)words;
  if (holder->passed.count != 2) {
    refuse(holder, connection, "INVALID_ARGUMENT", "relay: %zu descriptors, want 2", holder->passed.count);
    return;
  }
  holder->passed.count = 0;
  if (relay_open(holder, holder->passed.fds[0], holder->passed.fds[1]))
    answer(holder, connection, "ok");
  else
    refuse_errno(holder, connection, "relay");
}

static void tell_lease(struct holder *holder, struct connection *connection) {
  const bool has_ended = lease_has_ended(holder);
  if (holder->lease_until_ns == 0)
    answer(holder, connection, "ok");
  else
    answer(holder, connection, "ok %llu%s", (unsigned long long)holder->lease_until_ns, has_ended ? " ended" : "");
}

/* Sets the end of the lease, or tells it without one. */
static void lease(struct holder *holder, struct connection *connection, char **words) {
  uint64_t until_ns;
  if (words[1] == NULL)
    tell_lease(holder, connection);
  else if (!word_number(words[1], INT64_MAX, &until_ns))
    refuse(holder, connection, "INVALID_ARGUMENT", "lease: not a number below 2^63");
  else if (lease_set(holder, until_ns))
    answer(holder, connection, "ok");
  else if (errno == ETIME)
    refuse(holder, connection, "FAILED_PRECONDITION", "lease: %s: %s, now is %llu", words[1],
           holder->lease_has_ended ? "the one before has ended" : "has passed", (unsigned long long)boot_ns());
  else if (errno == ERANGE)
    refuse(holder, connection, "OUT_OF_RANGE", "lease: %s: want at most %d s from now, which is %llu", words[1],
           LEASE_SECONDS_MAX, (unsigned long long)boot_ns());
  else
    refuse_errno(holder, connection, "lease");
}

static void watch(struct holder *holder, struct connection *connection, char **words) {
  (void)words;
  connection->wants_exits = true;
  answer(holder, connection, "ok");
}

static void end(struct holder *holder, struct connection *connection, char **words) {
  (void)words;
  answer(holder, connection, "ok");
  holder_end(holder);
}

static const struct verb {
  const char *name;
  int min_words;
  int max_words;
  void (*run)(struct holder *holder, struct connection *connection, char **words);
} verbs[] = {
    {"start", 4, WORDS_MAX, start},
    {"walled", 5, WORDS_MAX, start_walled},
    {"kill", 3, 3, kill_child},
    {"children", 1, 1, list_children},
    {"listen", 3, 3, listen_for_peer},
    {"rings", 1, 1, begin_list_rings},
    {"attach", 3, 3, attach},
    {"close", 2, 2, close_ring},
    {"take", 2, 2, take_ring},
    {"memory", 2, 2, make_memory},
    {"give", 1, 1, give_memory},
    {"relay", 1, 1, relay},
    {"lease", 1, 2, lease},
    {"watch", 1, 1, watch},
    {"end", 1, 1, end},
};

static void run_line(struct holder *holder, struct connection *connection) {
  int count = words_split(holder->line, holder->words, WORDS_MAX);
  if (count < 0) {
    refuse(holder, connection, "INVALID_ARGUMENT", "line: more than %d words, or a wrong %%", WORDS_MAX);
    return;
  }
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    if (strcmp(holder->words[0], verbs[i].name) != 0) continue;
    if (count >= verbs[i].min_words && count <= verbs[i].max_words)
      verbs[i].run(holder, connection, holder->words);
    else
      refuse(holder, connection, "INVALID_ARGUMENT", "%s: wrong number of words", verbs[i].name);
    return;
  }
  refuse(holder, connection, "UNIMPLEMENTED", "command \"%.64s\": unknown", holder->words[0]);
}

static void drop_passed(struct holder *holder) {
  while (holder->passed.count > 0) close(holder->passed.fds[--holder->passed.count]);
}

static void run(struct holder *holder, struct connection *connection) {
  run_line(holder, connection);
  drop_passed(holder);
}

/*
 * Moves the next line into holder->line, without its end. It stays in the socket until it is whole, so that no
 * connection needs a buffer, and what follows `attach` is not read here.
 */
static bool next_line(struct holder *holder, struct connection *connection) {
  const int fd = connection->socket.fd;
  ssize_t length = recv(fd, holder->line, LINE_BYTES_MAX, MSG_PEEK | MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (length <= 0) {
    connection_close(holder, connection);
    return false;
  }
  const char *newline = memchr(holder->line, '\n', (size_t)length);
  if (newline == NULL) {
    if (length < LINE_BYTES_MAX) return false;
    refuse(holder, connection, "INVALID_ARGUMENT", "line: longer than %d bytes", LINE_BYTES_MAX);
    if (connection->mode != CONNECTION_CLOSED) connection_close(holder, connection);
    return false;
  }
  const ssize_t line_length = newline - holder->line;
  const size_t taken = (size_t)line_length + 1;
  if (message_receive_all(fd, holder->line, taken, &holder->passed, MSG_DONTWAIT) != line_length + 1) {
    drop_passed(holder);
    connection_close(holder, connection);
    return false;
  }
  /* A NUL before the end is a wrong word. */
  for (ssize_t i = 0; i < line_length; i++)
    if (holder->line[i] == '\0') holder->line[i] = '%';
  holder->line[line_length] = '\0';
  return true;
}

void commands_read(struct holder *holder, struct connection *connection, uint32_t events) {
  if (connection->mode == CONNECTION_LISTS_RINGS) list_rings(holder, connection);
  for (int i = 0; i < LINES_BATCH; i++) {
    if (connection->mode != CONNECTION_COMMANDS) return;
    if (!next_line(holder, connection)) {
      /* The rest of the last line will never come. */
      bool has_ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      if (has_ended && connection->mode == CONNECTION_COMMANDS) connection_close(holder, connection);
      return;
    }
    run(holder, connection);
  }
  /* Setting the events again reports lines that are left. */
  connection->socket.events = 0;
  if (connection->mode == CONNECTION_COMMANDS) connection_wait(holder, connection);
}
