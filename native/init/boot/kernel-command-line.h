#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The options of the kernel command line that the boot depends on. An option that is absent is empty. */
struct boot_options {
  char device[256];    /* root= */
  char types[128];     /* rootfstype=, separated by commas */
  char flags[512];     /* rootflags= without ro and rw, separated by commas, for mount(2) */
  bool writable;       /* whether the last of ro and rw is rw */
  int wait_seconds;    /* rootwait=: how long to wait for the root device */
  bool virtio_console; /* whether a console= names hvc0, hvc1 … */
};

/* Reads /proc/cmdline. Returns false with errno set. */
bool read_boot_options(struct boot_options *options);

/* Parses the options in `line`, which it modifies. */
void parse_boot_options(char *line, struct boot_options *options);
