/*
 * A guest that keeps a journal on its first virtio-blk disk. What it writes it prints on the first serial port: "NUMBER BOOT", or
 * "! NUMBER BOOT" with what it has found, all in hex.
 *
 * It is started by the Multiboot Specification 0.6.96, in 32-bit protected mode. The disk is driven by the legacy interface of
 * "Virtual I/O Device (VIRTIO) Version 1.0", 4.1.4.8, without interrupts.
 */
#include "keep-journal.h"

asm(".section .multiboot, \"ax\"\n"
    ".align 4\n"
    ".long 0x1badb002, 0, -0x1badb002\n"
    ".globl _start\n"
    "_start: mov $stack + 16384, %esp\n"
    "call run\n"
    ".text\n");

char stack[16384] __attribute__((aligned(16)));

/* Descriptors and available ring, and from the next page on the used ring, of up to 1024 descriptors. */
static uint8_t queue[4096 * 8] __attribute__((aligned(4096)));
static struct {
  uint32_t type, reserved;
  uint64_t sector;
} header __attribute__((aligned(16)));
static volatile uint8_t status;
static uint16_t io, length, made;

struct descriptor {
  uint64_t address;
  uint32_t bytes;
  uint16_t flags, next;
};

static inline void out8(uint16_t port, uint8_t value) {
  asm volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}
static inline void out16(uint16_t port, uint16_t value) {
  asm volatile("outw %0, %1" ::"a"(value), "Nd"(port));
}
static inline void out32(uint16_t port, uint32_t value) {
  asm volatile("outl %0, %1" ::"a"(value), "Nd"(port));
}
static inline uint8_t in8(uint16_t port) {
  uint8_t value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
static inline uint16_t in16(uint16_t port) {
  uint16_t value;
  asm volatile("inw %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
static inline uint32_t in32(uint16_t port) {
  uint32_t value;
  asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
static uint64_t now(void) {
  uint64_t value;
  asm volatile("rdtsc" : "=A"(value));
  return value;
}

static void print(char character) {
  while (!(in8(0x3f8 + 5) & 0x20))
    ;
  out8(0x3f8, (uint8_t)character);
}

static void print_number(uint32_t number) {
  for (int shift = 28; shift >= 0; shift -= 4) print("0123456789abcdef"[number >> shift & 15]);
}

static void print_record(int is_found) {
  if (is_found) {
    print('!');
    print(' ');
  }
  print_number(record.number);
  print(' ');
  print_number(record.boot);
  print('\n');
}

static uint32_t configuration(uint32_t slot, uint32_t field) {
  out32(0xcf8, 0x80000000u | slot << 11 | field);
  return in32(0xcfc);
}

static void open_disk(void) {
  uint32_t slot = 0;
  while (configuration(slot, 0) != 0x10011af4u) slot++;
  io = configuration(slot, 0x10) & 0xfffc;
  /* I/O, memory, and access to the memory of the guest. */
  uint32_t command = configuration(slot, 4);
  out32(0xcfc, command | 7);
  out8(io + 18, 0);
  out8(io + 18, 1 | 2);
  out32(io + 4, 0);
  out16(io + 14, 0);
  length = in16(io + 12);
  out32(io + 8, (uint32_t)queue / 4096);
  out8(io + 18, 1 | 2 | 4);
}

static void transfer(uint32_t sector, int writes) {
  struct descriptor *descriptors = (struct descriptor *)queue;
  volatile uint16_t *available = (uint16_t *)(queue + 16 * length);
  uint32_t used_at = (16u * length + 6 + 2 * length + 4095) & ~4095u;
  volatile uint16_t *used = (uint16_t *)(queue + used_at);
  header.type = writes;
  header.sector = sector;
  status = 0xff;
  descriptors[0] = (struct descriptor){(uint32_t)&header, 16, 1, 1};
  descriptors[1] = (struct descriptor){(uint32_t)&record, 512, writes ? 1 : 1 | 2, 2};
  descriptors[2] = (struct descriptor){(uint32_t)&status, 1, 2, 0};
  /* No interrupt. */
  available[0] = 1;
  available[2 + made % length] = 0;
  asm volatile("" ::: "memory");
  available[1] = ++made;
  asm volatile("" ::: "memory");
  out16(io + 16, 0);
  while (used[1] != made)
    ;
  asm volatile("" ::: "memory");
}

static void rest(void) {
  for (volatile uint32_t count = 0; count < 2000000; count++)
    ;
}

void run(void) {
  open_disk();
  keep_journal();
  for (;;) asm volatile("cli\nhlt");
}
