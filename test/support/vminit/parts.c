/* Calls single functions of vminit and prints what they return, for tests. Built with ASan and UBSan. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "boot/initramfs.h"
#include "boot/kernel-command-line.h"
#include "channel/channel.h"
#include "log.h"
#include "supervision/restart-policy.h"
#include "supervision/store.h"

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

/* parts store NAME…: stores a descriptor under each name, cut to the record's bytes, and prints the outcome */
static int store_names(char *names[]) {
  static struct store store;
  for (; *names != NULL; names++) {
    char *name = malloc(RECORD_NAME_BYTES);
    strncpy(name, *names, RECORD_NAME_BYTES);
    const char *reason = store_put(&store, name, 100 + (int)store.count);
    puts(reason == NULL ? store.entries[store.count - 1].name : reason);
    free(name);
  }
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

/* A generator that returns the same numbers for the same seed (xorshift64). */
static uint64_t random_state;
static uint64_t random_below(uint64_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % limit;
}

/* An agent that reads pieces of any size, and the total that all agents have read. */
static struct {
  struct record record;
  size_t length; /* of the record that is read in part */
  uint64_t last_exit, lost, exits, shutdowns;
} reader;

static void fail(const char *what) {
  fprintf(stderr, "after exit %llu: %s\n", (unsigned long long)reader.last_exit, what);
  exit(1);
}

/* Every exit is read once and in order, or counted by an overflow record at the place where it is missing. */
static void check_record(const struct record *record) {
  static uint64_t lost_before_next;
  if (record->version != RECORD_VERSION) fail("a record of another version");
  if (record->kind == RECORD_SHUTDOWN) {
    reader.shutdowns++;
  } else if (record->kind == RECORD_OVERFLOW) {
    lost_before_next += record->sequence;
    reader.lost += record->sequence;
  } else if (record->kind == RECORD_EXIT) {
    if (record->sequence != reader.last_exit + lost_before_next + 1) fail("the next exit has a wrong number");
    if (record->pid != (int32_t)(record->sequence & 0xffff)) fail("the next exit has another's content");
    reader.last_exit = record->sequence;
    reader.exits++;
    lost_before_next = 0;
  } else {
    fail("a record of unknown kind");
  }
}

/* Reads up to `limit` bytes. Returns whether there were any. */
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

/* A record that one agent has read only in part is read from its start by the next agent. */
static void replace_agent(void) {
  channel_close(&channel);
  if (!channel_open(&channel)) fail("the channel cannot be opened");
  reader.length = 0;
}

/* parts channel SEED STEPS: random exits, reads, commands and deaths of the agent, and their results */
static int exercise_channel(uint64_t seed, uint64_t steps) {
  random_state = seed * 0x9e3779b97f4a7c15 + 1;
  channel_prepare(&channel);
  replace_agent();
  uint64_t deaths = 0;
  for (uint64_t step = 0; step < steps; step++) {
    if (step == steps / 2) channel_publish_shutdown(&channel, 15);
    switch (random_below(8)) {
      case 0:
        publish(random_below(2 * RING_CAPACITY));
        break;
      case 1:
      case 2:
        publish(random_below(40));
        break;
      case 3:
        send_garbage();
        break;
      case 4:
        if (random_below(8) != 0) break;
        replace_agent();
        deaths++;
        break;
      case 5:
        channel_flush(&channel);
        break;
      default:
        read_bytes(random_below(100000));
    }
  }
  do channel_flush(&channel);
  while (read_bytes(SIZE_MAX));
  if (reader.exits + reader.lost != channel.exits) fail("some exits were neither read nor counted as lost");
  if (reader.shutdowns != 1) fail("the shutdown was not read once");
  printf("%d exits, %d lost, %d deaths\n", reader.exits > 0, reader.lost > 0, deaths > 0);
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
  if (argc < 3) return 2;
  if (strcmp(argv[1], "boot-options") == 0) return print_boot_options(argv + 2);
  if (strcmp(argv[1], "restart-delays") == 0) return print_restart_delays(argv + 2);
  if (strcmp(argv[1], "delete-initramfs") == 0) return delete_tree(argv[2]);
  if (strcmp(argv[1], "store") == 0) return store_names(argv + 2);
  if (strcmp(argv[1], "log") == 0) return log_texts(argv + 2);
  if (strcmp(argv[1], "receive") == 0) return print_received(strtoul(argv[2], NULL, 10));
  if (argc == 4 && strcmp(argv[1], "channel") == 0) return exercise_channel(strtoul(argv[2], NULL, 10), atoll(argv[3]));
  return 2;
}
