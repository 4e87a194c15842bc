// An agent with the streams of processes that dies at any moment. Arguments: the addon's folder, the channel to the test,
// the keys of processes with and without a terminal, and NAME=FD of stored descriptors.
import { flushCompileCache } from 'node:module'
import type { StoredBytes } from '../../../src/base/stored-bytes.ts'
import { restoreStdio } from '../../../src/handlers/stdio/restore-stdio.ts'
import type { Stdio } from '../../../src/handlers/stdio/stdio.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import { loadNative } from '../../../src/os/native.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import type { DescriptorStore } from '../../../src/os/supervisor/supervisor.ts'
import { numbered } from '../../support/handlers/call.ts'

// A compile cache makes later agents start faster.
flushCompileCache()
const [folder = '', channelText, terminals = '', others = '', ...inherited] = process.argv.slice(2)
const native = loadNative(folder)
const channel = Number(channelText)
native.setNonBlocking(channel, true)
const streams = linuxStreams(native)
const stored = new Map(
  inherited.map((one): [string, number] => [one.replace(/=.*/, ''), Number(one.replace(/.*=/, ''))]),
)

const descriptors: DescriptorStore = {
  take: (name) => {
    const fd = stored.get(name)
    stored.delete(name)
    return fd
  },
  handOver: (name, fd) => stored.set(name, fd),
  names: () => [...stored.keys()],
  store: async (name, fd) => tell(`store ${name}`, fd),
  storeAll: (all) => {
    for (const [name, fd] of Object.entries(all)) tell(`store ${name}`, fd)
  },
  remove: async (...names) => {
    for (const name of names) tell(`remove ${name}`)
  },
  drop: (...names) => {
    for (const name of names) tell(`remove ${name}`)
  },
}

const os = { clock: linuxClock(native), streams, descriptors }
const restored = new Map<string, Stdio>()
for (const [keys, hasTerminal] of [
  [terminals, true],
  [others, false],
] as const) {
  for (const key of keys.split(',').filter((one) => one !== '')) {
    restored.set(key, restoreStdio(os, { key, hasTerminal, pipeSizeBytes: 0 }))
  }
}
const numbers = [...restored].flatMap(([key, stdio]) => stdio.taken.map(([number]) => `${key}:${number}`))
tell(`restored ${numbers.join(' ')}`)
for (;;) {
  await streams.readable(channel)
  const message = native.recvMessage(channel, 65_536)
  if (typeof message === 'number') continue
  if (message.data.length === 0) process.exit(0)
  serve(message.data.toString('latin1'), message.fds[0])
}

function tell(text: string, fd?: number): void {
  const sent = native.sendMessage(channel, Buffer.from(text, 'latin1'), fd)
  if (sent < 0) throw new Error(`not sent: ${text.slice(0, 40)}: ${sent}`)
}

/**
 * `settled KEY NUMBER OUTCOME`, `read KEY NUMBER LENGTH`, `write KEY NUMBER DATA`, `stored KEY NUMBER LENGTH` with the
 * file of the data, `end KEY`.
 */
function serve(message: string, file: number | undefined): void {
  const [, what, key = '', number = '', rest = ''] = /^(\w+) (\w+) ?(\d*) ?(.*)$/s.exec(message) ?? []
  const stdio = restored.get(key)
  if (stdio === undefined) throw new Error(`no process of ${message}`)
  if (what === 'settled') {
    const [, taken] = stdio.taken.find(([one]) => one === BigInt(number)) ?? []
    if (rest === 'written') taken?.delivered()
    else taken?.dropped()
    tell(`confirmed ${key} ${number}`)
  }
  if (what === 'read') void read(stdio, key, number, Number(rest))
  if (what === 'write') void write(stdio, key, number, Buffer.from(rest, 'latin1'))
  if (what === 'stored' && file !== undefined) {
    const data = { length: Number(rest), place: { fd: file, offset: 0 } }
    const read = () => streams.readAt(file, 0, data.length)
    void write(stdio, key, number, { ...data, read }).then(() => streams.close(file))
  }
  if (what === 'end') void stdio.stdin.end().then(() => tell(`ended ${key}`))
}

async function read({ stdout }: Stdio, key: string, number: string, length: number): Promise<void> {
  const output = await stdout.read(length, numbered(BigInt(number)))
  tell(`read ${key} ${number} ${Buffer.from(output.read()).toString('latin1')}`)
  output.delivered()
  tell(`confirmed ${key} ${number}`)
}

async function write(
  { stdin }: Stdio,
  key: string,
  number: string,
  data: Uint8Array | StoredBytes,
): Promise<void> {
  const { delivered } = await stdin.write(data, numbered(BigInt(number)))
  tell(`written ${key} ${number}`)
  delivered()
  tell(`confirmed ${key} ${number}`)
}
