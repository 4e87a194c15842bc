#define _GNU_SOURCE
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "../limits.h"
#include "../listen.h"

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

/* Closes `fd` and keeps errno. */
static int failed(int fd) {
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

static bool copy_piece(int from, int to, off_t start, off_t end) {
  if (lseek(to, start, SEEK_SET) != start) return false;
  while (start < end) {
    ssize_t sent = sendfile(to, from, &start, (size_t)(end - start));
    if (sent == 0) errno = EIO;
    if (sent <= 0) return false;
  }
  return true;
}

static bool copy_data(int from, int to, off_t size) {
  for (off_t end = 0; end < size;) {
    off_t start = lseek(from, end, SEEK_DATA);
    /* No data follows. */
    if (start < 0 && errno == ENXIO) return true;
    if (start < 0 || (end = lseek(from, start, SEEK_HOLE)) < 0 || !copy_piece(from, to, start, end)) return false;
  }
  return true;
}

int memory_open(const char *path) {
  int from = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status;
  if (from < 0 || fstat(from, &status) != 0) return failed(from);
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    return failed(from);
  }
  int memory = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  bool is_whole = memory >= 0 && ftruncate(memory, status.st_size) == 0 && copy_data(from, memory, status.st_size) &&
                  fcntl(memory, F_ADD_SEALS, SEALS) == 0;
  failed(from);
  return is_whole ? memory : failed(memory);
}

static const char line[] = "ok\n";

bool memory_send(int socket, int memory) {
  char control[CMSG_SPACE(sizeof memory)] = {0};
  struct iovec data = {(void *)line, sizeof line - 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof memory);
  memcpy(CMSG_DATA(header), &memory, sizeof memory);
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)data.iov_len;
}

/* The descriptor comes with the first bytes of its answer, which follow the greeting. */
static int receive(int socket) {
  for (int lines = 0; lines < 2;) {
    char text[256], control[CMSG_SPACE(sizeof(int))];
    struct iovec data = {text, sizeof text};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (length <= 0) {
      if (length == 0) errno = ECONNRESET;
      return -1;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      int memory;
      memcpy(&memory, CMSG_DATA(header), sizeof memory);
      return memory;
    }
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
  }
  errno = ENODATA;
  return -1;
}

int memory_receive(const char *path) {
  static const char command[] = "give\n";
  const struct timeval patience = {.tv_sec = GIVE_TIMEOUT_MS / 1000};
  int socket = connect_to(path);
  if (socket < 0) return failed(socket);
  bool is_asked = setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
                  send(socket, command, sizeof command - 1, MSG_NOSIGNAL) == sizeof command - 1;
  int memory = is_asked ? receive(socket) : -1;
  failed(socket);
  return memory;
}
