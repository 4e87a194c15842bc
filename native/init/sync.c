#define _GNU_SOURCE
#include "sync.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"

/* File systems that get a process of their own. A last process writes the others. */
#define OWN_PROCESSES 64

#define DEVICE_BYTES sizeof "4294967295:4294967295"

struct writer {
  pid_t pid;
  char device[DEVICE_BYTES];
  char mount_point[256];
};

/* Whether a file system writes to storage outside of the guest's memory. */
static bool has_storage(const char *device, const char *type, const char *source) {
  static const char *const remote[] = {"virtiofs", "9p", "fuse", "nfs"};
  for (size_t i = 0; i < sizeof remote / sizeof *remote; i++)
    if (strncmp(type, remote[i], strlen(remote[i])) == 0) return true;
  return strncmp(device, "0:", 2) != 0 || strncmp(source, "/dev/", 5) == 0;
}

/* Replaces the escapes of /proc/self/mountinfo, such as \040 for a space. */
static void unescape(char *path) {
  char *to = path;
  for (const char *from = path; *from != '\0'; to++) {
    char digits[4] = "";
    if (from[0] == '\\') strncat(digits, from + 1, 3);
    *to = strlen(digits) == 3 ? (char)strtol(digits, NULL, 8) : *from;
    from += strlen(digits) == 3 ? 4 : 1;
  }
  *to = '\0';
}

static pid_t start_writer(const char *mount_point) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  if (mount_point == NULL) {
    sync();
    _exit(0);
  }
  int fd = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  _exit(fd < 0 || syncfs(fd) != 0);
}

static bool is_known(const struct writer *writers, size_t count, const char *device) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(writers[i].device, device) == 0) return true;
  return false;
}

/* Starts a writer for each file system with storage (man 5 proc, /proc/PID/mountinfo). Returns their number. */
static size_t start_writers(struct writer writers[OWN_PROCESSES]) {
  size_t count = 0;
  FILE *mounts = fopen("/proc/self/mountinfo", "re");
  char *line = NULL;
  size_t room = 0;
  while (mounts != NULL && count < OWN_PROCESSES && getline(&line, &room, mounts) > 0) {
    struct writer *writer = &writers[count];
    char type[64], source[256];
    const char *end = strstr(line, " - ");
    if (sscanf(line, "%*s %*s %21s %*s %255s", writer->device, writer->mount_point) != 2) continue;
    if (end == NULL || sscanf(end, " - %63s %255s", type, source) != 2) continue;
    if (!has_storage(writer->device, type, source) || is_known(writers, count, writer->device)) continue;
    unescape(writer->mount_point);
    writer->pid = start_writer(writer->mount_point);
    if (writer->pid > 0) count++;
  }
  free(line);
  if (mounts != NULL) fclose(mounts);
  return count;
}

static size_t reap_writers(struct writer *writers, size_t count) {
  size_t running = 0;
  for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
    for (size_t i = 0; i < count; i++)
      if (writers[i].pid == pid) writers[i].pid = 0;
  for (size_t i = 0; i < count; i++) running += writers[i].pid != 0;
  return running;
}

void sync_file_systems(int timeout_ms) {
  static struct writer writers[OWN_PROCESSES + 1];
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ended, NULL);
  const int64_t end_ms = monotonic_ms() + timeout_ms;
  size_t count = start_writers(writers);
  /* Last, because a dead file system blocks sync(2) and all writes after it. */
  writers[count] = (struct writer){.pid = start_writer(NULL), .mount_point = "(all others)"};
  if (writers[count].pid > 0) count++;
  size_t running;
  while ((running = reap_writers(writers, count)) > 0) {
    int64_t left_ms = end_ms - monotonic_ms();
    if (left_ms <= 0) break;
    struct timespec left = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
    sigtimedwait(&ended, NULL, &left);
  }
  for (size_t i = 0; running > 0 && i < count; i++)
    if (writers[i].pid != 0) log_line("file system %s: not written within %d ms", writers[i].mount_point, timeout_ms);
}
