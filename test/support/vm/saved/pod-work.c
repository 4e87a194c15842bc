/* What a container of a pod does while its guest is saved, for tests: `pod-work lock|try FILE FILE`, `serve|dial ADDRESS PORT`,
   `collect PORT`, `leave`, `random`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;

static void on_term(int signal) {
  (void)signal;
  is_over = 1;
}

static void fail(const char *what) {
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

/* The errno of each of the two kinds of locks. */
static void take(const char *first, const char *second, int errors[2]) {
  int flocked = open(first, O_RDWR | O_CREAT, 0600);
  int locked = open(second, O_RDWR | O_CREAT, 0600);
  if (flocked < 0 || locked < 0) fail("open");
  errors[0] = flock(flocked, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  errors[1] = fcntl(locked, F_SETLK, &whole) < 0 ? errno : 0;
}

static int lock(const char *first, const char *second, int is_held) {
  int errors[2];
  take(first, second, errors);
  printf("flock %s, fcntl %s\n", strerrorname_np(errors[0]), strerrorname_np(errors[1]));
  while (is_held && !is_over) pause();
  return 0;
}

static struct sockaddr_in addressed(const char *host, const char *port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

static int listening(const char *host, const char *port) {
  struct sockaddr_in address = addressed(host, port);
  int end = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  setsockopt(end, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(end, (struct sockaddr *)&address, sizeof address) < 0 || listen(end, 16) < 0) fail("listen");
  puts("listens");
  return end;
}

static int accepted(int listener) {
  int end = accept(listener, NULL, NULL);
  if (end < 0) fail("accept");
  return end;
}

static int connected(const char *host, const char *port) {
  struct sockaddr_in address = addressed(host, port);
  int end = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(end, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
  return end;
}

/* Sends 1, 2, 3 … and takes the same of the other, until SIGTERM or the other's end, after which each side sends no more. */
static int talk(int is_server, const char *host, const char *port) {
  int end = is_server ? accepted(listening(host, port)) : connected(host, port);
  uint32_t sent = 0, taken = 0, number;
  for (int is_shut = 0;;) {
    if (is_over && !is_shut) {
      is_shut = 1;
      shutdown(end, SHUT_WR);
    }
    if (!is_shut) {
      number = ++sent;
      if (send(end, &number, sizeof number, MSG_NOSIGNAL) != sizeof number) fail("send");
    }
    struct pollfd ready = {.fd = end, .events = POLLIN};
    while (poll(&ready, 1, 10) > 0) {
      ssize_t bytes = recv(end, &number, sizeof number, MSG_WAITALL);
      if (bytes < 0) fail("recv");
      if (bytes == 0 && is_shut) {
        printf("sent %u, taken %u\n", sent, taken);
        return 0;
      }
      if (bytes == 0) {
        is_over = 1;
        break;
      }
      if (number != taken + 1) {
        printf("%u follows %u\n", number, taken);
        return 1;
      }
      if (++taken % 50 == 0) printf("at %u\n", taken);
    }
  }
}

/* Takes traces by OTLP over HTTP, as the agent sends them, and prints the name and the trace id of each span. */
static void collect(const char *port) {
  static char text[1 << 20];
  for (int listener = listening("127.0.0.1", port);;) {
    int end = accepted(listener);
    size_t length = 0, wanted = sizeof text - 1;
    for (ssize_t bytes; length < wanted; length += (size_t)bytes) {
      if ((bytes = recv(end, text + length, sizeof text - 1 - length, 0)) <= 0) break;
      text[length + (size_t)bytes] = 0;
      char *size = strcasestr(text, "content-length: "), *body = strstr(text, "\r\n\r\n");
      if (size != NULL && body != NULL) wanted = (size_t)(body + 4 - text) + (size_t)atol(size + 16);
    }
    static const char answer[] = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    send(end, answer, sizeof answer - 1, MSG_NOSIGNAL);
    close(end);
    for (char *at = text; (at = strstr(at, "\"traceId\":\"")) != NULL; at += 11) {
      char *name = strstr(at, "\"name\":\"");
      if (name != NULL) printf("%.*s %.32s\n", (int)strcspn(name + 8, "\""), name + 8, at + 11);
    }
    text[0] = 0;
  }
}

static int draw(void) {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail("getrandom");
  for (size_t at = 0; at < sizeof bytes; at++) printf("%02x", bytes[at]);
  puts("");
  return 0;
}

/* Ends once a vsock device has left: the kernel's word waits in the socket. */
static int leave(void) {
  int end = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
  struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = 1};
  if (end < 0 || bind(end, (struct sockaddr *)&address, sizeof address) < 0) fail("uevents");
  puts("waits");
  for (char text[4096];;) {
    ssize_t bytes = recv(end, text, sizeof text - 1, 0);
    if (bytes < 0) fail("recv");
    text[bytes] = 0;
    if (strncmp(text, "remove@", 7) == 0 && strstr(text, "/virtio") != NULL) return 5;
  }
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct sigaction action = {.sa_handler = on_term};
  sigaction(SIGTERM, &action, NULL);
  const char *what = count > 1 ? words[1] : "";
  if (count == 2 && strcmp(what, "leave") == 0) return leave();
  if (count == 2 && strcmp(what, "random") == 0) return draw();
  if (count == 3 && strcmp(what, "collect") == 0) collect(words[2]);
  if (count != 4) return 2;
  if (strcmp(what, "lock") == 0) return lock(words[2], words[3], 1);
  if (strcmp(what, "try") == 0) return lock(words[2], words[3], 0);
  return talk(strcmp(what, "serve") == 0, words[2], words[3]);
}
