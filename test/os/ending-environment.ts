// Terminates a thread that waits, with two watches on one descriptor, a socket that is read, and an idle relay.
import { parentPort, workerData } from 'node:worker_threads'
import { unwrap } from '../../src/os/errors.ts'
import { loadNative } from '../../src/os/native.ts'

const native = loadNative(String(workerData))
const [one, other] = unwrap('open', 'a socket pair', native.socketPair())
native.watchFd(one, 'read', () => {})
native.watchFd(one, 'read', () => {})
native.watchFd(other, 'read', () => {})
native.startReading(unwrap('open', 'a socket pair', native.socketPair())[0], () => {})
const [source] = unwrap('open', 'a socket pair', native.socketPair())
const [, target] = unwrap('open', 'a pipe', native.pipe())
native.relayStart(
  source,
  target,
  -1,
  0,
  1000,
  -1,
  0,
  -1,
  -1,
  () => {},
  () => {},
)
parentPort?.postMessage('waiting')
