#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The root options of the kernel command line. An option that is absent is empty. */
struct root_options {
  char device[256]; /* root= */
  char types[128];  /* rootfstype=, separated by commas */
  char flags[512];  /* rootflags=, for mount(2) */
  bool writable;    /* whether the last of ro and rw is rw */
};

/* Reads /proc/cmdline. Returns false with errno set. */
bool read_root_options(struct root_options *options);

/* Parses the root options in `line`, which it modifies. */
void parse_root_options(char *line, struct root_options *options);
