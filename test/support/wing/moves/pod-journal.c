/* Keeps the journal of journal.c from a container, on the disk `pod-journal DISK`, and prints the same to its output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <x86intrin.h>

enum { SECTORS = 1 << 18, PAUSE_US = 20000 };

/* As journal.ts reads it. */
static struct record {
  uint32_t number, boot;
  uint64_t time;
  uint8_t rest[496];
} record __attribute__((aligned(4096)));

static int disk;

static void transfer(uint32_t sector, int writes) {
  off_t at = (off_t)sector * (off_t)sizeof record;
  ssize_t bytes = writes ? pwrite(disk, &record, sizeof record, at) : pread(disk, &record, sizeof record, at);
  if (bytes == sizeof record) return;
  perror("disk");
  exit(1);
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  disk = open(count == 2 ? words[1] : "", O_RDWR | O_DIRECT | O_SYNC);
  uint32_t number = 0;
  for (uint32_t end = SECTORS; number < end;) {
    uint32_t middle = number + (end - number) / 2;
    transfer(middle, 0);
    if (record.number == 0)
      end = middle;
    else
      number = middle + 1;
  }
  uint32_t boot = 1;
  if (number > 0) {
    transfer(number - 1, 0);
    boot = record.boot + 1;
  }
  for (; number < SECTORS; number++) {
    transfer(number, 0);
    if (record.number != 0) {
      printf("! %08x %08x\n", record.number, record.boot);
      continue;
    }
    record.number = number + 1;
    record.boot = boot;
    record.time = __rdtsc();
    transfer(number, 1);
    printf("%08x %08x\n", record.number, record.boot);
    usleep(PAUSE_US);
  }
  return 0;
}
