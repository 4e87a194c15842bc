#define _GNU_SOURCE
#include "walls.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/if_tun.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../limits.h"
#include "../listen.h"
#include "../words.h"
#include "memory.h"

#define GROUPS_MAX 8

/* The last id means "none" to setresuid(2). */
#define ID_MAX (UINT32_MAX - 1)

enum kind {
  WALL_DISK_READ,
  WALL_DISK,
  WALL_READ,
  WALL_MAP,
  WALL_LISTEN,
  WALL_CONNECT,
  WALL_MEMORY,
  WALL_TAP,
  WALL_FIRST_QUEUE,
  WALL_QUEUE,
  WALL_UID,
  WALL_GROUP,
  WALL_NETWORK,
  WALL_PROCESSES
};

struct wall {
  enum kind kind;
  uint32_t number; /* a descriptor, a user or a group */
  const char *path;
};

static const struct kind_name {
  const char *prefix;
  enum kind kind;
  bool has_descriptor;
} kinds[] = {
    {"disk=", WALL_DISK, true},       {"read=", WALL_READ, true},
    {"map=", WALL_MAP, true},         {"listen=", WALL_LISTEN, true},
    {"connect=", WALL_CONNECT, true}, {"memory=", WALL_MEMORY, true},
    {"tap=", WALL_TAP, true},         {"first-queue=", WALL_FIRST_QUEUE, true},
    {"queue=", WALL_QUEUE, true},     {"uid=", WALL_UID, false},
    {"group=", WALL_GROUP, false},
};

static bool skip(const char **text, const char *prefix) {
  size_t length = strlen(prefix);
  if (strncmp(*text, prefix, length) != 0) return false;
  *text += length;
  return true;
}

/* Reads `NUMBER:` of the text. */
static bool descriptor(const char **text, uint32_t *number) {
  const char *colon = strchr(*text, ':');
  char digits[12];
  if (colon == NULL || colon - *text >= (ptrdiff_t)sizeof digits) return false;
  memcpy(digits, *text, (size_t)(colon - *text));
  digits[colon - *text] = '\0';
  uint64_t value;
  if (!word_number(digits, WALL_DESCRIPTORS_MAX, &value) || value <= STDERR_FILENO) return false;
  *number = (uint32_t)value;
  *text = colon + 1;
  return true;
}

static bool parse_path(const char *text, struct wall *wall) {
  if (!descriptor(&text, &wall->number)) return false;
  if (wall->kind == WALL_DISK && skip(&text, "r:"))
    wall->kind = WALL_DISK_READ;
  else if (wall->kind == WALL_DISK && !skip(&text, "rw:"))
    return false;
  wall->path = text;
  bool is_interface = wall->kind == WALL_TAP || wall->kind == WALL_FIRST_QUEUE || wall->kind == WALL_QUEUE;
  return *text != '\0' && (!is_interface || strlen(text) < IFNAMSIZ);
}

static bool parse(const char *word, struct wall *wall) {
  wall->kind = WALL_NETWORK;
  if (strcmp(word, "network=none") == 0) return true;
  wall->kind = WALL_PROCESSES;
  if (strcmp(word, "processes=own") == 0) return true;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const char *text = word;
    if (!skip(&text, kinds[i].prefix)) continue;
    wall->kind = kinds[i].kind;
    if (kinds[i].has_descriptor) return parse_path(text, wall);
    uint64_t number;
    bool is_number = word_number(text, ID_MAX, &number) && number > 0;
    wall->number = (uint32_t)number;
    return is_number;
  }
  return false;
}

const char *walls_wrong(char *const *walls, size_t count) {
  uint32_t groups = 0;
  for (size_t i = 0; i < count; i++) {
    struct wall wall;
    if (!parse(walls[i], &wall)) return walls[i];
    if (wall.kind == WALL_GROUP && ++groups > GROUPS_MAX) return walls[i];
  }
  return NULL;
}

/* A copy in memory of a file that the user of the program may not read. */
static int copy_of(int file, off_t size) {
  if (size > WALL_COPY_BYTES_MAX) {
    errno = EFBIG;
    return -1;
  }
  int copy = memfd_create("copy", MFD_CLOEXEC);
  for (off_t left = size; copy >= 0 && left > 0;) {
    ssize_t sent = sendfile(copy, file, NULL, (size_t)left);
    if (sent <= 0) {
      if (sent == 0) errno = EIO;
      close(copy);
      return -1;
    }
    left -= sent;
  }
  return copy;
}

/* Opens a file that the program opens again by /proc/self/fd, which needs the right to read, but no way to its folder. */
static int open_again(const char *path, bool may_copy, bool has_user) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0 || !has_user || (status.st_mode & S_IROTH) != 0) return file;
  int copy = -1;
  if (may_copy && S_ISREG(status.st_mode))
    copy = copy_of(file, status.st_size);
  else
    errno = EACCES;
  int error = errno;
  close(file);
  errno = error;
  return copy;
}

/* The interface goes with the descriptor, or the last one of those that `more_flags` lets it have. */
static int open_tap(const char *name, int more_flags) {
  int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  struct ifreq request = {.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | more_flags)};
  strcpy(request.ifr_name, name);
  return fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0 ? fd : -1;
}

/* The bytes that QEMU locks for what it does with an image, and for what no other may do (block/file-posix.c). */
#define LOCK_DONE 100
#define LOCK_DENIED 200

/* The bits of QEMU's permissions. */
#define PERMISSION_READ 0
#define PERMISSION_WRITE 1
#define PERMISSION_RESIZE 3

/* Whether no other has locked the byte; else errno is EBUSY, or that of the kernel. */
static bool is_free(int file, off_t byte) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  if (fcntl(file, F_OFD_GETLK, &lock) != 0) return false;
  if (lock.l_type != F_UNLCK) errno = EBUSY;
  return lock.l_type == F_UNLCK;
}

static bool lock_byte(int file, off_t byte) {
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  if (fcntl(file, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) errno = EBUSY;
  return false;
}

/*
 * QEMU locks the files of disks and not those that it maps. This takes its locks for a disk that is only read, which last as
 * long as the program has the descriptor.
 */
static bool lock_for_reading(int file) {
  bool is_locked = lock_byte(file, LOCK_DONE + PERMISSION_READ) && lock_byte(file, LOCK_DENIED + PERMISSION_WRITE) &&
                   lock_byte(file, LOCK_DENIED + PERMISSION_RESIZE);
  return is_locked && is_free(file, LOCK_DENIED + PERMISSION_READ) && is_free(file, LOCK_DONE + PERMISSION_WRITE) &&
         is_free(file, LOCK_DONE + PERMISSION_RESIZE);
}

static int open_map(const char *path, bool has_user) {
  int file = open_again(path, false, has_user);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || lock_for_reading(file)) return file;
  int error = errno;
  close(file);
  errno = error;
  return -1;
}

static int open_wall(const struct wall *wall, bool has_user) {
  switch (wall->kind) {
    case WALL_DISK_READ:
      return open(wall->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    case WALL_DISK:
      return open(wall->path, O_RDWR | O_CLOEXEC | O_NOCTTY);
    case WALL_READ:
      return open_again(wall->path, true, has_user);
    case WALL_MAP:
      return open_map(wall->path, has_user);
    case WALL_LISTEN:
      unlink(wall->path);
      return listen_on(wall->path, 0600);
    case WALL_CONNECT:
      return connect_to(wall->path);
    case WALL_MEMORY:
      return memory_receive(wall->path);
    case WALL_TAP:
      return open_tap(wall->path, 0);
    /* An interface of several queues that is there could be joined. */
    case WALL_FIRST_QUEUE:
      return open_tap(wall->path, IFF_MULTI_QUEUE | IFF_TUN_EXCL);
    case WALL_QUEUE:
      return open_tap(wall->path, IFF_MULTI_QUEUE);
    default:
      return -1;
  }
}

/* Gives the descriptor its number, by which the program inherits it. */
static bool place(int fd, int number) {
  if (fd == number) return fcntl(fd, F_SETFD, 0) == 0;
  bool is_placed = dup2(fd, number) >= 0;
  close(fd);
  return is_placed;
}

/* /proc shows those of this PID namespace only: the instance's. */
static bool hide_processes(void) {
  return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

static bool become(uid_t user, const gid_t *groups, size_t count) {
  return setgroups(count, groups) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0;
}

/* Beyond the descriptors of the walls. */
static int open_program(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, WALL_DESCRIPTORS_MAX + 1);
  close(fd);
  return moved;
}

int walls_program(const char *name) {
  const char *folders = getenv("PATH");
  if (strchr(name, '/') != NULL || folders == NULL) return open_program(name);
  int fd = -1;
  while (fd < 0 && *folders != '\0') {
    char path[PATH_MAX];
    int length = (int)strcspn(folders, ":");
    int written = snprintf(path, sizeof path, "%.*s/%s", length, folders, name);
    if (written < (int)sizeof path && access(path, X_OK) == 0) fd = open_program(path);
    folders += length;
    folders += *folders == ':';
  }
  return fd;
}

/* A network namespace that no program has yet, or -1. */
static int spare_network = -1;

void walls_prepare(void) {
  /* A process that is in it for a moment, and that shares the descriptors of this one. */
  struct clone_args args = {.flags = CLONE_NEWNET | CLONE_FILES, .exit_signal = SIGCHLD};
  pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) _exit(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  int status;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return;
  const int fd = (int8_t)WEXITSTATUS(status);
  if (fd < 0) return;
  /* Out of the way of the descriptors that the program is given. */
  spare_network = fcntl(fd, F_DUPFD_CLOEXEC, WALL_DESCRIPTORS_MAX + 1);
  close(fd);
}

/* Runs in the child. */
static bool leave_network(void) {
  return spare_network >= 0 ? setns(spare_network, CLONE_NEWNET) == 0 : unshare(CLONE_NEWNET) == 0;
}

void walls_used(char *const *walls, size_t count) {
  struct wall wall;
  for (size_t i = 0; i < count && spare_network >= 0; i++) {
    if (!parse(walls[i], &wall) || wall.kind != WALL_NETWORK) continue;
    close(spare_network);
    spare_network = -1;
  }
}

int walls_make(char *const *walls, size_t count) {
  struct wall wall;
  gid_t groups[GROUPS_MAX];
  size_t group_count = 0;
  int user = -1, network = -1, processes = -1;
  for (int i = 0; i < (int)count; i++) {
    if (!parse(walls[i], &wall)) return i;
    if (wall.kind == WALL_UID) user = i;
    if (wall.kind == WALL_NETWORK) network = i;
    if (wall.kind == WALL_PROCESSES) processes = i;
    if (wall.kind == WALL_GROUP) groups[group_count++] = wall.number;
  }
  for (int i = 0; i < (int)count; i++) {
    if (!parse(walls[i], &wall) || wall.kind >= WALL_UID) continue;
    int fd = open_wall(&wall, user >= 0);
    if (fd < 0 || !place(fd, (int)wall.number)) return i;
  }
  if (network >= 0 && !leave_network()) return network;
  if (processes >= 0 && !hide_processes()) return processes;
  if (user >= 0 && (!parse(walls[user], &wall) || !become(wall.number, groups, group_count))) return user;
  /* No program that it starts, if it ever could, gets other rights. */
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? -1 : 0;
}
