#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../broker/broker.h"
#include "boot/boot.h"
#include "compact-memory.h"
#include "log.h"
#include "supervision/supervisor.h"

#define AGENT_DIRECTORY "/usr/lib/microvm-agent"

/*
 * The small semi-space makes V8 collect before the heap grows; the old-space limit ends an agent that leaks. SIGUSR1
 * would open Node's debugger on the loopback interface, which containers share.
 */
static char *const agent_command[] = {
    AGENT_DIRECTORY "/node", "--max-semi-space-size=1",    "--max-old-space-size=192",
    "--disable-sigusr1",     AGENT_DIRECTORY "/agent.cjs", NULL,
};

#define VERSION "0.1.0"
#define USAGE \
  "usage: vminit -- [AGENT [ARGUMENT…]]     run AGENT, reap what it leaves behind, restart it when it dies\n" \
  "       vminit --broker                   for vminit: run the connection broker; descriptor 3 is the socket to " \
  "vminit\n" \
  "       vminit --compact-memory           for the agent: have the kernel compact memory, until killed\n" \
  "       vminit --unmount FLAGS PATH       for the agent: call umount2(2), exit with its errno\n" \
  "       vminit --reach PATH               for the agent: look a folder up, exit with the errno\n" \
  "       vminit --version | --help\n" \
  "As the first process of a machine vminit boots it. Without AGENT it runs " AGENT_DIRECTORY "/agent.cjs.\n"

#define EXIT_USAGE 2

#define BROKER_FD 3

/* Opens /dev/null on every closed descriptor from 0 to 2, so that no later file becomes stderr. */
static void ensure_standard_descriptors(void) {
  int fd;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

/* Locks what the program's file holds, but not the zeroed memory, which is mostly tables. */
static int lock_segments(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  (void)data;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD) continue;
    if (mlock((const char *)info->dlpi_addr + segment->p_vaddr, segment->p_filesz) != 0) return -1;
  }
  return 0;
}

/* Locks vminit in memory, so that containers cannot displace it. The agent does not inherit the lock. */
static void keep_in_memory(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 || dl_iterate_phdr(lock_segments, NULL) != 0)
    log_line("not kept in memory: %s", strerror(errno));
}

static int wrap(char *const command[]) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    log_line("cannot become the reaper of orphans: %s", strerror(errno));
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
  if (argc > 1 && strcmp(argv[1], "--") == 0) {
    keep_in_memory();
    return wrap(argc > 2 ? argv + 2 : agent_command);
  }
  /* The kernel passes words of its command line to init as arguments, but never a `--`. */
  if (getpid() == 1) {
    boot(AGENT_DIRECTORY);
    keep_in_memory();
    supervise(true, agent_command);
  }
  if (argc == 2 && strcmp(argv[1], "--broker") == 0) broker_run(BROKER_FD);
  if (argc == 2 && strcmp(argv[1], "--compact-memory") == 0) return compact_memory();
  if (argc == 4 && strcmp(argv[1], "--unmount") == 0) return umount2(argv[3], atoi(argv[2])) == 0 ? 0 : errno;
  if (argc == 3 && strcmp(argv[1], "--reach") == 0) return open(argv[2], O_PATH | O_DIRECTORY) >= 0 ? 0 : errno;
  if (argc == 2 && strcmp(argv[1], "--version") == 0) return puts("vminit " VERSION) < 0;
  if (argc == 2 && strcmp(argv[1], "--help") == 0) return fputs(USAGE, stdout) < 0;
  return misuse();
}
