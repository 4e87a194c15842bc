/*
 * race-links FOLDER OUTSIDE SECONDS: swaps FOLDER/dir for a symbolic link to OUTSIDE and back as fast as it can, replaces
 * files in it with links to OUTSIDE/secret, and prints the number of swaps.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char secret[4096];

static int is_directory(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A copied directory may have replaced the link. */
static void restore_link(const char *outside) {
  static unsigned count;
  char old[64];
  if (!is_directory("dir") || !is_directory("link")) return;
  snprintf(old, sizeof old, "old.%u", count++);
  if (rename("link", old) == 0 && symlink(outside, "link") != 0) perror("symlink");
}

static void plant_links(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  DIR *folder = fd == -1 ? NULL : fdopendir(fd);
  if (folder == NULL) {
    if (fd != -1) close(fd);
    return;
  }
  for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
    if (entry->d_type != DT_REG) continue;
    if (unlinkat(fd, entry->d_name, 0) == 0 && symlinkat(secret, fd, entry->d_name) != 0) continue;
  }
  closedir(folder);
}

int main(int argc, char **argv) {
  if (argc != 4 || chdir(argv[1]) != 0) return 2;
  const char *outside = argv[2];
  snprintf(secret, sizeof secret, "%s/secret", outside);
  if (mkdir("dir", 0755) != 0 || symlink(outside, "link") != 0) return 3;
  puts("racing");
  fflush(stdout);
  unsigned long swaps = 0;
  for (time_t end = time(NULL) + atoi(argv[3]); time(NULL) < end;) {
    swaps += renameat2(AT_FDCWD, "dir", AT_FDCWD, "link", RENAME_EXCHANGE) == 0;
    if (swaps % 64 != 0) continue;
    restore_link(outside);
    plant_links("dir");
  }
  printf("%lu\n", swaps);
  return 0;
}
