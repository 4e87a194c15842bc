#pragma once

#include <stdbool.h>
#include <stdint.h>

struct call;

struct addon_function {
  const char *name;  /* its name in JavaScript */
  const char *takes; /* a letter for each argument (union argument); any other argument throws a TypeError */
  int64_t (*run)(struct call *call); /* returns as a system call does, or -errno */
  bool on_thread;                    /* runs on libuv's pool: JavaScript gets a promise */
};

/* An entry without a name ends each table. */
extern const struct addon_function descriptor_functions[];
extern const struct addon_function file_functions[];
extern const struct addon_function hang_report_functions[];
extern const struct addon_function kernel_log_functions[];
extern const struct addon_function mapped_file_functions[];
extern const struct addon_function memory_file_functions[];
extern const struct addon_function message_functions[];
extern const struct addon_function mount_functions[];
extern const struct addon_function namespace_functions[];
extern const struct addon_function netlink_functions[];
extern const struct addon_function reading_functions[];
extern const struct addon_function relay_functions[];
extern const struct addon_function socket_functions[];
extern const struct addon_function spawn_functions[];
extern const struct addon_function system_functions[];
extern const struct addon_function watch_functions[];
