// A thread that is ended while it waits: with two watches of one descriptor, and a relay that has nothing to do.
import { dirname } from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { resultOf } from '../../../src/os/errors.ts'
import { loadNative } from '../../../src/os/native.ts'

const native = loadNative(dirname(String(workerData)))
const [one, other] = resultOf('open', 'a socket pair', native.socketPair())
native.watchFd(one, 'read', () => {})
native.watchFd(one, 'read', () => {})
native.watchFd(other, 'read', () => {})
const [source] = resultOf('open', 'a socket pair', native.socketPair())
const [, target] = resultOf('open', 'a pipe', native.pipe())
native.relayStart(source, target, () => {})
parentPort?.postMessage('waiting')
