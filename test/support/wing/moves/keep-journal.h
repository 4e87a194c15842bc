/*
 * A journal on a disk: sector N has the record N. A record that is there already was written by another one that runs the same machine,
 * for each boot goes on behind the last.
 */
#include <stdint.h>

enum { SECTORS = 1 << 18 };

/* As journal.ts reads it. */
static struct record {
  uint32_t number, boot;
  uint64_t time;
  uint8_t rest[496];
} record __attribute__((aligned(4096)));

/* These are the includer's. `transfer` ends the program when the disk fails. */
static void transfer(uint32_t sector, int writes);
static uint64_t now(void);
static void print_record(int is_found);
static void rest(void);

static void keep_journal(void) {
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
      print_record(1);
      continue;
    }
    record.number = number + 1;
    record.boot = boot;
    record.time = now();
    transfer(number, 1);
    print_record(0);
    rest();
  }
}
