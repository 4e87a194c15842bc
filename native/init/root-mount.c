#define _GNU_SOURCE
#include "root-mount.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "power-off.h"

#define TYPES_BYTES 1024

/* Lists, separated by commas, the file systems of /proc/filesystems that live on a device. */
static void list_known_types(char *types) {
  FILE *known = fopen("/proc/filesystems", "re");
  if (known == NULL) boot_failed("/proc/filesystems: %s", strerror(errno));
  char line[128], name[64];
  size_t used = 0;
  types[0] = '\0';
  while (fgets(line, sizeof line, known) != NULL) {
    /* `nodev<TAB>proc` or `<TAB>ext4` */
    if (line[0] != '\t' || sscanf(line, "%63s", name) != 1 || used + strlen(name) + 2 > TYPES_BYTES) continue;
    used += (size_t)sprintf(types + used, "%s,", name);
  }
  fclose(known);
}

void mount_root(const struct root_options *options, const char *target) {
  char types[TYPES_BYTES];
  if (options->types[0] != '\0') {
    snprintf(types, sizeof types, "%s", options->types);
  } else {
    list_known_types(types);
  }
  const unsigned long flags = options->writable ? 0 : MS_RDONLY;
  const char *tried = "any type";
  int error = ENODEV;
  for (char *type = strtok(types, ","); type != NULL; type = strtok(NULL, ",")) {
    if (mount(options->device, target, type, flags, options->flags) == 0) return;
    error = errno;
    tried = type;
  }
  /* mount(2) says ENODEV for the type, never for the device. */
  const char *reason = error == ENODEV ? "the kernel does not know this file system" : strerror(error);
  boot_failed("mount %s as %s: %s", options->device, tried, reason);
}
