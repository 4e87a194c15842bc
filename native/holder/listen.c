#define _GNU_SOURCE
#include "listen.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool bind_and_listen(int fd, const char *path, mode_t mode) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(address.sun_path, path);
  mode_t mask = umask(0777 & ~mode);
  bool is_bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
  umask(mask);
  return is_bound && listen(fd, SOMAXCONN) == 0;
}

int listen_on(const char *path, mode_t mode) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind_and_listen(fd, path, mode)) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int connect_to(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}
