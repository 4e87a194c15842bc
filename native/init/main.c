#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent-command.h"
#include "boot.h"
#include "message.h"
#include "supervisor.h"

#define VERSION "0.1.0"
#define USAGE \
  "usage: vminit -- AGENT [ARGUMENT…]       run AGENT, reap what it leaves behind, restart it when it dies\n" \
  "       vminit --version | --help\n" \
  "As the first process of a machine vminit boots it and runs " AGENT_DIRECTORY "/agent.cjs.\n"

#define EXIT_USAGE 2

/* Descriptors 0 to 2 must be taken, or the first file that is opened becomes stderr. */
static void ensure_standard_descriptors(void) {
  int fd;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

static int wrap(char *const command[]) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    say("cannot become the reaper of orphans: %s", strerror(errno));
    return 1;
  }
  supervise(false, command);
}

static int misuse(void) {
  fputs(USAGE, stderr);
  return EXIT_USAGE;
}

int main(int argc, char *argv[]) {
  ensure_standard_descriptors();
  if (argc > 2 && strcmp(argv[1], "--") == 0) return wrap(argv + 2);
  /* The kernel hands words of its command line to init as arguments, but never a `--`. */
  if (getpid() == 1) {
    static char *const agent[] = AGENT_COMMAND;
    boot();
    supervise(true, agent);
  }
  if (argc == 2 && strcmp(argv[1], "--version") == 0) return puts("vminit " VERSION) < 0;
  if (argc == 2 && strcmp(argv[1], "--help") == 0) return fputs(USAGE, stdout) < 0;
  return misuse();
}
