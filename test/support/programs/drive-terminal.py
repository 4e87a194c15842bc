"""Runs `microvm run -it sh` on a terminal of its own: argv[1] is the tool. Exits 0 when it behaves like a terminal."""

import fcntl
import os
import pty
import signal
import struct
import sys
import termios

TIMEOUT_SECONDS = 120


def set_size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    def __init__(self, argv, rows, columns):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            set_size(0, rows, columns)
            os.execv(argv[0], argv)
        self.seen = b""

    def expect(self, text):
        """Reads until `text` appears, and forgets everything up to it."""
        wanted = text.encode()
        while wanted not in self.seen:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                chunk = b""
            if not chunk:
                sys.exit(f"the terminal closed before {text!r}; last: {self.seen[-2000:]!r}")
            self.seen += chunk
        self.seen = self.seen.split(wanted, 1)[1]

    def type(self, text):
        os.write(self.master, text.encode())


def main():
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"timeout; last: {terminal.seen[-2000:]!r}"))
    signal.alarm(TIMEOUT_SECONDS)
    terminal = Terminal([sys.argv[1], "run", "-it", "sh"], 33, 77)
    globals()["terminal"] = terminal
    # Quotes split the words that the test waits for, so that the echo of the input is not mistaken for an answer.
    terminal.type('echo "size" "$(stty size)"\n')
    terminal.expect("size 33 77")
    set_size(terminal.master, 40, 100)
    terminal.type('until [ "$(stty size)" = "40 100" ]; do sleep 0.1; done; echo re""sized\n')
    terminal.expect("resized")
    terminal.type("sh -c 'echo st\"\"arted; exec sleep 1000'\n")
    terminal.expect("started")
    terminal.type("\x03")
    terminal.type('echo al""ive $?\n')
    terminal.expect("alive 130")
    terminal.type("exit 5\n")
    while True:
        try:
            if not os.read(terminal.master, 65536):
                break
        except OSError:
            break
    _, status = os.waitpid(terminal.pid, 0)
    if os.waitstatus_to_exitcode(status) != 5:
        sys.exit(f"exit status {os.waitstatus_to_exitcode(status)} instead of 5")


main()
