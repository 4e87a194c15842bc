#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Options of the kernel command line. An absent one is empty. */
struct boot_options {
  char device[256];    /* root= */
  char types[128];     /* rootfstype=, separated by commas */
  char flags[512];     /* rootflags= without ro and rw, separated by commas, for mount(2) */
  bool writable;       /* the last of ro and rw is rw */
  int wait_seconds;    /* rootwait=: how long to wait for the root device */
  bool virtio_console; /* a console= names hvc0, hvc1 … */
};

bool read_boot_options(struct boot_options *options);

/* Modifies `line`. */
void parse_boot_options(char *line, struct boot_options *options);
