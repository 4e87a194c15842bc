#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "../functions.h"
#include "../napi/call.h"

static int64_t open_at(struct call *call) {
  const union argument *given = call->given;
  struct open_how how = {
      .flags = given[2].how.flags | O_CLOEXEC, .mode = given[2].how.mode, .resolve = given[2].how.resolve};
  return syscall(SYS_openat2, (int)given[0].integer, given[1].string, &how, sizeof how);
}

int open_without_links(const char *path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static int64_t reach_without_links(struct call *call) {
  int fd = open_without_links(call->given[0].string);
  return fd == -1 ? -1 : closed_after(fd, 0);
}

static int64_t open_below(struct call *call) {
  struct open_how how = {
      .flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
  };
  return syscall(SYS_openat2, (int)call->given[0].integer, call->given[1].string, &how, sizeof how);
}

/* Returns 1 when the file contains the device number, 0 when it does not or is absent, or -errno. */
static int contains_number(const char *path, dev_t device) {
  char found[32] = "", wanted[32];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd == -1 ? -1 : read(fd, found, sizeof found - 1);
  int error = errno;
  if (fd != -1) close(fd);
  /* A device may disappear during the check. */
  if (length == -1) return error == ENOENT || error == ENODEV ? 0 : -error;
  snprintf(wanted, sizeof wanted, "%u:%u\n", major(device), minor(device));
  return strcmp(found, wanted) == 0;
}

static int64_t is_block_node_of(struct call *call) {
  struct stat status;
  if (stat(call->given[0].string, &status) != 0) return errno == ENOENT ? 0 : -errno;
  return S_ISBLK(status.st_mode) ? contains_number(call->given[1].string, status.st_rdev) : 0;
}

static int64_t make_node(struct call *call) {
  const union argument *given = call->given;
  return mknod(given[0].string, given[1].integer, makedev(given[2].integer, given[3].integer));
}

/* readFile and writeFile make one trip to a thread, which costs most of the time for a few bytes of proc or sysfs. */

/* Kernel files report no size, and a file of /proc/sys returns only what the first read has room for. */
#define FIRST_BYTES 65536

static ssize_t read_some(int fd, char *buffer, size_t size) {
  ssize_t length;
  do length = read(fd, buffer, size);
  while (length == -1 && errno == EINTR);
  return length;
}

static bool reserve(struct call *call, size_t *size, size_t bytes) {
  if (call->length + bytes <= *size) return true;
  size_t larger = 2 * *size > call->length + bytes ? 2 * *size : call->length + bytes;
  char *moved = realloc(call->bytes, larger);
  if (moved == NULL) return false;
  call->bytes = moved;
  *size = larger;
  return true;
}

/* Returns 0 or an errno: EFBIG above `max_bytes`. The call frees the bytes in every case. */
static int read_to_end(int fd, struct call *call, size_t max_bytes) {
  size_t size = 0;
  for (;;) {
    if (call->length > max_bytes) return EFBIG;
    if (!reserve(call, &size, size == 0 ? FIRST_BYTES : 1)) return ENOMEM;
    ssize_t length = read_some(fd, call->bytes + call->length, size - call->length);
    if (length <= 0) return length == 0 ? 0 : errno;
    call->length += length;
  }
}

static int64_t read_file(struct call *call) {
  int fd = open(call->given[0].string, O_RDONLY | O_CLOEXEC);
  if (fd == -1) return -1;
  errno = read_to_end(fd, call, call->given[1].integer);
  return closed_after(fd, errno == 0 ? 0 : -1);
}

/* Adds the file. A file that cannot be read, or is longer than `max_bytes`, adds nothing. */
static void add_file(struct call *call, const char *path, size_t max_bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd == -1) return;
  ssize_t length = read_some(fd, call->bytes + call->length, max_bytes + 1);
  if (length > 0 && (size_t)length <= max_bytes) call->length += (size_t)length;
  close(fd);
}

static int64_t read_files(struct call *call) {
  const size_t max_bytes = call->given[1].integer;
  size_t size = 0;
  for (char **path = call->given[0].strings; *path != NULL; path++) {
    if (!reserve(call, &size, max_bytes + 2)) return -ENOMEM;
    add_file(call, *path, max_bytes);
    call->bytes[call->length++] = '\0';
  }
  return 0;
}

/* Adds a byte for each folder: 0 or the errno. */
static int64_t remove_folders(struct call *call) {
  size_t size = 0;
  for (char **path = call->given[0].strings; *path != NULL; path++) {
    if (!reserve(call, &size, 1)) return -ENOMEM;
    call->bytes[call->length++] = rmdir(*path) == 0 ? 0 : (char)errno;
  }
  return 0;
}

/* Returns 0 or an errno. Zero bytes are written too, because some kernel files take an empty write as a value. */
static int write_to_end(int fd, const char *bytes, size_t length) {
  size_t done = 0;
  do {
    ssize_t written = write(fd, bytes + done, length - done);
    if (written == -1 && errno != EINTR) return errno;
    if (written > 0) done += written;
  } while (done < length);
  return 0;
}

static int write_whole(const char *path, const union argument *bytes, mode_t mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd == -1) return -1;
  int error = write_to_end(fd, bytes->data.bytes, bytes->data.length);
  /* A network file system may report a failed write only at close. */
  if (close(fd) == -1 && error == 0 && errno != EINTR) error = errno;
  errno = error;
  return error == 0 ? 0 : -1;
}

static int64_t write_file(struct call *call) {
  const union argument *given = call->given;
  return write_whole(given[0].string, &given[1], given[2].integer);
}

/* The following calls do the steps of the agent's small files at once, because entering the addon costs more than a step. */

static int64_t replace_file(struct call *call) {
  const union argument *given = call->given;
  const char *unfinished = given[0].string;
  if (write_whole(unfinished, &given[2], given[3].integer) != 0) return -1;
  return rename(unfinished, given[1].string);
}

static int64_t remove_file(struct call *call) {
  return unlink(call->given[0].string);
}

static int64_t remove_folder(struct call *call) {
  const union argument *given = call->given;
  int folder = open(given[0].string, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder == -1) return -1;
  int result = 0;
  for (char **name = given[1].strings; *name != NULL && result == 0; name++)
    if (unlinkat(folder, *name, 0) != 0 && errno != ENOENT) result = -1;
  return closed_after(folder, result) == 0 ? rmdir(given[0].string) : -1;
}

static int check_regular(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return errno;
  if (S_ISREG(status.st_mode)) return 0;
  return S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
}

/* Follows no link at the end of the path, and waits for no fifo. */
static int64_t read_text(struct call *call) {
  int fd = open(call->given[0].string, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd == -1) return -1;
  errno = check_regular(fd);
  if (errno == 0) errno = read_to_end(fd, call, call->given[1].integer);
  if (closed_after(fd, errno == 0 ? 0 : -1) != 0) return -1;
  napi_create_string_utf8(call->env, call->bytes, call->length, &call->value);
  return 0;
}

static int64_t send_file(struct call *call) {
  const union argument *given = call->given;
  off_t from = given[1].integer;
  if (lseek(given[2].integer, given[3].integer, SEEK_SET) == -1) return -1;
  return sendfile(given[2].integer, given[0].integer, &from, given[4].integer);
}

static int64_t lock_range(struct call *call) {
  const union argument *given = call->given;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = given[1].integer, .l_len = given[2].integer};
  return fcntl(given[0].integer, F_OFD_SETLK, &lock);
}

const struct addon_function file_functions[] = {
    {"openAt2", "ish", open_at, false},
    {"makeNode", "siii", make_node, false},
    {"reachWithoutLinks", "s", reach_without_links, true},
    {"openBelow", "is", open_below, true},
    {"isBlockNodeOf", "ss", is_block_node_of, false},
    {"readFile", "si", read_file, true},
    {"readFiles", "li", read_files, true},
    {"removeFolders", "l", remove_folders, true},
    {"writeFile", "sdi", write_file, true},
    {"replaceFile", "ssdi", replace_file, false},
    {"removeFile", "s", remove_file, false},
    {"removeFolder", "sl", remove_folder, false},
    {"readText", "si", read_text, false},
    {"sendFile", "iiiii", send_file, true},
    {"lockRange", "iii", lock_range, false},
    {0},
};
