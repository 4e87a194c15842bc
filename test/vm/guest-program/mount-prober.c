/*
 * Tells how long after the kernel's uevent of a new disk that disk is mounted. Reads commands from stdin, one a line:
 *
 *   watch COUNT TABLE    somebody else mounts: a mount namespace's table, a mountinfo of /proc, shows when
 *   mount COUNT FOLDER   mounts each disk itself, below FOLDER, as soon as its event comes, and unmounts it at the end;
 *                        the nodes of the guest are in /guest/dev
 *
 * Each command says "ready" when it listens, then "NAME MICROSECONDS" for each of COUNT disks.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_DISKS = 64, NAME_BYTES = 32 };

struct disk {
  char name[NAME_BYTES];
  long long added_us;
  long long mounted_us;
};

struct round {
  int events;
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

static int listen_for_events(void) {
  int events = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);
  if (events < 0) fail("socket");
  int bytes = 1 << 20;
  if (setsockopt(events, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) != 0) fail("setsockopt");
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK, .nl_groups = 1};
  if (bind(events, (struct sockaddr *)&kernel, sizeof kernel) != 0) fail("bind");
  return events;
}

/* Reads one event, and returns the new disk that it tells of, or NULL. */
static struct disk *next_disk(struct round *round) {
  char text[8192];
  ssize_t length = recv(round->events, text, sizeof text - 1, 0);
  long long at = now_us();
  if (length <= 0) fail("recv");
  text[length] = '\0';
  const char *name = NULL;
  int is_new = 0, is_disk = 0;
  for (const char *line = text; line < text + length; line += strlen(line) + 1) {
    if (strcmp(line, "ACTION=add") == 0) is_new = 1;
    if (strcmp(line, "DEVTYPE=disk") == 0) is_disk = 1;
    if (strncmp(line, "DEVNAME=", 8) == 0) name = line + 8;
  }
  if (!is_new || !is_disk || name == NULL || round->added == round->wanted) return NULL;
  struct disk *disk = &round->disks[round->added++];
  snprintf(disk->name, sizeof disk->name, "%s", name);
  disk->added_us = at;
  disk->mounted_us = 0;
  return disk;
}

/* Looks which disks the table has come to show. */
static void look_at_table(struct round *round, int table) {
  static char text[1 << 18];
  ssize_t length = 0, count;
  if (lseek(table, 0, SEEK_SET) != 0) fail("lseek");
  while ((count = read(table, text + length, sizeof text - 1 - (size_t)length)) > 0) length += count;
  long long at = now_us();
  text[length] = '\0';
  for (int index = 0; index < round->added; index++) {
    struct disk *disk = &round->disks[index];
    char source[NAME_BYTES + 8];
    snprintf(source, sizeof source, " /dev/%s ", disk->name);
    if (disk->mounted_us != 0 || strstr(text, source) == NULL) continue;
    disk->mounted_us = at;
    round->mounted++;
  }
}

static void watch(struct round *round, const char *path) {
  int table = open(path, O_RDONLY | O_CLOEXEC);
  if (table < 0) fail(path);
  /* The first look is what later changes are told against. */
  look_at_table(round, table);
  struct pollfd polled[] = {{.fd = round->events, .events = POLLIN}, {.fd = table, .events = POLLPRI}};
  while (round->mounted < round->wanted) {
    if (poll(polled, 2, -1) < 0) fail("poll");
    if (polled[0].revents != 0) next_disk(round);
    if (polled[1].revents != 0) look_at_table(round, table);
  }
  close(table);
}

static void mount_each(struct round *round, const char *folder) {
  char path[256], node[NAME_BYTES + 16];
  while (round->mounted < round->wanted) {
    struct disk *disk = next_disk(round);
    if (disk == NULL) continue;
    snprintf(path, sizeof path, "%s/%s", folder, disk->name);
    snprintf(node, sizeof node, "/guest/dev/%s", disk->name);
    if (mkdir(path, 0755) != 0 && errno != EEXIST) fail(path);
    if (mount(node, path, "ext4", 0, "") != 0) fail(node);
    disk->mounted_us = now_us();
    round->mounted++;
  }
  for (int index = 0; index < round->wanted; index++) {
    snprintf(path, sizeof path, "%s/%s", folder, round->disks[index].name);
    if (umount(path) != 0) fail(path);
  }
}

int main(void) {
  static struct round round;
  char command[16], path[128];
  int count;
  round.events = listen_for_events();
  setlinebuf(stdout);
  while (scanf("%15s %d %127s", command, &count, path) == 3) {
    if (count < 1 || count > MOST_DISKS) return 2;
    round.wanted = count;
    round.added = round.mounted = 0;
    printf("ready\n");
    if (strcmp(command, "watch") == 0)
      watch(&round, path);
    else
      mount_each(&round, path);
    for (int index = 0; index < count; index++)
      printf("%s %lld\n", round.disks[index].name, round.disks[index].mounted_us - round.disks[index].added_us);
  }
  return 0;
}
