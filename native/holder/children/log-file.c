#define _GNU_SOURCE
#include "log-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../watch.h"

#define PATH_BYTES (NAME_BYTES_MAX + sizeof ".log.1")

static bool open_file(struct child *child) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s.log", child->name);
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) return false;
  child->log_file = file;
  child->log_bytes = status.st_size;
  return true;
}

int log_open(struct child *child) {
  int ends[2];
  if (!open_file(child) || pipe2(ends, O_CLOEXEC) != 0) return -1;
  child->log.fd = ends[0];
  return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 ? ends[1] : -1;
}

void log_watch(struct holder *holder, struct child *child) {
  watch_set(holder, &child->log, SUBJECT_LOG, (uint32_t)(child - holder->children), EPOLLIN);
}

static void rotate(struct child *child) {
  char path[PATH_BYTES];
  char old[PATH_BYTES];
  snprintf(path, sizeof path, "%s.log", child->name);
  snprintf(old, sizeof old, "%s.log.1", child->name);
  close(child->log_file);
  child->log_file = -1;
  rename(path, old);
  open_file(child);
}

/* What cannot be written is dropped, so that the child goes on. */
void log_read(struct holder *holder, struct child *child) {
  ssize_t length = read(child->log.fd, holder->chunk, sizeof holder->chunk);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length <= 0) {
    log_close(holder, child);
    return;
  }
  if (child->log_bytes + length > LOG_BYTES_MAX) rotate(child);
  ssize_t written = write(child->log_file, holder->chunk, (size_t)length);
  if (written > 0) child->log_bytes += written;
}

void log_close(struct holder *holder, struct child *child) {
  if (child->name[0] == '\0') return;
  watch_close(holder, &child->log);
  if (child->log_file >= 0) close(child->log_file);
  child->log_file = -1;
}
