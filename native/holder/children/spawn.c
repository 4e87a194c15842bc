#define _GNU_SOURCE
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../process/defaults.h"
#include "../limits.h"
#include "lease.h"
#include "walls.h"

#define EXIT_CANNOT_EXECUTE 127

/* What a child writes: its outer pid, then an errno unless the exec succeeds. */
struct report {
  int value;
  int wall; /* that failed, or -1 */
};

pid_t outer_pid(void) {
  char text[16] = {0};
  return readlink("/proc/self", text, sizeof text - 1) > 0 ? atoi(text) : 0;
}

/* Runs in the child. Returns with errno set on failure. */
static void become_program(struct spawn *spawn, int reports) {
  const struct report pid = {outer_pid(), -1};
  if (write(reports, &pid, sizeof pid) != sizeof pid || setsid() < 0) return;
  int output = spawn->console >= 0 ? spawn->console : spawn->log;
  if (spawn->console >= 0 && dup2(spawn->console, STDIN_FILENO) < 0) return;
  if (dup2(output, STDOUT_FILENO) < 0 || dup2(spawn->log, STDERR_FILENO) < 0) return;
  int program = spawn->walls == NULL ? -1 : walls_program(spawn->argv[0]);
  if (spawn->walls != NULL) spawn->failed_wall = walls_make(spawn->walls, spawn->wall_count);
  if (spawn->failed_wall >= 0) return;
  reset_signals();
  execvp(spawn->argv[0], spawn->argv);
  /* The interpreter of a script opens it again. */
  if (errno == EACCES && program >= 0 && fcntl(program, F_SETFD, 0) == 0) fexecve(program, spawn->argv, environ);
}

static int left_ms(uint64_t until_ns) {
  const uint64_t now_ns = boot_ns();
  return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / 1000000);
}

/* Returns whether a report came; errno is 0 at the end of the pipe, ETIMEDOUT when it lasts too long. */
static bool next_report(const struct spawn *spawn, int reports, struct report *report) {
  struct pollfd polled = {.fd = reports, .events = POLLIN};
  if (poll(&polled, 1, left_ms(spawn->until_ns)) == 0) {
    errno = ETIMEDOUT;
    return false;
  }
  errno = 0;
  return read(reports, report, sizeof *report) == sizeof *report;
}

static bool await_exec(struct spawn *spawn, int reports) {
  struct report report;
  if (!next_report(spawn, reports, &report)) {
    if (errno == 0) errno = ECHILD;
    return false;
  }
  spawn->outer_pid = report.value;
  if (!next_report(spawn, reports, &report)) return errno == 0;
  spawn->failed_wall = report.wall;
  errno = report.value;
  return false;
}

bool spawn_process(struct spawn *spawn) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  spawn->pid = fork();
  if (spawn->pid == 0) {
    /* Out of the way of the descriptors that the program is given. */
    int reports = fcntl(ends[1], F_DUPFD_CLOEXEC, WALL_DESCRIPTORS_MAX + 1);
    if (reports < 0 && spawn->walls != NULL) _exit(EXIT_CANNOT_EXECUTE);
    if (reports < 0) reports = ends[1];
    become_program(spawn, reports);
    const struct report failure = {errno, spawn->failed_wall};
    ssize_t written = write(reports, &failure, sizeof failure);
    (void)written;
    _exit(EXIT_CANNOT_EXECUTE);
  }
  if (spawn->walls != NULL) walls_used(spawn->walls, spawn->wall_count);
  bool has_started = false;
  close(ends[1]);
  if (spawn->pid > 0) {
    has_started = await_exec(spawn, ends[0]);
    int error = errno;
    /* A process that hangs in its exec is reaped when it ends. */
    if (!has_started) kill(spawn->pid, SIGKILL);
    if (!has_started && error != ETIMEDOUT) waitpid(spawn->pid, NULL, 0);
    errno = error;
  }
  int error = errno;
  close(ends[0]);
  errno = error;
  return has_started;
}
