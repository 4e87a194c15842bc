import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { NetworkNamespace } from '../../../support/host/network-namespace.ts'

/**
 * Makes the tap of its first argument as QEMU would, a port of the bridge of its third, and writes a frame with a number into it
 * 50 times a second. Prints `ready`, then the number of each frame that comes out of the interface of its second.
 */
const PROGRAM = `
import fcntl, os, select, socket, struct, subprocess, sys, time
tap = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH', sys.argv[1].encode(), 0x1002))
subprocess.run(['ip', 'link', 'set', sys.argv[1], 'master', sys.argv[3], 'up'], check=True)
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
out.bind((sys.argv[2], 0))
print('ready', flush=True)
number = 0
while True:
    frame = bytes.fromhex('ffffffffffff525400000002' + '88b5') + b'MARK%08d' % number + bytes(46)
    os.write(tap, frame)
    number += 1
    end = time.monotonic() + 0.02
    while (left := end - time.monotonic()) > 0 and select.select([out], [], [], left)[0]:
        data = out.recv(2048)
        at = data.rfind(b'MARK')
        if at >= 0: print(int(data[at + 4:at + 12]), flush=True)
`

/** A guest that never stops sending. */
export interface FrameSender {
  /** How many frames have come through until now. */
  readonly passed: () => number
  /** When the last one did, by this process's `now`. */
  readonly lastNs: () => bigint
  /** Its end is the tap's. */
  close(): Promise<void>
}

export async function sendFrames(
  namespace: NetworkNamespace,
  { tap, seen, bridge, now }: { tap: string; seen: string; bridge: string; now: () => bigint },
): Promise<FrameSender> {
  const [program = '', ...enter] = namespace.enter
  const argv = [...enter, '/usr/bin/python3', '-c', PROGRAM, tap, seen, bridge]
  const sender = spawn(program, argv, { stdio: ['ignore', 'pipe', 'inherit'] })
  const ready = Promise.withResolvers<void>()
  const ended = new Promise<void>((resolve) => sender.once('close', () => resolve()))
  let passed = 0
  let lastNs = 0n
  createInterface(sender.stdout).on('line', (line) => {
    if (line === 'ready') return ready.resolve()
    passed += 1
    lastNs = now()
  })
  await Promise.race([ready.promise, ended.then(() => Promise.reject(new Error('the sender has ended')))])
  return {
    passed: () => passed,
    lastNs: () => lastNs,
    close: async () => {
      sender.kill('SIGKILL')
      await ended
    },
  }
}
