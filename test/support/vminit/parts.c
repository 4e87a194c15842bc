/* Calls single functions of vminit and prints what they return, for tests. Built with ASan and UBSan. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "boot/initramfs.h"
#include "boot/kernel-command-line.h"
#include "channel/channel.h"
#include "kept/freeze.h"
#include "kept/store.h"
#include "log.h"
#include "power-button.h"
#include "supervision/agent-end.h"
#include "supervision/restart-policy.h"
#include "sync.h"

/* parts boot-options LINE…: one line of output for each. Each LINE is in separate memory, whose bounds ASan checks. */
static int print_boot_options(char *lines[]) {
  for (; *lines != NULL; lines++) {
    char *line = strdup(*lines);
    struct boot_options options;
    parse_boot_options(line, &options);
    printf("%s|%s|%s|%s", options.device, options.types, options.flags, options.writable ? "rw" : "ro");
    if (options.wait_seconds != 30) printf("|%d s", options.wait_seconds);
    puts(options.virtio_console ? "|hvc" : "");
    free(line);
  }
  return 0;
}

/* parts restart-delays MILLISECOND…: the delay after a death at each of these times */
static int print_restart_delays(char *times[]) {
  struct restart_policy policy = {.count = 0};
  for (; *times != NULL; times++) printf("%lld ", (long long)restart_delay_ms(&policy, atoll(*times)));
  return 0;
}

/* parts after-agent STATUS FLAG…: what follows an agent with this wait status, as a number, for each word of flags */
static int print_after_agent(int status, char *words[]) {
  for (; *words != NULL; words++) {
    const struct agent_end end = {
        .status = status,
        .init_mode = strchr(*words, 'i') != NULL,
        .end_requested = strchr(*words, 'r') != NULL,
        .not_executed = strchr(*words, 'x') != NULL,
        .ends_with_agent = strchr(*words, 'p') != NULL,
        .gate_opened = strchr(*words, 'g') != NULL,
        .is_first = strchr(*words, '1') != NULL,
    };
    printf("%d ", after_agent(&end));
  }
  return 0;
}

/* parts delete-initramfs DIRECTORY */
static int delete_tree(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return 1;
  delete_initramfs(fd);
  return 0;
}

/* parts log TEXT… */
static int log_texts(char *texts[]) {
  for (; *texts != NULL; texts++) log_line("%s", *texts);
  return 0;
}

/* parts store WORD…: stores a descriptor under each NAME, removes each ~NAME, and prints the outcomes */
static int store_names(char *words[]) {
  static struct store store;
  for (; *words != NULL; words++) {
    bool removes = **words == '~';
    char *name = malloc(RECORD_NAME_BYTES);
    strncpy(name, *words + removes, RECORD_NAME_BYTES);
    int fd = removes ? -1 : dup(STDIN_FILENO);
    int error = removes ? store_remove(&store, name) : store_put(&store, name, fd);
    puts(error == 0 ? "ok" : strerrorname_np(error));
    if (error != 0 && fd >= 0) close(fd);
    free(name);
  }
  printf("%u\n", store.count);
  return 0;
}

static struct channel channel;

/* parts receive BYTES: sends stdin to vminit in pieces of this size and prints the records that it receives */
static int print_received(size_t piece_bytes) {
  char piece[256];
  size_t length;
  struct record record;
  int passed;
  channel_prepare(&channel);
  if (piece_bytes > sizeof piece || !channel_open(&channel)) return 1;
  while ((length = fread(piece, 1, piece_bytes, stdin)) > 0) {
    if (send(channel.agent_fd, piece, length, 0) != (ssize_t)length) return 1;
    while (channel_receive(&channel, &record, &passed))
      printf("%u %u %d\n", record.version, record.kind, record.status);
  }
  shutdown(channel.agent_fd, SHUT_WR);
  return channel_receive(&channel, &record, &passed) || channel_events(&channel) != 0;
}

/* xorshift64 */
static uint64_t random_state;
static uint64_t random_below(uint64_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % limit;
}

/* No process has such a pid. */
#define KEPT_PIDS 300
#define FIRST_KEPT_PID 5000000

static struct {
  bool registered, ended, seen;  /* seen by the running agent */
  bool is_backlog, is_forgotten; /* ended and registered, or forgotten, before the running agent was started */
} kept[KEPT_PIDS];

static struct {
  struct record record;
  size_t length; /* of the record that is read in part */
  uint64_t last_exit, lost_before_next, acknowledged;
  unsigned shutdowns, backlog_ends;
} reader;

static uint64_t exits, lost, kept_exits_seen;

static void fail(const char *what) {
  fprintf(stderr, "after exit %llu: %s\n", (unsigned long long)reader.last_exit, what);
  exit(1);
}

static bool check_kept(const struct record *record) {
  int index = record->pid - FIRST_KEPT_PID;
  if (index < 0 || index >= KEPT_PIDS) return false;
  if (!kept[index].ended || record->status != index) fail("a kept exit has another's content");
  if (record->sequence == 0 && kept[index].is_forgotten) fail("an exit is kept that was forgotten");
  kept[index].seen = true;
  kept_exits_seen++;
  return true;
}

static void check_backlog(void) {
  if (reader.backlog_ends++ != 0) fail("the backlog ends twice");
  for (int i = 0; i < KEPT_PIDS; i++)
    if (kept[i].registered && kept[i].is_backlog && !kept[i].seen) fail("a kept exit is not in the backlog");
}

/* An agent reads every unacknowledged exit once and in order, or its count among the lost ones. */
static void check_record(const struct record *record) {
  if (record->version != RECORD_VERSION) fail("a record of another version");
  if (record->kind == RECORD_SHUTDOWN) {
    reader.shutdowns++;
  } else if (record->kind == RECORD_BACKLOG_END) {
    check_backlog();
  } else if (record->kind == RECORD_OVERFLOW) {
    reader.lost_before_next += record->sequence;
    lost += record->sequence;
  } else if (record->kind == RECORD_EXIT) {
    bool is_kept = check_kept(record);
    if (record->sequence == 0 && is_kept) return;
    if (record->sequence != reader.last_exit + reader.lost_before_next + 1) fail("the next exit has a wrong number");
    if (!is_kept && record->pid != (int32_t)(record->sequence & 0xffff)) fail("the next exit has another's content");
    reader.last_exit = record->sequence;
    reader.lost_before_next = 0;
    exits++;
  } else {
    fail("a record of unknown kind");
  }
}

static bool read_bytes(size_t limit) {
  bool any = false;
  while (limit > 0) {
    size_t wanted = sizeof reader.record - reader.length;
    if (wanted > limit) wanted = limit;
    ssize_t length = recv(channel.agent_fd, (char *)&reader.record + reader.length, wanted, MSG_DONTWAIT);
    if (length <= 0) return any;
    any = true;
    limit -= (size_t)length;
    reader.length += (size_t)length;
    if (reader.length < sizeof reader.record) continue;
    reader.length = 0;
    check_record(&reader.record);
  }
  return any;
}

static void publish(uint64_t count) {
  for (; count > 0; count--) {
    struct record record = {.version = RECORD_VERSION, .kind = RECORD_EXIT};
    record.pid = (int32_t)((channel.exits + 1) & 0xffff);
    channel_publish_exit(&channel, &record);
  }
}

static void send_garbage(void) {
  char bytes[200];
  struct record record;
  int passed;
  size_t length = random_below(sizeof bytes) + 1;
  for (size_t i = 0; i < length; i++) bytes[i] = (char)random_below(256);
  if (send(channel.agent_fd, bytes, length, MSG_DONTWAIT) < 0) fail("vminit does not receive");
  while (channel_receive(&channel, &record, &passed)) continue;
}

static void replace_agent(void) {
  channel_close(&channel);
  if (!channel_open(&channel)) fail("the channel cannot be opened");
  reader.length = 0;
  reader.last_exit = reader.acknowledged;
  reader.lost_before_next = reader.shutdowns = reader.backlog_ends = 0;
  for (int i = 0; i < KEPT_PIDS; i++) {
    kept[i].seen = false;
    kept[i].is_backlog = kept[i].ended && kept[i].registered;
    kept[i].is_forgotten = kept[i].ended && !kept[i].registered;
  }
}

static void acknowledge(void) {
  uint64_t unacknowledged = reader.last_exit - reader.acknowledged;
  reader.acknowledged += random_below(unacknowledged + 1);
  ring_acknowledge(&channel.ring, reader.acknowledged);
}

static void live(void) {
  int index = (int)random_below(KEPT_PIDS);
  struct record exit = {.version = RECORD_VERSION, .kind = RECORD_EXIT, .status = index};
  exit.pid = FIRST_KEPT_PID + index;
  if (!kept[index].registered && !kept[index].ended) {
    kept[index].registered = true;
    channel_keep_exit(&channel, exit.pid);
  } else if (!kept[index].ended) {
    kept[index].ended = true;
    channel_publish_exit(&channel, &exit);
  } else if (kept[index].registered) {
    kept[index].registered = false;
    channel_forget_exit(&channel, exit.pid);
  }
}

static void take_step(void) {
  switch (random_below(10)) {
    case 0:
      publish(random_below(2 * RING_CAPACITY));
      break;
    case 1:
      publish(random_below(40));
      break;
    case 2:
      acknowledge();
      break;
    case 3:
      send_garbage();
      break;
    case 4:
      if (random_below(8) == 0) replace_agent();
      break;
    case 5:
    case 6:
      channel_flush(&channel);
      break;
    case 7:
      live();
      break;
    default:
      read_bytes(random_below(100000));
  }
}

/* parts channel SEED STEPS: random exits, reads, acknowledgements, commands and deaths of the agent, and their results */
static int exercise_channel(uint64_t seed, uint64_t steps) {
  random_state = seed * 0x9e3779b97f4a7c15 + 1;
  channel_prepare(&channel);
  replace_agent();
  for (uint64_t step = 0; step < steps; step++) {
    if (step == steps / 2) channel_publish_shutdown(&channel, 15);
    take_step();
  }
  do channel_flush(&channel);
  while (read_bytes(SIZE_MAX));
  if (reader.last_exit + reader.lost_before_next != channel.exits) fail("some exits were neither read nor lost");
  if (reader.shutdowns != 1) fail("the shutdown was not read once");
  if (reader.backlog_ends != 1) fail("the end of the backlog was not read");
  for (int i = 0; i < KEPT_PIDS; i++)
    if (kept[i].registered && kept[i].ended && !kept[i].seen) fail("a kept exit was lost");
  printf("%d exits, %d lost, %d kept\n", exits > 0, lost > 0, kept_exits_seen > 0);
  return 0;
}

/* parts keep: the exit of a registered process outlasts a flood, and one from before the registration is found */
static int keep_exits(void) {
  const struct record late = {.version = RECORD_VERSION, .kind = RECORD_EXIT, .pid = FIRST_KEPT_PID, .status = 0};
  const struct record early = {.version = RECORD_VERSION, .kind = RECORD_EXIT, .pid = FIRST_KEPT_PID + 1, .status = 1};
  channel_prepare(&channel);
  replace_agent();
  kept[0].registered = kept[0].ended = kept[1].registered = kept[1].ended = true;
  channel_publish_exit(&channel, &early);
  channel_keep_exit(&channel, late.pid);
  channel_keep_exit(&channel, early.pid);
  channel_publish_exit(&channel, &late);
  for (int floods = 0; floods < 20; floods++) {
    publish(RING_CAPACITY);
    channel_flush(&channel);
    while (read_bytes(SIZE_MAX)) channel_flush(&channel);
  }
  replace_agent();
  do channel_flush(&channel);
  while (read_bytes(SIZE_MAX));
  printf("%d %d\n", kept[0].seen, kept[1].seen);
  /* Fills the table, with one more pid, which is logged. */
  for (int pid = FIRST_KEPT_PID; pid <= FIRST_KEPT_PID + KEPT_CAPACITY + 1; pid++) channel_keep_exit(&channel, pid);
  return channel.kept.count == KEPT_CAPACITY ? 0 : 1;
}

/* parts power-button HEX…: whether the button is pressed after each of these messages, which have no sender as the kernel's */
static int print_power_button(char *words[]) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) != 0) return 1;
  for (; *words != NULL; words++) {
    unsigned char bytes[8192];
    size_t length = 0;
    for (const char *digits = *words; sscanf(digits, "%2hhx", &bytes[length]) == 1; digits += 2) length++;
    if (send(pair[0], bytes, length, 0) != (ssize_t)length) return 1;
    puts(power_button_pressed(pair[1]) ? "pressed" : "-");
  }
  return 0;
}

/* parts power-button-socket: whether a message of another process counts */
static int send_to_power_button(void) {
  int fd = power_button_open();
  if (fd < 0) return puts(strerrorname_np(errno)) < 0;
  struct sockaddr_nl address;
  socklen_t size = sizeof address;
  getsockname(fd, (struct sockaddr *)&address, &size);
  char event[64] = {0};
  const struct nlmsghdr header = {.nlmsg_len = sizeof event, .nlmsg_type = 99};
  const struct nlattr attribute = {.nla_len = sizeof event - 20, .nla_type = 1};
  memcpy(event, &header, sizeof header);
  memcpy(event + 20, &attribute, sizeof attribute);
  strcpy(event + 24, "button/power");
  int other = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
  address.nl_groups = 0;
  if (sendto(other, event, sizeof event, 0, (struct sockaddr *)&address, size) != sizeof event) return 1;
  puts(power_button_pressed(fd) ? "pressed" : "-");
  return 0;
}

/* parts sync MILLISECONDS FOLDER: syncs all file systems, while one in FOLDER has a server that never answers */
static int sync_beside_dead_server(int timeout_ms, const char *folder) {
  char options[64];
  int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
  if (fd < 0 || mount("dead", folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0) return 1;
  sync_file_systems(timeout_ms);
  /* Ends the sync that waits for the server. */
  return umount2(folder, MNT_FORCE | MNT_DETACH);
}

static struct freeze freezing;
static const char cgroup_name[RECORD_NAME_BYTES] = "cgroup";

/* Prints records until the time has passed without one, or until everything is thawed. */
static void print_freezes(int patience_ms) {
  sigset_t woken;
  sigemptyset(&woken);
  sigaddset(&woken, SIGCHLD);
  struct record record;
  for (;;) {
    while (freeze_take(&freezing, &record)) {
      const char *what = record.kind == RECORD_THAWED ? "thawed" : "answer";
      printf("%s %s %s\n", what, record.name, record.result == 0 ? "ok" : strerrorname_np(record.result));
      if (record.kind == RECORD_THAWED && record.name[0] == '\0') return;
    }
    const struct timespec patience = {.tv_sec = patience_ms / 1000, .tv_nsec = patience_ms % 1000 * 1000000};
    if (sigtimedwait(&woken, NULL, &patience) < 0) return;
  }
}

/* Starts a process that is in the middle of a write to a file until it is killed: its memory never comes. */
static pid_t start_stuck_writer(const char *path) {
  pid_t pid = fork();
  char wchan_path[64], wchan[64] = "";
  snprintf(wchan_path, sizeof wchan_path, "/proc/%d/wchan", pid);
  while (pid != 0 && strstr(wchan, "userfault") == NULL) {
    int fd = open(wchan_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, wchan, sizeof wchan - 1) < 0) exit(1);
    close(fd);
    poll(NULL, 0, 10);
  }
  if (pid != 0) return pid;
  int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register absent = {.range = {(uintptr_t)page, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (ioctl(faults, UFFDIO_API, &api) != 0 || ioctl(faults, UFFDIO_REGISTER, &absent) != 0) _exit(1);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ssize_t written = write(fd, page, 4096);
  _exit(written != 4096);
}

/*
 * parts freeze WORD…: fs:NAME=PATH and cgroup:PATH hold, the latter as `cgroup`, arm:MS, freeze:NAME, thaw, thaw-fs, now; take:MS prints the
 * records that come, sleep:MS, sh:COMMAND; stuck:FILE makes a write that does not end before `unstick`
 */
static int drive_freezes(char *words[]) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  setlinebuf(stdout);
  freeze_prepare(&freezing);
  pid_t stuck = 0;
  for (; *words != NULL; words++) {
    char *word = strdup(*words), *rest = word;
    const char *command = strsep(&rest, ":");
    char name[RECORD_NAME_BYTES] = "";
    const char *path = rest;
    if (strcmp(command, "fs") == 0) path = strchr(rest, '=') + 1;
    if (rest != NULL) strncpy(name, strsep(&rest, "="), RECORD_NAME_BYTES);
    int fd = -1, error = -1;
    if (strcmp(command, "fs") == 0) fd = open(path, O_RDONLY | O_CLOEXEC);
    if (strcmp(command, "cgroup") == 0) fd = open(path, O_WRONLY | O_CLOEXEC);
    if (strcmp(command, "fs") == 0) error = freeze_hold_file_system(&freezing, name, fd);
    if (strcmp(command, "cgroup") == 0) error = freeze_hold_cgroup(&freezing, cgroup_name, fd);
    if (strcmp(command, "arm") == 0) error = freeze_arm(&freezing, strtoull(path, NULL, 10));
    if (strcmp(command, "freeze") == 0) error = freeze_begin(&freezing, name);
    if (strcmp(command, "thaw") == 0) freeze_thaw(&freezing, true);
    if (strcmp(command, "thaw-fs") == 0) freeze_thaw(&freezing, false);
    if (strcmp(command, "now") == 0) freeze_thaw_now(&freezing);
    if (strcmp(command, "take") == 0) print_freezes(atoi(path));
    if (strcmp(command, "sleep") == 0) poll(NULL, 0, atoi(path));
    if (strcmp(command, "stuck") == 0) stuck = start_stuck_writer(path);
    if (strcmp(command, "unstick") == 0) kill(stuck, SIGKILL);
    if (strcmp(command, "sh") == 0 && system(path) != 0) printf("failed: %s\n", path);
    if (error >= 0) printf("%s %s\n", *words, error == 0 ? "ok" : strerrorname_np(error));
    if (error != 0 && fd >= 0) close(fd);
    free(word);
  }
  return 0;
}

/* parts overrun: an error that ASan must report */
static int overrun(void) {
  char *byte = malloc(1);
  volatile size_t index = 1;
  byte[index] = 1;
  free(byte);
  return 0;
}

int main(int argc, char *argv[]) {
  if (argc == 2 && strcmp(argv[1], "overrun") == 0) return overrun();
  if (argc == 2 && strcmp(argv[1], "keep") == 0) return keep_exits();
  if (argc == 2 && strcmp(argv[1], "power-button-socket") == 0) return send_to_power_button();
  if (argc < 3) return 2;
  if (strcmp(argv[1], "power-button") == 0) return print_power_button(argv + 2);
  if (strcmp(argv[1], "boot-options") == 0) return print_boot_options(argv + 2);
  if (strcmp(argv[1], "restart-delays") == 0) return print_restart_delays(argv + 2);
  if (strcmp(argv[1], "after-agent") == 0) return print_after_agent(atoi(argv[2]), argv + 3);
  if (strcmp(argv[1], "delete-initramfs") == 0) return delete_tree(argv[2]);
  if (strcmp(argv[1], "freeze") == 0) return drive_freezes(argv + 2);
  if (strcmp(argv[1], "store") == 0) return store_names(argv + 2);
  if (strcmp(argv[1], "log") == 0) return log_texts(argv + 2);
  if (strcmp(argv[1], "receive") == 0) return print_received(strtoul(argv[2], NULL, 10));
  if (argc == 4 && strcmp(argv[1], "sync") == 0) return sync_beside_dead_server(atoi(argv[2]), argv[3]);
  if (argc == 4 && strcmp(argv[1], "channel") == 0) return exercise_channel(strtoul(argv[2], NULL, 10), atoll(argv[3]));
  return 2;
}
