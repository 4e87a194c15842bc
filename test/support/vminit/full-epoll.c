/* epoll_ctl(2) that adds nothing while the file $FULL_EPOLL exists, as when the user watches as much as allowed. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
  if (operation == EPOLL_CTL_ADD && access(getenv("FULL_EPOLL"), F_OK) == 0) {
    errno = ENOSPC;
    return -1;
  }
  return __real_epoll_ctl(epoll, operation, fd, event);
}
