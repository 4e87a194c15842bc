// Preloaded into an agent (NODE_OPTIONS). The agent that finds a number in the file `plan` of MICROVM_FREEZES dies at the step
// with this number. A step is the moment before or after a command to vminit about a freeze.
import fs from 'node:fs'
import { join } from 'node:path'

type Callable = (this: unknown, ...words: unknown[]) => unknown

const CHANNEL = 3
/** HOLD_FILE_SYSTEM and THAW (docs/vminit.md). */
const [FIRST_KIND, FREEZE, LAST_KIND] = [27, 30, 31]
const folder = process.env.MICROVM_FREEZES ?? ''
const plan = join(folder, 'plan')
let step = 0
const commands = new Set<string>()

function dieAt(what: string): void {
  if (!fs.existsSync(plan)) return
  step += 1
  if (step !== Number(fs.readFileSync(plan, 'utf8'))) return
  fs.unlinkSync(plan)
  fs.writeFileSync(join(folder, 'died'), what)
  process.kill(process.pid, 'SIGKILL')
}

function stepOf([target, data]: readonly unknown[]): string | undefined {
  if (!fs.existsSync(plan)) commands.clear()
  if (!(data instanceof Uint8Array)) return undefined
  const kind = target === CHANNEL && data.length >= 8 ? Buffer.from(data).readUInt32LE(4) : 0
  if (kind < FIRST_KIND || kind > LAST_KIND) return undefined
  // On v1 the agent repeats the freeze of a cgroup until all processes are frozen.
  const command = Buffer.from(data).toString('latin1')
  if (kind === FREEZE && commands.has(command)) return undefined
  commands.add(command)
  return `command ${kind}`
}

function stepped(call: Callable): Callable {
  return (...words) => {
    const what = stepOf(words)
    if (what === undefined) return call(...words)
    dieAt(`before ${what}`)
    const result = call(...words)
    if (result instanceof Promise) return result.finally(() => dieAt(`after ${what}`))
    dieAt(`after ${what}`)
    return result
  }
}

const own: object = process
const load: Callable = Reflect.get(own, 'dlopen')
process.dlopen = (holder: object, ...words: readonly unknown[]) => {
  load.call(process, holder, ...words)
  const addon: object = Reflect.get(holder, 'exports')
  const copy = Object.fromEntries(
    Object.getOwnPropertyNames(addon).map((name) => [name, Reflect.get(addon, name)]),
  )
  for (const name of ['sendFd', 'write']) copy[name] = stepped(copy[name])
  Reflect.set(holder, 'exports', copy)
}
