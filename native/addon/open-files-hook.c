/*
 * Refuses that threads of one name change their own RLIMIT_NOFILE: a program for the kernel's hook `task_setrlimit`, in
 * force while its descriptor is open. Needs CONFIG_BPF_LSM, `bpf` among the active security modules, and
 * /sys/kernel/btf/vmlinux, where the kernel numbers its functions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>
#include <linux/btf.h>

#include "functions.h"
#include "napi/pool.h"

#define TYPES_FILE "/sys/kernel/btf/vmlinux"
#define MAX_TYPES_BYTES (64 << 20)
#define HOOK "bpf_lsm_task_setrlimit"

/* As long as the kernel's name of a thread, with its NUL. */
#define NAME_BYTES 16

struct hook_work {
  struct pool_work pool;
  const char *name;
};

static bool read_whole(int fd, char *bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    ssize_t count = read(fd, bytes + done, length - done);
    if (count <= 0) return false;
    done += count;
  }
  return true;
}

/* How many bytes follow a type's own three words, by its kind. */
static size_t bytes_after(unsigned kind, size_t members) {
  switch (kind) {
    case BTF_KIND_INT:
      return sizeof(uint32_t);
    case BTF_KIND_VAR:
      return sizeof(struct btf_var);
    case BTF_KIND_DECL_TAG:
      return sizeof(struct btf_decl_tag);
    case BTF_KIND_ARRAY:
      return sizeof(struct btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION:
      return members * sizeof(struct btf_member);
    case BTF_KIND_DATASEC:
      return members * sizeof(struct btf_var_secinfo);
    case BTF_KIND_ENUM:
      return members * sizeof(struct btf_enum);
    case BTF_KIND_ENUM64:
      return members * 3 * sizeof(uint32_t);
    case BTF_KIND_FUNC_PROTO:
      return members * sizeof(struct btf_param);
    default:
      return 0;
  }
}

/* The number of the hook's function among the kernel's types, which are counted from 1; 0 when it is not there. */
static int number_of_hook(const char *bytes, size_t length) {
  const struct btf_header *header = (const struct btf_header *)bytes;
  if (length < sizeof *header || header->magic != BTF_MAGIC || header->hdr_len > length) return 0;
  size_t rest = length - header->hdr_len;
  if (header->type_off > rest || header->type_len > rest - header->type_off) return 0;
  if (header->str_off > rest || header->str_len > rest - header->str_off) return 0;
  const char *next = bytes + header->hdr_len + header->type_off, *end = next + header->type_len;
  const char *strings = bytes + header->hdr_len + header->str_off;
  for (int number = 1; (size_t)(end - next) >= sizeof(struct btf_type); number++) {
    const struct btf_type *type = (const struct btf_type *)next;
    bool named = type->name_off < header->str_len && header->str_len - type->name_off >= sizeof HOOK;
    if (BTF_INFO_KIND(type->info) == BTF_KIND_FUNC && named && memcmp(strings + type->name_off, HOOK, sizeof HOOK) == 0)
      return number;
    size_t size = sizeof *type + bytes_after(BTF_INFO_KIND(type->info), BTF_INFO_VLEN(type->info));
    if (size > (size_t)(end - next)) return 0;
    next += size;
  }
  return 0;
}

/* Returns the number, or 0 with errno set. */
static int find_hook(void) {
  int number = 0;
  int fd = open(TYPES_FILE, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (fd < 0) return 0;
  char *bytes = NULL;
  if (fstat(fd, &status) == 0 && status.st_size <= MAX_TYPES_BYTES) bytes = malloc(status.st_size);
  if (bytes != NULL && read_whole(fd, bytes, status.st_size)) number = number_of_hook(bytes, status.st_size);
  free(bytes);
  close(fd);
  if (number == 0) errno = EOPNOTSUPP;
  return number;
}

#define INSTRUCTION(operation, to, from, offset, value) \
  ((struct bpf_insn){.code = (operation), .dst_reg = (to), .src_reg = (from), .off = (offset), .imm = (value)})
#define LOAD(to, from, offset) INSTRUCTION(BPF_LDX | BPF_MEM | BPF_DW, to, from, offset, 0)
#define CLEAR(base, offset) INSTRUCTION(BPF_ST | BPF_MEM | BPF_DW, base, 0, offset, 0)
#define SET(to, value) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value)
#define COPY(to, from) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define ADD(to, value) INSTRUCTION(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value)
/* A 64-bit constant takes two instructions. */
#define SET_LONG(to, value) \
  INSTRUCTION(BPF_LD | BPF_IMM | BPF_DW, to, 0, 0, (uint32_t)(value)), \
      INSTRUCTION(0, 0, 0, 0, (uint32_t)((value) >> 32))
#define CALL(function) INSTRUCTION(BPF_JMP | BPF_CALL, 0, 0, 0, function)
#define EXIT INSTRUCTION(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
/* Skips `count` instructions unless the register holds the value. */
#define UNLESS_VALUE(of, value, count) INSTRUCTION(BPF_JMP | BPF_JNE | BPF_K, of, 0, count, value)
#define UNLESS_EQUAL(one, other, count) INSTRUCTION(BPF_JMP | BPF_JNE | BPF_X, one, other, count, 0)

/* The hook's arguments are the task, the resource and the new limit: 8 bytes each, behind the pointer in register 1. */
static int load_program(int hook, const char *thread) {
  uint64_t name[NAME_BYTES / sizeof(uint64_t)] = {0};
  strncpy((char *)name, thread, NAME_BYTES - 1);
  struct bpf_insn program[] = {
      LOAD(2, 1, sizeof(uint64_t)),
      UNLESS_VALUE(2, RLIMIT_NOFILE, 16),
      /* Register 10 is the end of the stack. The kernel may leave what follows the name's NUL as it is. */
      CLEAR(10, -16),
      CLEAR(10, -8),
      COPY(1, 10),
      ADD(1, -NAME_BYTES),
      SET(2, NAME_BYTES),
      CALL(BPF_FUNC_get_current_comm),
      LOAD(1, 10, -16),
      SET_LONG(2, name[0]),
      UNLESS_EQUAL(1, 2, 6),
      LOAD(1, 10, -8),
      SET_LONG(2, name[1]),
      UNLESS_EQUAL(1, 2, 2),
      SET(0, -EPERM),
      EXIT,
      SET(0, 0),
      EXIT,
  };
  union bpf_attr load = {
      .prog_type = BPF_PROG_TYPE_LSM,
      .expected_attach_type = BPF_LSM_MAC,
      .insns = (uintptr_t)program,
      .insn_cnt = sizeof program / sizeof program[0],
      .license = (uintptr_t) "GPL", /* the kernel asks it of every program of this kind */
      .attach_btf_id = hook,
  };
  return syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load);
}

static void run_hook(struct pool_work *pool) {
  struct hook_work *work = (struct hook_work *)pool;
  int hook = find_hook();
  int program = hook == 0 ? -1 : load_program(hook, work->name);
  union bpf_attr attach = {.raw_tracepoint = {.prog_fd = program}};
  int link = program < 0 ? -1 : (int)syscall(SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &attach, sizeof attach);
  pool->result = link < 0 ? -errno : link;
  if (program >= 0) close(program);
}

static napi_value keep_open_files_limit(napi_env env, napi_callback_info info) {
  struct hook_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->name = string_argument(&work->pool.arguments, 0);
  return pool_queue(env, &work->pool, run_hook);
}

const struct addon_function open_files_hook_functions[] = {
    {"keepOpenFilesLimit", keep_open_files_limit},
    {NULL, NULL},
};
