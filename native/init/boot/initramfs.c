#define _GNU_SOURCE
#include "initramfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void delete_below(int fd, dev_t device);

/* Ignores a failure, which only costs memory. */
static void delete_entry(int parent, const char *name, dev_t device) {
  struct stat status;
  if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || status.st_dev != device) return;
  if (S_ISDIR(status.st_mode)) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) delete_below(fd, device);
  }
  unlinkat(parent, name, S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
}

static void delete_below(int fd, dev_t device) {
  DIR *directory = fdopendir(fd);
  if (directory == NULL) {
    close(fd);
    return;
  }
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      delete_entry(fd, entry->d_name, device);
    }
  }
  closedir(directory);
}

void delete_initramfs(int fd) {
  struct stat status;
  if (fstat(fd, &status) == 0) {
    delete_below(fd, status.st_dev);
  } else {
    close(fd);
  }
}
