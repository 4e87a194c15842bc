#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../connection.h"
#include "../streams/source.h"
#include "../watch.h"
#include "lease.h"
#include "log-file.h"
#include "spawn.h"

/* The whole file is written at once, so that a holder that is killed leaves the old lines or the new ones. */
#define EXITS_BYTES 4096
_Static_assert(CHILDREN_MAX *(CHILD_TEXT_BYTES + 1) <= EXITS_BYTES, "room for the lines of all children");

bool child_name_is_valid(const char *name) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  size_t length = strspn(name, allowed);
  return length > 0 && length <= NAME_BYTES_MAX && name[length] == '\0';
}

struct child *child_find(struct holder *holder, const char *name) {
  for (int i = 0; i < CHILDREN_MAX; i++)
    if (strcmp(holder->children[i].name, name) == 0) return &holder->children[i];
  return NULL;
}

/* The entry of an earlier child of this name, an unused one, or the one that ended first. */
static struct child *entry_for(struct holder *holder, const char *name) {
  struct child *entry = child_find(holder, name);
  if (entry != NULL && entry->pid != 0) {
    errno = EEXIST;
    return NULL;
  }
  if (entry != NULL) return entry;
  for (int i = 0; i < CHILDREN_MAX; i++)
    if (holder->children[i].name[0] == '\0') return &holder->children[i];
  for (int i = 0; i < CHILDREN_MAX; i++) {
    struct child *child = &holder->children[i];
    if (child->pid == 0 && (entry == NULL || child->ended < entry->ended)) entry = child;
  }
  if (entry == NULL) errno = ENOBUFS;
  return entry;
}

void child_describe(const struct child *child, char text[CHILD_TEXT_BYTES]) {
  const char *state = child->pid != 0 ? "running" : WIFSIGNALED(child->status) ? "killed" : "exited";
  int length = snprintf(text, CHILD_TEXT_BYTES, "%s %d %s", child->name, child->outer_pid, state);
  if (child->pid != 0) return;
  int number = WIFSIGNALED(child->status) ? WTERMSIG(child->status) : WEXITSTATUS(child->status);
  snprintf(text + length, CHILD_TEXT_BYTES - (size_t)length, " %d", number);
}

static void exits_store(const struct holder *holder) {
  char lines[EXITS_BYTES];
  size_t length = 0;
  for (int i = 0; i < CHILDREN_MAX; i++) {
    const struct child *child = &holder->children[i];
    if (child->name[0] == '\0') continue;
    char text[CHILD_TEXT_BYTES];
    child_describe(child, text);
    length += (size_t)sprintf(lines + length, "%s\n", text);
  }
  memset(lines + length, '\n', sizeof lines - length);
  ssize_t written = pwrite(holder->exits_file, lines, sizeof lines, 0);
  (void)written;
}

bool exits_open(struct holder *holder) {
  holder->exits_file = open("exits", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (holder->exits_file < 0) return false;
  int error = posix_fallocate(holder->exits_file, 0, EXITS_BYTES);
  if (error == 0) exits_store(holder);
  errno = error;
  return error == 0;
}

/* Makes the sockets of the console: `ends[0]` is the ring's, `ends[1]` the child's. */
static bool open_console(struct holder *holder, struct ring **ring, int *child_end) {
  *ring = ring_open(holder, 0);
  if (*ring == NULL) return false;
  int ends[2];
  bool is_open = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 &&
                 fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && source_begin(holder, *ring, ends[0]);
  if (is_open)
    *child_end = ends[1];
  else
    source_end(holder, *ring);
  return is_open;
}

/* A program that hangs in its exec does not keep the holder from the end of its lease. */
static uint64_t start_until_ns(const struct holder *holder) {
  const uint64_t until_ns = boot_ns() + START_TIMEOUT_MS * 1000000ull;
  const bool ends_before = holder->lease_until_ns != 0 && holder->lease_until_ns < until_ns;
  return ends_before ? holder->lease_until_ns : until_ns;
}

struct child *child_start(struct holder *holder, const struct child_plan *plan, int *failed_wall) {
  *failed_wall = -1;
  struct child *child = entry_for(holder, plan->name);
  if (child == NULL) return NULL;
  struct ring *ring = NULL;
  struct spawn spawn = {
      .argv = plan->argv,
      .console = -1,
      .log = -1,
      .walls = plan->walls,
      .wall_count = plan->wall_count,
      .until_ns = start_until_ns(holder),
      .failed_wall = -1,
  };
  if (plan->is_console && !open_console(holder, &ring, &spawn.console)) return NULL;
  struct child started = {.log.fd = -1, .log_file = -1};
  strcpy(started.name, plan->name);
  spawn.log = log_open(&started);
  bool has_started = spawn.log >= 0 && spawn_process(&spawn);
  int error = errno;
  *failed_wall = spawn.failed_wall;
  if (spawn.log >= 0) close(spawn.log);
  if (spawn.console >= 0) close(spawn.console);
  if (!has_started) {
    log_close(holder, &started);
    if (ring != NULL) source_end(holder, ring);
    errno = error;
    return NULL;
  }
  log_close(holder, child);
  started.pid = spawn.pid;
  started.outer_pid = spawn.outer_pid;
  *child = started;
  log_watch(holder, child);
  exits_store(holder);
  return child;
}

static void tell_end(struct holder *holder, const struct child *child) {
  char text[CHILD_TEXT_BYTES];
  child_describe(child, text);
  for (uint32_t i = 0; i < holder->connections_used; i++) {
    struct connection *connection = &holder->connections[i];
    bool is_open = connection->mode == CONNECTION_COMMANDS || connection->mode == CONNECTION_LISTS_RINGS;
    if (is_open && connection->wants_exits) answer(holder, connection, "exit %s", text);
  }
}

static void record_end(struct holder *holder, pid_t pid, int status) {
  for (int i = 0; i < CHILDREN_MAX; i++) {
    struct child *child = &holder->children[i];
    if (child->name[0] == '\0' || child->pid != pid) continue;
    child->pid = 0;
    child->status = status;
    child->ended = ++holder->ends;
    exits_store(holder);
    tell_end(holder, child);
  }
}

void children_reap(struct holder *holder) {
  for (int i = 0; i < REAP_BATCH; i++) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      holder->may_reap = false;
      return;
    }
    record_end(holder, pid, status);
  }
}
