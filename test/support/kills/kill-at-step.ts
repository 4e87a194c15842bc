// Preloaded into an agent (NODE_OPTIONS). While the file `plan` of MICROVM_KILL_STEPS exists, the file `steps` lists the
// agent's steps: a write of state, a command to vminit, a host name of a namespace, an answer. Before and after the step with the
// plan's number, the plan is removed, and SIGKILL is sent to the plan's victim.
import fs from 'node:fs'
import { join } from 'node:path'

type Callable = (this: unknown, ...words: unknown[]) => unknown

interface Plan {
  readonly step: number
  /** A process; 0 is the agent itself. */
  readonly victim: number
  /** Only steps whose names match count. */
  readonly only: string
}

const STATE = '/run/microvm-agent/saved/'
/** The descriptor of the channel to vminit (docs/vminit.md), and its command to freeze. */
const CHANNEL = 3
const FREEZE = 30
/** The kind of an envelope on a data socket (docs/broker.md). */
const ANSWER = 16
const folder = process.env.MICROVM_KILL_STEPS ?? ''
const planFile = join(folder, 'plan')
let taken = 0
const freezes = new Set<string>()

function plan(): Plan | undefined {
  if (fs.existsSync(planFile)) return JSON.parse(fs.readFileSync(planFile, 'utf8'))
  taken = 0
  freezes.clear()
  return undefined
}

function killAt(what: string): void {
  const planned = plan()
  if (planned === undefined || !new RegExp(planned.only).test(what)) return
  taken += 1
  fs.appendFileSync(join(folder, 'steps'), `${what}\n`)
  if (taken !== planned.step) return
  fs.unlinkSync(planFile)
  try {
    process.kill(planned.victim === 0 ? process.pid : planned.victim, 'SIGKILL')
  } catch {
    // It has ended meanwhile.
  }
}

function commandOf(data: Uint8Array): string | undefined {
  const kind = numberAt(data, 4)
  const command = Buffer.from(data).toString('latin1')
  // On v1 the agent repeats the freeze of a cgroup until all processes are frozen.
  if (kind === FREEZE && freezes.has(command)) return undefined
  if (kind === FREEZE) freezes.add(command)
  return `command ${kind}`
}

function answerOf(data: unknown): string | undefined {
  return numberAt(data, 0) === ANSWER ? 'answer' : undefined
}

function numberAt(data: unknown, offset: number): number {
  if (!(data instanceof Uint8Array) || data.length < offset + 4) return 0
  return new DataView(data.buffer, data.byteOffset).getUint32(offset, true)
}

function replace(
  object: object,
  name: string,
  nameStep: (words: readonly unknown[]) => string | undefined,
): void {
  const original: Callable = Reflect.get(object, name)
  const stepped: Callable = function (...words) {
    const what = plan() === undefined ? undefined : nameStep(words)
    if (what === undefined) return original.apply(this, words)
    killAt(`before ${what}`)
    const result = original.apply(this, words)
    if (result instanceof Promise) return result.finally(() => killAt(`after ${what}`))
    killAt(`after ${what}`)
    return result
  }
  Reflect.set(object, name, stepped)
}

replace(fs, 'writevSync', ([, chunks]) => (Array.isArray(chunks) ? answerOf(chunks[0]) : undefined))
const own: object = process
const load: Callable = Reflect.get(own, 'dlopen')
process.dlopen = (holder: object, ...words: readonly unknown[]) => {
  load.call(process, holder, ...words)
  const addon: object = Reflect.get(holder, 'exports')
  const copy = Object.fromEntries(
    Object.getOwnPropertyNames(addon).map((name) => [name, Reflect.get(addon, name)]),
  )
  for (const name of ['sendFd', 'write']) {
    replace(copy, name, ([fd, data]) =>
      fd === CHANNEL && data instanceof Uint8Array ? commandOf(data) : undefined,
    )
  }
  replace(copy, 'replaceFile', ([, path]) =>
    typeof path === 'string' && path.startsWith(STATE) ? `write ${path.slice(STATE.length)}` : undefined,
  )
  replace(copy, 'sendMessage', ([, data]) => answerOf(data))
  replace(copy, 'hostnameIn', () => 'hostnameIn')
  Reflect.set(holder, 'exports', copy)
}
