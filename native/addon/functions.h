#pragma once

#define NAPI_VERSION 8
#include <node_api.h>

/* One function of the addon by its name in JavaScript. */
struct addon_function {
  const char *name;
  napi_callback callback;
};

/* The functions of each file. An entry without a name ends each table. */
extern const struct addon_function descriptor_functions[];
extern const struct addon_function file_functions[];
extern const struct addon_function hang_report_functions[];
extern const struct addon_function memory_file_functions[];
extern const struct addon_function message_functions[];
extern const struct addon_function mount_functions[];
extern const struct addon_function namespace_functions[];
extern const struct addon_function netlink_functions[];
extern const struct addon_function relay_functions[];
extern const struct addon_function socket_functions[];
extern const struct addon_function spawn_functions[];
extern const struct addon_function system_functions[];
extern const struct addon_function watch_functions[];
