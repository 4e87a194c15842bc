#define _GNU_SOURCE
#include "kernel-command-line.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../log.h"

/* Larger than COMMAND_LINE_SIZE on any architecture. */
#define LINE_BYTES 16384

/* Returns the next word of `*rest` or NULL. A word ends at a space outside double quotes; the quotes are removed. */
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

void parse_root_options(char *line, struct root_options *options) {
  *options = (struct root_options){0};
  for (char *word; (word = next_word(&line)) != NULL;) {
    if (strncmp(word, "root=", 5) == 0) {
      copy_value(options->device, sizeof options->device, word, word + 5);
    } else if (strncmp(word, "rootfstype=", 11) == 0) {
      copy_value(options->types, sizeof options->types, word, word + 11);
    } else if (strncmp(word, "rootflags=", 10) == 0) {
      copy_value(options->flags, sizeof options->flags, word, word + 10);
    } else if (strcmp(word, "ro") == 0 || strcmp(word, "rw") == 0) {
      options->writable = word[1] == 'w';
    }
  }
}

bool read_root_options(struct root_options *options) {
  static char line[LINE_BYTES];
  int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, line, sizeof line - 1);
  close(fd);
  if (length < 0) return false;
  line[length] = '\0';
  parse_root_options(line, options);
  return true;
}
