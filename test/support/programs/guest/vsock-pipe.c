/*
 * Connects to vsock CID argv[1], port argv[2], sends its stdin, and writes the received bytes to stdout until the other
 * side closes. Reports the connection's state on stderr; exits with 1 if it cannot connect.
 */
#include <linux/vm_sockets.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char *what) {
  perror(what);
  return 1;
}

static int copy(int from, int to) {
  char buffer[4096];
  ssize_t count;
  while ((count = read(from, buffer, sizeof buffer)) > 0) {
    if (write(to, buffer, (size_t)count) != count) return 0;
  }
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  /* Linux 6.12 raises SIGPIPE for a write to a vsock connection that the peer has closed; 6.1 does not. */
  signal(SIGPIPE, SIG_IGN);
  struct sockaddr_vm peer = {
      .svm_family = AF_VSOCK,
      .svm_cid = (unsigned)strtoul(argv[1], NULL, 10),
      .svm_port = (unsigned)strtoul(argv[2], NULL, 10),
  };
  int connection = socket(AF_VSOCK, SOCK_STREAM, 0);
  if (connection < 0) return fail("socket");
  if (connect(connection, (struct sockaddr *)&peer, sizeof peer) != 0) return fail("connect");
  fprintf(stderr, "connected\n");
  /* If the peer has already closed, the write fails, but its answer can still be read. */
  copy(STDIN_FILENO, connection);
  copy(connection, STDOUT_FILENO);
  fprintf(stderr, "closed\n");
  return 0;
}
