import { once } from 'node:events'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { jsonLogger } from '../../../../../src/base/log.ts'
import { readConfiguration } from '../../../../../src/host/service/configuration.ts'
import { startDaemon } from '../../../../../src/host/service/daemon.ts'

/*
 * `./microvm daemon` of a test, by whose gate (step-gate.ts) it asks before each step of a move, and is told its clock.
 * stepping-daemon.ts daemon --state FOLDER --config FILE --gate SOCKET
 */

const [, , , , state = '', , config = '', , gate = ''] = process.argv
const [now, { timeOrigin }] = [Date.now, performance]
const socket = connect(gate)
const clockTold = Promise.withResolvers<void>()
const waiting: (() => void)[] = []
createInterface({ input: socket }).on('line', (line) => {
  const [word, movedMs = '0'] = line.split(' ')
  if (word !== 'clock') return waiting.shift()?.()
  Date.now = () => now() + Number(movedMs)
  Object.defineProperty(performance, 'timeOrigin', {
    value: timeOrigin + Number(movedMs),
    configurable: true,
  })
  clockTold.resolve()
})
await clockTold.promise
const ended = once(process, 'SIGTERM')
const daemon = await startDaemon({
  ...{ stateFolder: state, configuration: await readConfiguration(config), mock: false },
  acceleration: process.env.MICROVM_ACCEL,
  atStep: async (operation, step) => {
    const begins = Promise.withResolvers<void>()
    waiting.push(begins.resolve)
    socket.write(`${operation} ${step}\n`)
    await begins.promise
  },
  log: jsonLogger({
    sink: (line) => process.stderr.write(line),
    level: () => 'info',
    version: '',
    pid: process.pid,
    program: { name: 'microvm', source: 'microvm' },
  }),
})
await ended
await daemon.close()
socket.destroy()
