#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What the kernel command line says about the root. Text that was not given is empty. */
struct root_options {
  char device[256]; /* root= */
  char types[128];  /* rootfstype=, separated by commas */
  char flags[512];  /* rootflags=, for mount(2) */
  bool writable;    /* rw, the last of ro and rw */
};

/* Reads /proc/cmdline. Returns false with errno set. */
bool read_root_options(struct root_options *options);

/* Picks the root options out of `line`, which it changes. */
void parse_root_options(char *line, struct root_options *options);
