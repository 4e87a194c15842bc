import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { NetworkNamespace } from '../../../support/host/network-namespace.ts'
import { endChild } from '../../../support/processes.ts'

/** Makes the tap of its first argument as QEMU would, a port of the bridge of its second, and writes a frame 50 times a second. */
const SENDER = `
import fcntl, os, struct, subprocess, sys, time
tap = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH', sys.argv[1].encode(), 0x1002))
subprocess.run(['ip', 'link', 'set', sys.argv[1], 'master', sys.argv[2], 'up'], check=True)
while True:
    os.write(tap, bytes.fromhex('ffffffffffff525400000002' + '88b5') + b'MARK' + bytes(46))
    time.sleep(0.02)
`

/** Prints a line for each such frame that comes out of the interface of its first argument. */
const WATCHER = `
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
out.bind((sys.argv[1], 0))
print('ready', flush=True)
while True:
    if out.recv(2048)[14:18] == b'MARK': print('frame', flush=True)
`

/** A guest that never stops sending, in a network namespace. Its end is the tap's. */
export function senderArgv(
  namespace: Pick<NetworkNamespace, 'enter'>,
  tap: string,
  bridge: string,
): readonly [string, ...string[]] {
  const [program = '', ...argv] = [...namespace.enter, '/usr/bin/python3', '-c', SENDER, tap, bridge]
  return [program, ...argv]
}

/** What comes out of the other end of a bridge's port. */
export interface FrameWatcher {
  readonly frames: () => number
  /** When the last one came, by `now`. */
  readonly lastNs: () => bigint
  close(): Promise<void>
}

export async function watchFrames(
  namespace: NetworkNamespace,
  seen: string,
  now: () => bigint,
): Promise<FrameWatcher> {
  const [program = '', ...argv] = [...namespace.enter, '/usr/bin/python3', '-c', WATCHER, seen]
  const watcher: ChildProcess = spawn(program, argv, { stdio: ['ignore', 'pipe', 'inherit'] })
  let frames = -1
  let lastNs = 0n
  if (watcher.stdout === null) throw new Error('no output')
  const lines = createInterface(watcher.stdout).on('line', () => {
    frames += 1
    lastNs = now()
  })
  await once(lines, 'line')
  return { frames: () => frames, lastNs: () => lastNs, close: () => endChild(watcher, 'SIGKILL') }
}

/** A bridge with a port whose other end is `seen0`. */
export function withBridge(namespace: NetworkNamespace): void {
  namespace.ip('link add br0 up type bridge mcast_snooping 0')
  namespace.ip('link add out0 up master br0 type veth peer name seen0')
  namespace.ip('link set seen0 up')
}
