#define _GNU_SOURCE
#include "console.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../clock.h"

/* Long enough for the host to answer the driver, unless its device has no console port. */
#define VIRTIO_CONSOLE_WAIT_MS 1000
#define LOOK_AGAIN_MS 5

static bool has_virtio_console_device(void) {
  DIR *driver = opendir("/sys/bus/virtio/drivers/virtio_console");
  if (driver == NULL) return false;
  bool found = false;
  for (struct dirent *entry; !found && (entry = readdir(driver)) != NULL;) {
    found = strncmp(entry->d_name, "virtio", 6) == 0;
  }
  closedir(driver);
  return found;
}

static bool virtio_console_is_registered(void) {
  FILE *consoles = fopen("/proc/consoles", "re");
  if (consoles == NULL) return false;
  char line[128];
  bool found = false;
  while (!found && fgets(line, sizeof line, consoles) != NULL) found = strncmp(line, "hvc", 3) == 0;
  fclose(consoles);
  return found;
}

/* After loading, the driver asks the host which ports are consoles. No event reports when a console is registered. */
static void await_virtio_console(void) {
  if (!has_virtio_console_device()) return;
  const int64_t deadline = monotonic_ms() + VIRTIO_CONSOLE_WAIT_MS;
  const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000};
  while (!virtio_console_is_registered() && monotonic_ms() < deadline) nanosleep(&pause, NULL);
}

/* Opens `path` above stderr, because 0 to 2 may be closed and will be replaced. */
static int open_above_stderr(const char *path, int flags) {
  int fd = open(path, flags);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int moved = fcntl(fd, F_DUPFD, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

void open_console(bool virtio) {
  if (virtio) await_virtio_console();
  /* O_NOCTTY: the console becomes the controlling terminal of the agent, not of vminit. */
  int console = open_above_stderr("/dev/console", O_RDWR | O_NOCTTY);
  int input = console >= 0 ? console : open_above_stderr("/dev/null", O_RDWR);
  int log = console >= 0 ? console : open_above_stderr("/dev/kmsg", O_WRONLY);
  dup2(input, STDIN_FILENO);
  dup2(input, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close(input);
  if (log != input) close(log);
}
