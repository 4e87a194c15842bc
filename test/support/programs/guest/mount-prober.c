/*
 * Measures the time from the kernel's uevent of a new disk until that disk is mounted. Reads commands from stdin, one a
 * line:
 *
 *   watch COUNT PREFIX   Another process mounts the disks at PREFIX0, PREFIX1, … in the mount namespace of the guest's
 *                        process 1. It polls the mount table, and does not read it, because reading delays mounts.
 *   mount COUNT FOLDER   A bare loop mounts each disk below FOLDER as soon as its event arrives, and unmounts all at
 *                        the end; the nodes of the guest are in /guest/dev
 *
 * Each command prints "ready" when it listens, then "NAME MICROSECONDS" for each of COUNT disks. The process that
 * measures has priority over all others on the CPUs; otherwise it would see events late on a busy machine and report
 * long waits as short. The bare loop has normal priority.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_DISKS = 64, NAME_BYTES = 32, PATH_BYTES = 256, PRIORITY = 60 };

struct disk {
  char name[NAME_BYTES];
  dev_t device;
  long long added_us;
  long long mounted_us;
};

struct round {
  int wanted;
  int added;
  int mounted;
  struct disk disks[MOST_DISKS];
};

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static long long now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void come_first(void) {
  struct sched_param param = {.sched_priority = PRIORITY};
  if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) != 0) fail("sched_setscheduler");
}

static int listen_for_events(void) {
  int events = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);
  if (events < 0) fail("socket");
  int bytes = 1 << 20;
  if (setsockopt(events, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) != 0) fail("setsockopt");
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK, .nl_groups = 1};
  if (bind(events, (struct sockaddr *)&kernel, sizeof kernel) != 0) fail("bind");
  return events;
}

static int next_disk(int events, struct disk *disk) {
  char text[8192];
  ssize_t length = recv(events, text, sizeof text - 1, 0);
  disk->added_us = now_us();
  if (length <= 0) fail("recv");
  text[length] = '\0';
  unsigned major = 0, minor = 0;
  int is_new = 0, is_disk = 0;
  for (const char *line = text; line < text + length; line += strlen(line) + 1) {
    if (strcmp(line, "ACTION=add") == 0) is_new = 1;
    if (strcmp(line, "DEVTYPE=disk") == 0) is_disk = 1;
    if (strncmp(line, "MAJOR=", 6) == 0) major = atoi(line + 6);
    if (strncmp(line, "MINOR=", 6) == 0) minor = atoi(line + 6);
    if (strncmp(line, "DEVNAME=", 8) == 0) snprintf(disk->name, sizeof disk->name, "%s", line + 8);
  }
  disk->device = makedev(major, minor);
  return is_new && is_disk;
}

static void note_added(struct round *round, int events) {
  struct disk disk = {0};
  if (next_disk(events, &disk) && round->added < round->wanted) round->disks[round->added++] = disk;
}

static int note_mounted(struct round *round, dev_t device, long long at) {
  for (int index = 0; index < round->added; index++) {
    struct disk *disk = &round->disks[index];
    if (disk->device != device || disk->mounted_us != 0) continue;
    disk->mounted_us = at;
    round->mounted++;
    return 1;
  }
  return 0;
}

static void look(struct round *round, const char *prefix, char *seen) {
  for (int index = 0; index < round->wanted; index++) {
    char path[2 * PATH_BYTES];
    struct stat status;
    snprintf(path, sizeof path, "%s%d", prefix, index);
    /* An unmounted mount point is a folder of a file system without a disk. */
    if (seen[index] || stat(path, &status) != 0 || major(status.st_dev) == 0) continue;
    seen[index] = note_mounted(round, status.st_dev, now_us());
  }
}

static void watch(struct round *round, int events, const char *prefix) {
  char seen[MOST_DISKS] = {0};
  int table = open("/guest/proc/1/mountinfo", O_RDONLY | O_CLOEXEC);
  if (table < 0) fail("mountinfo");
  struct pollfd polled[] = {{.fd = events, .events = POLLIN}, {.fd = table, .events = POLLPRI}};
  while (round->mounted < round->wanted) {
    if (poll(polled, 2, -1) < 0) fail("poll");
    /* The event of a disk always precedes its mount, so events are read first. */
    if (polled[0].revents != 0)
      note_added(round, events);
    else if (polled[1].revents != 0)
      look(round, prefix, seen);
  }
  close(table);
}

/* The bare loop mounts each disk when its event arrives, so its disks are in the order of the events. */
static void mount_each(struct round *round, int events, const char *folder) {
  char paths[MOST_DISKS][2 * PATH_BYTES], node[2 * NAME_BYTES];
  while (round->mounted < round->wanted) {
    struct disk disk;
    if (!next_disk(events, &disk)) continue;
    char *path = paths[round->mounted];
    snprintf(path, sizeof paths[0], "%s/%s", folder, disk.name);
    snprintf(node, sizeof node, "/guest/dev/%s", disk.name);
    if (mkdir(path, 0755) != 0 && errno != EEXIST) fail(path);
    if (mount(node, path, "ext4", 0, "") != 0) fail(node);
    round->disks[round->mounted++].mounted_us = now_us();
  }
  for (int index = 0; index < round->wanted; index++)
    if (umount(paths[index]) != 0) fail(paths[index]);
}

static void race(struct round *round, int events, const char *folder) {
  int of_loop = listen_for_events();
  pid_t loop = fork();
  if (loop < 0) fail("fork");
  if (loop == 0) {
    mount_each(round, of_loop, folder);
    _exit(0);
  }
  close(of_loop);
  printf("ready\n");
  /* The loop writes only mounted_us; this process writes the other fields. */
  struct disk *disks = round->disks;
  while (round->added < round->wanted) {
    struct disk disk;
    if (!next_disk(events, &disk)) continue;
    disks[round->added].added_us = disk.added_us;
    snprintf(disks[round->added++].name, NAME_BYTES, "%s", disk.name);
  }
  int status;
  if (waitpid(loop, &status, 0) != loop || status != 0) fail("the bare loop");
}

int main(void) {
  struct round *round = mmap(NULL, sizeof *round, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (round == MAP_FAILED) fail("mmap");
  char command[16], path[PATH_BYTES];
  int count;
  setlinebuf(stdout);
  come_first();
  while (scanf("%15s %d %255s", command, &count, path) == 3) {
    if (count < 1 || count > MOST_DISKS) return 2;
    memset(round, 0, sizeof *round);
    round->wanted = count;
    int events = listen_for_events();
    if (strcmp(command, "watch") == 0) {
      printf("ready\n");
      watch(round, events, path);
    } else {
      race(round, events, path);
    }
    close(events);
    for (int index = 0; index < count; index++)
      printf("%s %lld\n", round->disks[index].name, round->disks[index].mounted_us - round->disks[index].added_us);
  }
  return 0;
}
