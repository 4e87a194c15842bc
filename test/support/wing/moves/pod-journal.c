/* Keeps the journal of journal.c from a container, on the disk `pod-journal DISK`, and prints the same to its output. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <x86intrin.h>

#include "keep-journal.h"

enum { PAUSE_US = 20000 };

static int disk;

static void transfer(uint32_t sector, int writes) {
  off_t at = (off_t)sector * (off_t)sizeof record;
  ssize_t bytes = writes ? pwrite(disk, &record, sizeof record, at) : pread(disk, &record, sizeof record, at);
  if (bytes == sizeof record) return;
  perror("disk");
  exit(1);
}

static uint64_t now(void) {
  return __rdtsc();
}

static void print_record(int is_found) {
  printf(is_found ? "! %08x %08x\n" : "%08x %08x\n", record.number, record.boot);
}

static void rest(void) {
  usleep(PAUSE_US);
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  disk = open(count == 2 ? words[1] : "", O_RDWR | O_DIRECT | O_SYNC);
  keep_journal();
  return 0;
}
