/*
 * Copies both ways between one client of the unix socket LISTEN and the server at the unix socket CONNECT, and ends
 * with either. It shows the cost of any process between a client and an agent.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define COPY_BYTES 262144

static int fail(const char *what) {
  perror(what);
  exit(EXIT_FAILURE);
}

static int check(int result, const char *what) {
  return result < 0 ? fail(what) : result;
}

static struct sockaddr_un address_of(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  return address;
}

static bool copy(int from, int to) {
  static char bytes[COPY_BYTES];
  ssize_t length = read(from, bytes, sizeof bytes);
  for (ssize_t done = 0; done < length;) {
    ssize_t written = write(to, bytes + done, (size_t)(length - done));
    if (written <= 0) return false;
    done += written;
  }
  return length > 0;
}

int main(int argc, char *argv[]) {
  if (argc != 3) return EXIT_FAILURE;
  struct sockaddr_un own = address_of(argv[1]), other = address_of(argv[2]);
  int listener = check(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
  check(bind(listener, (struct sockaddr *)&own, sizeof own), argv[1]);
  check(listen(listener, 1), argv[1]);
  int server = check(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
  check(connect(server, (struct sockaddr *)&other, sizeof other), argv[2]);
  puts("up");
  fflush(stdout);
  int client = check(accept(listener, NULL, NULL), "accept");
  struct pollfd ends[] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
  for (;;) {
    check(poll(ends, 2, -1), "poll");
    if (ends[0].revents != 0 && !copy(client, server)) return EXIT_SUCCESS;
    if (ends[1].revents != 0 && !copy(server, client)) return EXIT_SUCCESS;
  }
}
