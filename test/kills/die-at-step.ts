// Preloaded into an agent (NODE_OPTIONS), it kills the agent at a step: a write of state, a removal of a container's file
// or folder, or an acknowledgement to vminit or the broker. test/kills/steps.ts makes the folder MICROVM_STEPS:
// `died` lists the steps of all deaths, `replay/deaths` those of this replay, `replay/calls` the number and method of each
// of its calls; `plan` says how to choose.
import fs from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

const STATE = '/run/microvm-agent/saved/'
/** Descriptors of the channel to vminit and of the control socket (docs/vminit.md). */
const CHANNEL = 3
const CONTROL = 5
const PONG = 2
const GATE_OPENED = 25
/** Envelopes on a data socket (docs/broker.md). */
const ENVELOPE_BYTES = 32
const REQUEST = 1
const OVERSIZED = 2
const DROPPED = 4
const ANSWER = 16
const NOTHING = 17
const CONFIRM = 18
const FRAME_IN_FILE = 4
const FRAME_HEADER_BYTES = 10
/** The first bytes of a frame hold the names of its service and method. */
const HEAD_BYTES = 256
const MOST_TOLD_APART = 20
/** How many agents in a row may die before they have begun a new call. */
const MOST_AGAIN = 3
/** A signal is recorded before it is sent. One that is lost in between is not sent again (docs/reference/rpcs.md). */
const BY_DESIGN = /^after .*: write requests\/SignalProcess 1$/
/** Operations on files in memory (docs/recovery.md), and what Rename changes before it sets names. */
const CALLS = ['writeAt', 'splice', 'sendFile', 'setPosition', 'truncate', 'punchHole', 'hostnameIn']

type Callable = (this: unknown, ...words: unknown[]) => unknown

const folder = process.env.MICROVM_STEPS ?? ''
const diedFile = join(folder, 'died')
const callsFile = join(folder, 'replay/calls')
const deathsFile = join(folder, 'replay/deaths')
/** `most` limits the deaths of a replay; `chance` is the fraction of steps that `seed` chooses. */
const plan: { readonly most: number; readonly chance: number; readonly seed: number } = JSON.parse(
  fs.readFileSync(join(folder, 'plan'), 'utf8'),
)
const died = new Set(linesOf(diedFile))
const deaths = linesOf(deathsFile)
const methods = new Map<string, string>()
const calls = new Map<string, number>()
/** Of data sockets, by descriptor: what was read of an envelope and its frame, and how much is to be skipped. */
const rests = new Map<unknown, { bytes: Buffer; skip: number }>()
/** Numbers of requests that are in files which the agent has not looked at. */
const inFiles: string[] = []
for (const line of linesOf(callsFile)) count(line)

/** The latest call. Until its first new call, an agent restores and repeats the open ones: `again` and the last one's method. */
let call = deaths.length === 0 ? 'start' : `again ${methodIn(deaths.at(-1))}`
let taken = new Map<string, number>()
let isServing = false
// vminit gives up after some agents in a row that never served, and a call must be answered before its deadline.
const last = deaths.at(-1) ?? ''
const mayDieEarly = !last.startsWith('early')
const mayDieAgain = deaths.slice(-MOST_AGAIN).filter((death) => death.includes(' again ')).length < MOST_AGAIN

if (deaths.length < plan.most) {
  replace(fs, 'rmSync', ([path]) => (isState(path) ? `remove ${nameOf(path)}` : undefined))
  replace(fs, 'unlinkSync', ([path]) => removalOf('unlink', path))
  replace(fs, 'rmdirSync', ([path]) => removalOf('rmdir', path))
  const promised = { rmdir: promisify(fs.rmdir) }
  replace(promised, 'rmdir', ([path]) => removalOf('rmdir', path))
  Reflect.set(fs.rmdir, promisify.custom, promised.rmdir)
  replace(fs, 'writevSync', ([, chunks]) => (Array.isArray(chunks) ? envelopeOf(chunks[0]) : undefined))
  followReads()
  const own: object = process
  const load: Callable = Reflect.get(own, 'dlopen')
  process.dlopen = (holder: object, ...words: readonly unknown[]) => {
    load.call(process, holder, ...words)
    Reflect.set(holder, 'exports', watched(Reflect.get(holder, 'exports')))
  }
}

/** Replaces the addon's functions that are steps. */
function watched(addon: object): object {
  const copy = Object.fromEntries(
    Object.getOwnPropertyNames(addon).map((name) => [name, Reflect.get(addon, name)]),
  )
  if ('replaceFile' in copy) {
    replace(copy, 'replaceFile', writeOf)
    replace(copy, 'removeFile', ([path]) => (isState(path) ? `remove ${nameOf(path)}` : undefined))
  }
  for (const name of CALLS.filter((each) => each in copy)) replace(copy, name, () => name)
  if ('readAt' in copy) followFiles(copy)
  if ('removeFolders' in copy) removeInSteps(copy)
  if ('close' in copy) forgetClosed(copy)
  if ('sendFd' in copy) {
    replace(copy, 'sendFd', ([fd, data]) => toVminit(fd, data))
    replace(copy, 'write', ([fd, data]) => toVminit(fd, data))
    replace(copy, 'sendMessage', ([fd, data]) => (fd === CONTROL ? toBroker(data) : envelopeOf(data)))
  }
  return copy
}

/** An agent that dies before the step has written the unfinished file. */
function writeOf([unfinished, path, data]: readonly unknown[]): string | undefined {
  if (!isState(unfinished) || !isState(path) || !(data instanceof Uint8Array)) return undefined
  if (fs.existsSync(STATE)) fs.writeFileSync(unfinished, data)
  return `write ${nameOf(path)}`
}

/** Each folder is a step, as an agent dies between any two. */
function removeInSteps(addon: object): void {
  replace(addon, 'removeFolders', ([paths]) =>
    Array.isArray(paths) ? removalOf('rmdir', paths[0]) : undefined,
  )
  const removeOne: Callable = Reflect.get(addon, 'removeFolders')
  const stepped: Callable = async (paths) => {
    const errnos: Uint8Array[] = []
    for (const path of Array.isArray(paths) ? paths : []) {
      const errno = await removeOne([path])
      if (errno instanceof Uint8Array) errnos.push(errno)
    }
    return Buffer.concat(errnos)
  }
  Reflect.set(addon, 'removeFolders', stepped)
}

function forgetClosed(addon: object): void {
  const close: Callable = Reflect.get(addon, 'close')
  const followed: Callable = (fd) => {
    rests.delete(fd)
    return close(fd)
  }
  Reflect.set(addon, 'close', followed)
}

/** Begins a call when the agent reads what is behind the header of its frame. */
function followFiles(addon: object): void {
  const readAt: Callable = Reflect.get(addon, 'readAt')
  const followed: Callable = (...words) => {
    const bytes = readAt(...words)
    const isHead = words[1] === FRAME_HEADER_BYTES && bytes instanceof Uint8Array
    const number = isHead ? inFiles.shift() : undefined
    if (isHead && number !== undefined)
      begin(number, Buffer.concat([Buffer.alloc(FRAME_HEADER_BYTES), bytes]))
    return bytes
  }
  Reflect.set(addon, 'readAt', followed)
}

function replace(
  object: object,
  name: string,
  nameStep: (words: readonly unknown[]) => string | undefined,
): void {
  const original: Callable = Reflect.get(object, name)
  const stepped: Callable = function (...words) {
    const what = nameStep(words)
    if (what === undefined) return original.apply(this, words)
    const times = (taken.get(what) ?? 0) + 1
    taken.set(what, times)
    const step = `${call}: ${what} ${times}`
    dieOnce(`before ${step}`)
    const result = original.apply(this, words)
    if (result instanceof Promise) return result.finally(() => dieOnce(`after ${step}`))
    if (what === `vminit ${GATE_OPENED}`) isServing = true
    dieOnce(`after ${step}`)
    return result
  }
  Reflect.set(object, name, stepped)
}

/** Dies at a chosen step that is new. */
function dieOnce(step: string): void {
  if (died.has(step) || BY_DESIGN.test(step) || !isChosen(step)) return
  if ((!isServing && !mayDieEarly) || (isAgain() && !mayDieAgain)) return
  fs.appendFileSync(diedFile, `${step}\n`)
  fs.appendFileSync(deathsFile, `${isServing ? 'late' : 'early'}, ${step}\n`)
  process.kill(process.pid, 'SIGKILL')
}

/** Chooses only a third of the steps of restoring agents, unless all are chosen: each call has as many again. */
function isChosen(step: string): boolean {
  if (plan.chance >= 1) return true
  const chance = isAgain() ? plan.chance / 3 : plan.chance
  const mixed = [...step].reduce((sum, letter) => Math.imul(sum ^ letter.charCodeAt(0), 16777619), plan.seed)
  return (Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d) >>> 0) / 2 ** 32 < chance
}

function isAgain(): boolean {
  return call.startsWith('again ')
}

function methodIn(death: string | undefined): string {
  return /(?:before|after) (?:again )?(\w+)/.exec(death ?? '')?.[1] ?? ''
}

/** Data sockets are what the agent reads at no position. */
function followReads(): void {
  const files: object = fs
  const read: Callable = Reflect.get(files, 'readSync')
  const followed: Callable = (fd, chunk, ...words) => {
    const bytes = read(fd, chunk, ...words)
    const isSocket = words.at(-1) === null && typeof fd === 'number' && typeof bytes === 'number'
    if (isSocket && chunk instanceof Uint8Array) {
      const rest = rests.get(fd) ?? { bytes: Buffer.alloc(0), skip: 0 }
      rests.set(fd, rest)
      rest.bytes = Buffer.concat([rest.bytes, chunk.subarray(0, bytes)])
      while (readEnvelope(rest));
    }
    return bytes
  }
  Reflect.set(files, 'readSync', followed)
}

/** Takes an envelope with the present part of its frame. Returns false when there is none. */
function readEnvelope(rest: { bytes: Buffer; skip: number }): boolean {
  const skipped = Math.min(rest.skip, rest.bytes.length)
  rest.bytes = rest.bytes.subarray(skipped)
  rest.skip -= skipped
  if (rest.skip > 0 || rest.bytes.length < ENVELOPE_BYTES) return false
  const kind = numberAt(rest.bytes, 0)
  const isInFile = kind === REQUEST && (numberAt(rest.bytes, 4) & FRAME_IN_FILE) !== 0
  const isFollowed = (kind === REQUEST && !isInFile) || kind === OVERSIZED
  const frameBytes = isFollowed ? numberAt(rest.bytes, 24) : 0
  // The bytes of other sockets are no envelopes and are skipped.
  rest.skip = kind > 0 && kind <= DROPPED ? ENVELOPE_BYTES + frameBytes : Number.POSITIVE_INFINITY
  const headBytes = ENVELOPE_BYTES + Math.min(frameBytes, HEAD_BYTES)
  if (kind === REQUEST && rest.bytes.length < headBytes) {
    rest.skip = 0
    return false
  }
  const number = rest.bytes.readBigUInt64LE(8).toString()
  if (isInFile) inFiles.push(number)
  else if (kind === REQUEST) begin(number, rest.bytes.subarray(ENVELOPE_BYTES, headBytes))
  return true
}

/** A call that was open when an agent died arrives again. */
function begin(number: string, frame: Buffer): void {
  if (methods.has(number)) return
  const line = `${number} ${methodOf(frame)}`
  fs.appendFileSync(callsFile, `${line}\n`)
  call = count(line)
  taken = new Map()
}

function count(line: string): string {
  const [number = '', method = ''] = line.split(' ')
  const times = (calls.get(method) ?? 0) + 1
  calls.set(method, times)
  methods.set(number, method)
  // The number of reads until a stream's end varies.
  return `${method} ${Math.min(times, MOST_TOLD_APART)}`
}

function methodOf(frame: Buffer): string {
  const serviceBytes = frame[11] ?? 0
  const methodBytes = frame[13 + serviceBytes] ?? 0
  return frame.toString('latin1', 14 + serviceBytes, 14 + serviceBytes + methodBytes)
}

function isState(path: unknown): path is string {
  return typeof path === 'string' && path.startsWith(STATE)
}

/** Steps of a container's removal: its cgroups, its runtime state and its bundle. */
function removalOf(call: string, path: unknown): string | undefined {
  if (typeof path !== 'string') return undefined
  const [, place] =
    /^(?:\/sys\/fs\/cgroup|\/proc\/self\/fd\/\d+|\/run\/kata-containers)\/(.*)$/.exec(path) ?? []
  return place === undefined ? undefined : `${call} ${place.replace(/\d{2,}/g, 'N')}`
}

function nameOf(path: string): string {
  const name = path.slice(STATE.length)
  if (name.startsWith('storages/')) return name.replace(/\d+/, 'N')
  if (name.includes('/execs/')) return name.replace(/p\d+$/, 'N')
  return name.replace(/\d{6,}/, (number) => methods.get(number) ?? 'N')
}

function toVminit(fd: unknown, data: unknown): string | undefined {
  return fd === CHANNEL ? `vminit ${numberAt(data, 4)}` : undefined
}

/** The answer to a ping is no step. */
function toBroker(data: unknown): string | undefined {
  const kind = numberAt(data, 0)
  return kind === PONG ? undefined : `control ${kind}`
}

/** An answer may follow confirmations. */
function envelopeOf(data: unknown): string | undefined {
  if (!(data instanceof Uint8Array)) return undefined
  const kind = numberAt(data, 0)
  const next = kind === CONFIRM ? envelopeOf(data.subarray(ENVELOPE_BYTES)) : undefined
  if (kind === CONFIRM) return next ?? 'confirm'
  if (kind === NOTHING) return 'nothing'
  if (kind !== ANSWER) return undefined
  const number = Buffer.from(data.subarray(8, 16)).readBigUInt64LE().toString()
  return `answer ${methods.get(number)}`
}

function numberAt(data: unknown, offset: number): number {
  if (!(data instanceof Uint8Array) || data.length < offset + 4) return 0
  return new DataView(data.buffer, data.byteOffset).getUint32(offset, true)
}

function linesOf(file: string): readonly string[] {
  return fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').filter(Boolean) : []
}
