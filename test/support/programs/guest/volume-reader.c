/*
 * Reads the files a and b of a Kubernetes volume at argv[1], as its users do, until both contain argv[2] and inotify has
 * reported the replacement of ..data. Writes "version X" for each content, "event" for each replacement, and "broken: …"
 * for any state that a reader must not see.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

struct text {
  char bytes[256];
};

static struct text read_file(int folder, const char *name) {
  struct text text = {""};
  int file = openat(folder, name, O_RDONLY);
  ssize_t length = file < 0 ? -1 : read(file, text.bytes, sizeof text.bytes - 1);
  if (length < 0) printf("broken: %s: %s\n", name, strerror(errno));
  if (file >= 0) close(file);
  return text;
}

/* The open folder stays the same when the link is replaced. */
static struct text read_version(int volume) {
  struct text none = {""};
  int version = openat(volume, "..data", O_RDONLY | O_DIRECTORY);
  if (version < 0) {
    printf("broken: ..data: %s\n", strerror(errno));
    return none;
  }
  struct text a = read_file(version, "a"), b = read_file(version, "b");
  close(version);
  if (strcmp(a.bytes, b.bytes) != 0) printf("broken: '%s' beside '%s'\n", a.bytes, b.bytes);
  read_file(volume, "a");
  return a;
}

static int was_replaced(int events) {
  char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
  int replaced = 0;
  ssize_t length = read(events, buffer, sizeof buffer);
  for (ssize_t at = 0; at < length;) {
    struct inotify_event *event = (struct inotify_event *)(buffer + at);
    if (event->len > 0 && strcmp(event->name, "..data") == 0) replaced = 1;
    at += (ssize_t)sizeof *event + event->len;
  }
  return replaced;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  int volume = open(argv[1], O_RDONLY | O_DIRECTORY);
  int events = inotify_init1(IN_NONBLOCK);
  if (volume < 0 || inotify_add_watch(events, argv[1], IN_MOVED_TO | IN_CREATE) < 0) {
    perror(argv[1]);
    return 1;
  }
  struct text last = {""};
  for (int replaced = 0; !replaced || strcmp(last.bytes, argv[2]) != 0;) {
    struct text now = read_version(volume);
    if (strcmp(now.bytes, last.bytes) != 0) printf("version %s\n", now.bytes);
    last = now;
    if (was_replaced(events)) {
      replaced = 1;
      printf("event\n");
    }
  }
  return 0;
}
