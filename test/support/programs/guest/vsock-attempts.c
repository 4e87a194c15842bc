/*
 * Tries every way that the kernel offers to get an AF_VSOCK socket, and to bind and dial ports.
 *
 *   vsock-attempts sockets           one line for each way: its name, and OK or an errno
 *   vsock-attempts bind PORT…        one line for each port.
 *   vsock-attempts dial PORT…        one line for each port of the host.
 *   vsock-attempts usurp PORT PROC FILE
 *                                    has the agent killed through the guest's /proc, tries to bind its port until this
 *                                    program is killed, and writes the outcome to FILE
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <linux/net.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define X32_BIT 0x40000000L
#define I386_SOCKETCALL 102
#define I386_SOCKET 359
#define I386_IO_URING_SETUP 425

#define RING_ENTRIES 1

static void report(const char *name, long result) {
  printf("%s %s\n", name, result >= 0 ? "OK" : strerrorname_np((int)-result));
}

static long failure(long result) {
  return result < 0 ? -errno : result;
}

/* A system call of the 32-bit ABI from this 64-bit program; the kernel takes the lower halves of the registers. */
static long call_i386(long number, long one, long two, long three) {
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(number), "b"(one), "c"(two), "d"(three)
                   : "memory", "r8", "r9", "r10", "r11");
  return (int)result;
}

/* socketcall(2) reads its arguments from memory at a 32-bit address. */
static long socketcall(int family) {
  unsigned *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (words == MAP_FAILED) return -errno;
  words[0] = (unsigned)family;
  words[1] = SOCK_STREAM;
  words[2] = 0;
  return call_i386(I386_SOCKETCALL, SYS_SOCKET, (long)words, 0);
}

static void *map_ring(int ring, size_t length, off_t offset) {
  return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);
}

/* IORING_OP_SOCKET makes a socket without a system call of this process. */
static long ring_socket(int family) {
  struct io_uring_params params = {0};
  int ring = (int)syscall(SYS_io_uring_setup, RING_ENTRIES, &params);
  if (ring < 0) return -errno;
  char *queue = map_ring(ring, params.sq_off.array + params.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
  char *answers =
      map_ring(ring, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
  struct io_uring_sqe *entry = map_ring(ring, params.sq_entries * sizeof *entry, IORING_OFF_SQES);
  if (queue == MAP_FAILED || answers == MAP_FAILED || entry == MAP_FAILED) return -errno;
  *entry = (struct io_uring_sqe){.opcode = IORING_OP_SOCKET, .fd = family, .off = SOCK_STREAM};
  *(unsigned *)(queue + params.sq_off.array) = 0;
  __atomic_store_n((unsigned *)(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) return -errno;
  return ((struct io_uring_cqe *)(answers + params.cq_off.cqes))->res;
}

static int try_sockets(void) {
  report("socket", failure(socket(AF_VSOCK, SOCK_STREAM, 0)));
  /* The kernel uses only the lower half of the argument. */
  report("socket-with-upper-bits", failure(syscall(SYS_socket, (1L << 32) | AF_VSOCK, SOCK_STREAM, 0)));
  report("socket-x32", failure(syscall(SYS_socket | X32_BIT, AF_VSOCK, SOCK_STREAM, 0)));
  report("socket-i386", call_i386(I386_SOCKET, AF_VSOCK, SOCK_STREAM, 0));
  report("socketcall-i386", socketcall(AF_VSOCK));
  report("io_uring", ring_socket(AF_VSOCK));
  report("io_uring-i386", call_i386(I386_IO_URING_SETUP, RING_ENTRIES, 0, 0));
  report("unix", failure(socket(AF_UNIX, SOCK_STREAM, 0)));
  report("inet-i386", call_i386(I386_SOCKET, AF_INET, SOCK_STREAM, 0));
  return 0;
}

static long attempt(unsigned cid, unsigned port, int (*use)(int, const struct sockaddr *, socklen_t)) {
  struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port};
  int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
  if (fd < 0) return -errno;
  long result = failure(use(fd, (struct sockaddr *)&address, sizeof address));
  close(fd);
  return result;
}

static int try_ports(char **ports, unsigned cid, int (*use)(int, const struct sockaddr *, socklen_t)) {
  for (; *ports != NULL; ports++) report(*ports, attempt(cid, (unsigned)atoi(*ports), use));
  return 0;
}

static int find_agent(const char *proc, char folder[PATH_MAX]) {
  DIR *all = opendir(proc);
  int found = 0;
  for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
    char path[PATH_MAX], line[4096] = {0};
    if (atoi(entry->d_name) <= 1) continue;
    snprintf(path, sizeof path, "%s/%s/cmdline", proc, entry->d_name);
    int fd = open(path, O_RDONLY);
    ssize_t length = read(fd, line, sizeof line);
    close(fd);
    if (length <= 0 || memmem(line, (size_t)length, "/agent.cjs", 10) == NULL) continue;
    snprintf(folder, PATH_MAX, "%s/%s", proc, entry->d_name);
    found = 1;
  }
  if (all != NULL) closedir(all);
  return found;
}

static int write_to(const char *folder, const char *name, const char *text) {
  char path[PATH_MAX * 2];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = open(path, O_WRONLY);
  int written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return written;
}

/* From inside its pid namespace a container cannot signal the agent, so it triggers the kernel's OOM killer. */
static int usurp(unsigned port, const char *proc, const char *file) {
  char agent[PATH_MAX];
  FILE *out = fopen(file, "w");
  if (out == NULL || !find_agent(proc, agent)) return 1;
  if (!write_to(agent, "oom_score_adj", "1000") || !write_to(proc, "sysrq-trigger", "f")) return 1;
  while (access(agent, F_OK) == 0) continue;
  int last = 1;
  for (;;) {
    long result = attempt(VMADDR_CID_ANY, port, bind);
    if (result == last) continue;
    last = (int)result;
    fprintf(out, "%s\n", result >= 0 ? "OK" : strerrorname_np((int)-result));
    fflush(out);
  }
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "sockets") == 0) return try_sockets();
  if (argc > 2 && strcmp(argv[1], "bind") == 0) return try_ports(argv + 2, VMADDR_CID_ANY, bind);
  if (argc > 2 && strcmp(argv[1], "dial") == 0) return try_ports(argv + 2, VMADDR_CID_HOST, connect);
  if (argc == 5 && strcmp(argv[1], "usurp") == 0) return usurp((unsigned)atoi(argv[2]), argv[3], argv[4]);
  return 2;
}
