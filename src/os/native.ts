import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { AgentError } from '../base/errors.ts'
import { fromNodeError } from './errors.ts'
import type { Fd } from './streams/streams.ts'

/**
 * The addon (native/addon): system calls, readiness of descriptors, and the relay thread. It has no policy.
 * A number below zero is -errno; every descriptor it makes is O_CLOEXEC.
 */
export interface Native {
  /** pipe2(2): the reading and the writing end, both blocking. */
  pipe(): readonly [Fd, Fd] | number
  /** F_GETPIPE_SZ; -EBADF for what is no pipe. */
  pipeSize(fd: Fd): number
  /** F_SETPIPE_SZ, which makes a larger pipe smaller too: the size it has now. */
  setPipeSize(fd: Fd, sizeBytes: number): number
  setNonBlocking(fd: Fd, nonBlocking: boolean): number
  duplicate(fd: Fd): Fd
  /** One read(2), of at most 64 KiB where the kernel does not tell before how much there is; empty at EOF. */
  read(fd: Fd, maxBytes: number): Buffer | number
  /** One write(2). */
  write(fd: Fd, data: Uint8Array): number
  /** close(2); -EBUSY while the descriptor is watched. */
  close(fd: Fd): number

  /** A non-blocking eventfd(2), at 0. */
  eventFd(): Fd
  /** AF_UNIX stream pair, blocking. */
  socketPair(): readonly [Fd, Fd] | number
  /** A non-blocking listening AF_VSOCK socket; cid 4294967295 is any. */
  vsockListen(cid: number, port: number, backlog: number): Fd
  /**
   * A non-blocking AF_VSOCK socket on its way: when it is writable, `socketError` tells whether it arrived, which is
   * ETIMEDOUT after `timeoutMs`.
   */
  vsockConnect(cid: number, port: number, timeoutMs: number): Fd
  vsockPeer(fd: Fd): { readonly cid: number; readonly port: number } | number
  /**
   * A non-blocking AF_NETLINK socket of NETLINK_ROUTE with extended acknowledgements: `write` hands requests to the
   * kernel, which has answered them when it returns; `read` gives the answers.
   */
  netlinkRoute(): Fd
  /** SO_ERROR: 0 or -errno. */
  socketError(fd: Fd): number
  /** A non-blocking listening AF_UNIX stream socket at a path. */
  unixListen(path: string, backlog: number): Fd
  /** A non-blocking AF_UNIX stream socket connected to a path; -EAGAIN when the listener's queue is full. */
  unixConnect(path: string): Fd
  /** The path that the peer of an AF_UNIX socket is bound to, empty when it has none. */
  unixPeer(fd: Fd): string | number
  /** accept4(2): a non-blocking socket. */
  accept(fd: Fd): Fd
  /** A non-blocking NETLINK_KOBJECT_UEVENT socket in the kernel's group, with a receive buffer of this size. */
  ueventListen(receiveBufferBytes: number): Fd
  /**
   * recvmmsg(2): the next few events as text, each ended by two NULs; -EAGAIN when there are none. Those that were not sent by
   * the kernel itself are left out. What is not UTF-8 becomes U+FFFD.
   */
  ueventReceive(fd: Fd): string | number
  /** recvmsg(2): the one descriptor of an SCM_RIGHTS message; -ENODATA when there was none. */
  receiveFd(fd: Fd): Fd

  /** mount(2) on a thread of libuv's pool, for it may wait for a disk. `refuseLinks`: -ELOOP for one on the way to the target. */
  mount(
    source: string,
    target: string,
    type: string,
    flags: number,
    data: string,
    refuseLinks: boolean,
  ): Promise<number>
  /** umount2(2), on a thread likewise. */
  unmount(target: string, flags: number): Promise<number>
  /** open_tree(2) in the mount namespace of one process and move_mount(2) in that of another, on a thread likewise. */
  cloneMount(fromPid: number, source: string, toPid: number, target: string): Promise<number>

  /** swapon(2), on a thread likewise. */
  swapOn(path: string, flags: number): Promise<number>
  /**
   * ioctl(2), on a thread likewise, for requests that hold the size of their argument (linux/ioctl.h). The kernel reads
   * and writes `argument`; one that is too short is -EINVAL.
   */
  ioctl(fd: Fd, request: number, argument: Uint8Array): Promise<number>

  /** A whole file, on a thread likewise. */
  readFile(path: string): Promise<Buffer | number>
  /** Makes a file of these bytes, or puts them in the place of what it holds, on a thread likewise. */
  writeFile(path: string, data: Uint8Array, mode: number): Promise<number>

  /** openat2(2); `directory` is a descriptor or -100 (AT_FDCWD). Bytes are for a path that is not UTF-8. */
  openAt2(directory: Fd, path: string | Buffer, options: OpenHow): Fd
  /** openat2(2) of what is at a path and no symbolic link on the way, on a thread: 0, or -ELOOP and others. */
  reachWithoutLinks(path: string): Promise<number>
  /**
   * Whether the numbers of a block device node are those (`254:16`) in a file of sysfs: 1 or 0, also when there is no such
   * node or file. Not on a thread: both are in memory, and no driver is asked.
   */
  isBlockNodeOf(node: string, numbers: string): number
  /** mknod(2); `mode` includes the file type. */
  makeNode(path: string, mode: number, major: number, minor: number): number

  /**
   * Executes a program (execve(2), on a thread of libuv's pool) in a session of its own, with the limits, signals and
   * oom_score_adj that the system gives a process: its pid, and a descriptor (pidfd_open(2)) that is readable once it
   * has ended. It is our child, and `reap` has to be called then. The command begins with the program's name. For a
   * stream, -1 is /dev/null.
   */
  spawn(
    program: string,
    command: readonly string[],
    environment: readonly string[],
    directory: string,
    stdin: Fd,
    stdout: Fd,
    stderr: Fd,
  ): Promise<readonly [number, Fd] | number>
  /** waitpid(2) of a child: its wait status; -EAGAIN while it lives. */
  reap(pid: number): number

  /** CLOCK_BOOTTIME. */
  boottimeNs(): bigint
  /** setrlimit(RLIMIT_NOFILE). */
  setFileLimit(soft: number, hard: number): number
  setHostname(name: string): number
  /** clock_settime(CLOCK_REALTIME). */
  setTime(seconds: number, nanoseconds: number): number
  /** TIOCSWINSZ. */
  setWindowSize(fd: Fd, rows: number, columns: number): number

  /**
   * Calls back once, when the descriptor is ready (also for EOF, error and hang-up), then forgets the watch.
   * A descriptor may be watched any number of times. Gives the watch's number.
   */
  watchFd(fd: Fd, direction: 'read' | 'write', ready: () => void): number
  /** Forgets a watch, whose callback is then never called; 0, or -ENOENT when it is over. */
  cancelWatch(fd: Fd, watch: number): number

  /** Begins to relay and owns both descriptors from then on; calls back once, when it is over. Gives the relay's number. */
  relayStart(source: Fd, target: Fd, ended: (bytes: bigint, errno: number) => void): number
  /** Ends a relay as after EOF once what its source holds by then is through; nothing happens when it is over already. */
  relayDrain(relay: number): void
  /** Ends a relay with ECANCELED; nothing happens when it is over already. */
  relayStop(relay: number): void
}

/** struct open_how of openat2(2). */
export interface OpenHow {
  readonly flags: number
  readonly mode: number
  readonly resolve: number
}

const ADDON = 'addon.node'

/**
 * The folder with the agent's siblings (addon.node, vminit, …): the one of the running file, as in the guest, or else
 * `build/agent` of the source tree that the file is in.
 */
export function findAgentFolder(runningFile: string): string {
  const own = dirname(runningFile)
  if (existsSync(join(own, ADDON))) return own
  for (let folder = own; folder !== dirname(folder); folder = dirname(folder)) {
    const built = join(folder, 'build', 'agent')
    if (existsSync(join(built, ADDON))) return built
  }
  throw new AgentError(
    'FAILED_PRECONDITION',
    `no ${ADDON} beside ${runningFile} nor in a build/agent above it`,
  )
}

/** Loads addon.node of the agent's folder. */
export function loadNative(agentFolder: string): Native {
  const path = join(agentFolder, ADDON)
  const holder: { exports: unknown } = { exports: {} }
  try {
    process.dlopen(holder, path)
  } catch (error) {
    throw fromNodeError('load', path, error)
  }
  // The addon is built from this project's own sources, and tests call the functions that Native names.
  return holder.exports as Native
}
