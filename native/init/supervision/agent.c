#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../process/defaults.h"

#define CHANNEL_FD 3
#define EXIT_CANNOT_EXECUTE 127

bool agent_prepare(struct agent *agent) {
  void *page = mmap(NULL, sizeof *agent->start_errno, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  *agent = (struct agent){.start_errno = page};
  return true;
}

/* command + `--channel 3 --restarts N [--init]`. */
static char **full_command(const struct agent_launch *launch, char *channel, char *restarts) {
  char *added[] = {"--channel", channel, "--restarts", restarts, launch->init_mode ? "--init" : NULL, NULL};
  size_t count = 0;
  while (launch->command[count] != NULL) count++;
  char **argv = calloc(count + sizeof added / sizeof added[0], sizeof *argv);
  if (argv == NULL) return NULL;
  memcpy(argv, launch->command, count * sizeof *argv);
  memcpy(argv + count, added, sizeof added);
  return argv;
}

/* Makes the channel descriptor 3 and closes every other one above stderr. */
static bool keep_only_channel(int fd) {
  /* dup2(2) onto the same descriptor would leave close-on-exec set. */
  bool placed = fd == CHANNEL_FD ? fcntl(fd, F_SETFD, 0) == 0 : dup2(fd, CHANNEL_FD) == CHANNEL_FD;
  return placed && close_range(CHANNEL_FD + 1, ~0U, 0) == 0;
}

/* In the child: everything up to exec. Returns with errno set when something failed. */
static void become_agent(const struct agent_launch *launch) {
  char channel[16], restarts[16];
  snprintf(channel, sizeof channel, "%d", CHANNEL_FD);
  snprintf(restarts, sizeof restarts, "%u", launch->restarts);
  char **argv = full_command(launch, channel, restarts);
  if (argv == NULL || !keep_only_channel(launch->channel_fd)) return;
  if (launch->init_mode) {
    /*
     * The agent owns the console: if vminit did, Ctrl-C would reach it and look like Ctrl-Alt-Del. The argument 1 takes
     * the console from the session of an earlier agent. A console that is not a terminal is ignored.
     */
    setsid();
    ioctl(STDIN_FILENO, TIOCSCTTY, 1);
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
  }
  reset_signals();
  execvp(argv[0], argv);
}

bool agent_start(struct agent *agent, const struct agent_launch *launch) {
  *agent->start_errno = 0;
  pid_t pid = fork();
  if (pid < 0) return false;
  if (pid == 0) {
    become_agent(launch);
    *agent->start_errno = errno;
    _exit(EXIT_CANNOT_EXECUTE);
  }
  agent->pid = pid;
  return true;
}
