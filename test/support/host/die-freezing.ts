// Preloaded into an agent (NODE_OPTIONS). The agent that finds a number in the file `plan` of MICROVM_FREEZES dies at the step
// with this number. A step is the moment before or after a command to vminit about a freeze, or a write to a freeze file.
import fs from 'node:fs'
import { join } from 'node:path'

type Callable = (this: unknown, ...words: unknown[]) => unknown

const CHANNEL = 3
/** HOLD_FILE_SYSTEM and THAW (docs/vminit.md). */
const [FIRST_KIND, LAST_KIND] = [27, 31]
const folder = process.env.MICROVM_FREEZES ?? ''
const plan = join(folder, 'plan')
let step = 0
const written = new Set<unknown>()

function dieAt(what: string): void {
  if (!fs.existsSync(plan)) return
  step += 1
  if (step !== Number(fs.readFileSync(plan, 'utf8'))) return
  fs.unlinkSync(plan)
  fs.writeFileSync(join(folder, 'died'), what)
  process.kill(process.pid, 'SIGKILL')
}

function stepOf(name: string, [target, data]: readonly unknown[]): string | undefined {
  if (!fs.existsSync(plan)) written.clear()
  if (!(data instanceof Uint8Array)) return undefined
  // On v1 the agent repeats the write until all processes are frozen.
  if (name === 'writeFile' && written.has(target)) return undefined
  if (name === 'writeFile') written.add(target)
  if (name === 'writeFile')
    return `${target}`.endsWith('/freezer.state') ? `write ${Buffer.from(data)}` : undefined
  const kind = target === CHANNEL && data.length >= 8 ? Buffer.from(data).readUInt32LE(4) : 0
  return kind >= FIRST_KIND && kind <= LAST_KIND ? `command ${kind}` : undefined
}

function stepped(name: string, call: Callable): Callable {
  return (...words) => {
    const what = stepOf(name, words)
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
  for (const name of ['sendFd', 'write', 'writeFile']) copy[name] = stepped(name, copy[name])
  Reflect.set(holder, 'exports', copy)
}
