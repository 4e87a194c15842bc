#define _GNU_SOURCE
#include "kernel-command-line.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../log.h"

/* Larger than COMMAND_LINE_SIZE on any architecture. */
#define LINE_BYTES 16384

/* Returns the next word or NULL. It ends at a space outside double quotes, which are removed. */
static char *next_word(char **rest) {
  char *from = *rest;
  while (isspace((unsigned char)*from)) from++;
  if (*from == '\0') return NULL;
  char *word = from, *to = from;
  bool quoted = false;
  for (; *from != '\0' && (quoted || !isspace((unsigned char)*from)); from++) {
    if (*from == '"') {
      quoted = !quoted;
    } else {
      *to++ = *from;
    }
  }
  *rest = *from == '\0' ? from : from + 1;
  *to = '\0';
  return word;
}

static void copy_value(char *target, size_t size, const char *word, const char *value) {
  if (snprintf(target, size, "%s", value) < (int)size) return;
  log_line("kernel command line: %.16s… is longer than %zu bytes", word, size - 1);
}

static bool is_access(const char *word, size_t length) {
  return length == 2 && (strncmp(word, "ro", 2) == 0 || strncmp(word, "rw", 2) == 0);
}

/* Some callers separate mount options by a blank: `rootflags="dax ro"`. */
#define FLAG_SEPARATORS ", \t\n"

/* Removes ro and rw from the flags, and separates the others by one comma. */
static void separate_flags(struct boot_options *options) {
  char *to = options->flags;
  for (char *from = to, *end = from; *from != '\0'; from = end) {
    from += strspn(from, FLAG_SEPARATORS);
    end = from + strcspn(from, FLAG_SEPARATORS);
    size_t length = (size_t)(end - from);
    if (is_access(from, length)) {
      options->writable = from[1] == 'w';
    } else if (length > 0) {
      if (to != options->flags) *to++ = ',';
      memmove(to, from, length);
      to += length;
    }
  }
  *to = '\0';
}

/* The kernel's `rootwait` has no limit, but a guest without a root must not keep its memory for ever. */
#define DEFAULT_WAIT_SECONDS 30
#define LONGEST_WAIT_SECONDS 3600

static int wait_seconds_of(const char *value) {
  char *end;
  long seconds = strtol(value, &end, 10);
  if (*value != '\0' && *end == '\0' && seconds >= 0 && seconds <= LONGEST_WAIT_SECONDS) return (int)seconds;
  log_line("kernel command line: rootwait=%.16s: want seconds from 0 to %d", value, LONGEST_WAIT_SECONDS);
  return DEFAULT_WAIT_SECONDS;
}

void parse_boot_options(char *line, struct boot_options *options) {
  *options = (struct boot_options){.wait_seconds = DEFAULT_WAIT_SECONDS};
  for (char *word; (word = next_word(&line)) != NULL;) {
    if (strncmp(word, "root=", 5) == 0) {
      copy_value(options->device, sizeof options->device, word, word + 5);
    } else if (strncmp(word, "rootfstype=", 11) == 0) {
      copy_value(options->types, sizeof options->types, word, word + 11);
    } else if (strncmp(word, "rootflags=", 10) == 0) {
      copy_value(options->flags, sizeof options->flags, word, word + 10);
      separate_flags(options);
    } else if (strncmp(word, "rootwait=", 9) == 0) {
      options->wait_seconds = wait_seconds_of(word + 9);
    } else if (strncmp(word, "console=hvc", 11) == 0) {
      options->virtio_console = true;
    } else if (is_access(word, strlen(word))) {
      options->writable = word[1] == 'w';
    }
  }
}

bool read_boot_options(struct boot_options *options) {
  static char line[LINE_BYTES];
  int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, line, sizeof line - 1);
  close(fd);
  if (length < 0) return false;
  line[length] = '\0';
  parse_boot_options(line, options);
  return true;
}
