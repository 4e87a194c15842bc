// Preloaded into an agent (NODE_OPTIONS), which then kills itself at a step: at a write of its state, or at a message that
// acknowledges something to vminit or to the broker. The folder MICROVM_STEPS has what a test writes:
// `plan` has a line `NUMBER before|after` for each agent that is to die, one after the other, and `list` asks for `steps`,
// a line for each step.
import fs from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'

const STATE = '/run/microvm-agent/saved/'
/** The agent's ends of the channel to vminit and of the control socket (docs/vminit.md). */
const CHANNEL = 3
const CONTROL = 5
/** What an agent sends on a data socket (docs/broker.md). */
const ENVELOPES = new Map([
  [16, 'answer'],
  [17, 'nothing'],
  [18, 'confirm'],
])
/** Steps of the files in memory (docs/stdio.md). */
const JOURNAL = ['writeAt', 'splice', 'setPosition', 'truncate', 'punchHole']

type Callable = (this: unknown, ...words: unknown[]) => unknown

const folder = process.env.MICROVM_STEPS ?? ''
const plan = join(folder, 'plan')
const isListing = fs.existsSync(join(folder, 'list'))
const { number: deathAt, side } = takePlan()
let count = 0

if (isListing || deathAt > 0) {
  replace(fs, 'renameSync', ([, to]) => (isState(to) ? `write ${nameOf(to)}` : undefined))
  replace(fs, 'rmSync', ([path]) => (isState(path) ? `remove ${nameOf(path)}` : undefined))
  replace(net.Socket.prototype, '_writev', ([chunks]) => {
    const [first] = Array.isArray(chunks) ? chunks : []
    return envelopeOf(first?.chunk)
  })
  replace(net.Socket.prototype, '_write', ([chunk]) => envelopeOf(chunk))
  const own: object = process
  const load: Callable = Reflect.get(own, 'dlopen')
  process.dlopen = (holder: object, ...words: readonly unknown[]) => {
    load.call(process, holder, ...words)
    Reflect.set(holder, 'exports', watched(Reflect.get(holder, 'exports')))
  }
}

/** The first line of the plan, which it takes out. */
function takePlan(): { readonly number: number; readonly side: string } {
  const lines = fs.existsSync(plan) ? fs.readFileSync(plan, 'utf8').split('\n').filter(Boolean) : []
  const [number = '0', side = ''] = lines.shift()?.split(' ') ?? []
  if (number !== '0') fs.writeFileSync(plan, lines.join('\n'))
  return { number: Number(number), side }
}

/** The addon's functions, of which some are steps. */
function watched(addon: object): object {
  const copy = Object.fromEntries(
    Object.getOwnPropertyNames(addon).map((name) => [name, Reflect.get(addon, name)]),
  )
  for (const name of JOURNAL.filter((each) => each in copy)) replace(copy, name, () => name)
  if ('sendFd' in copy) {
    replace(copy, 'sendFd', ([fd, data]) => toVminit(fd, data))
    replace(copy, 'write', ([fd, data]) => toVminit(fd, data))
    replace(copy, 'sendMessage', ([fd, data]) =>
      fd === CONTROL ? `control ${numberAt(data, 0)}` : undefined,
    )
  }
  return copy
}

/** Makes a step of each call that `nameStep` has a name for. */
function replace(
  object: object,
  name: string,
  nameStep: (words: readonly unknown[]) => string | undefined,
): void {
  const original: Callable = Reflect.get(object, name)
  const stepped: Callable = function (...words) {
    const what = nameStep(words)
    if (what === undefined) return original.apply(this, words)
    count += 1
    if (isListing) fs.appendFileSync(join(folder, 'steps'), `${what}\n`)
    if (count === deathAt && side === 'before') die(what)
    const result = original.apply(this, words)
    if (count === deathAt && side === 'after') die(what)
    return result
  }
  Reflect.set(object, name, stepped)
}

function die(what: string): void {
  fs.appendFileSync(join(folder, 'deaths'), `${side} ${what}\n`)
  process.kill(process.pid, 'SIGKILL')
}

function isState(path: unknown): path is string {
  return typeof path === 'string' && path.startsWith(STATE)
}

/** The name of a state file, without what differs from run to run. */
function nameOf(path: string): string {
  return path.slice(STATE.length).replace(/\d{6,}/, 'N')
}

function toVminit(fd: unknown, data: unknown): string | undefined {
  return fd === CHANNEL ? `vminit ${numberAt(data, 4)}` : undefined
}

function envelopeOf(chunk: unknown): string | undefined {
  return ENVELOPES.get(numberAt(chunk, 0))
}

function numberAt(data: unknown, offset: number): number {
  if (!(data instanceof Uint8Array) || data.length < offset + 4) return 0
  return new DataView(data.buffer, data.byteOffset).getUint32(offset, true)
}
