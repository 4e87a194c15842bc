import { spawn } from 'node:child_process'
import { webcrypto } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { neverAborted } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { Machine, MachineDevice, Scalar } from '../machine/machine.ts'
import { pathOf, shown } from '../spec/component-path.ts'
import { noSuchProgram, placesOf } from './find-program.ts'
import type { Acceleration } from './host.ts'
import { machineDeviceParts, typeOf } from './machine/machine-arguments.ts'

/** What a QEMU says of itself. */
export interface Capabilities {
  readonly version: string
  readonly machines: ReadonlySet<string>
  readonly cpuModels: readonly string[]
  /** Those of which this host lacks no feature. */
  readonly wholeCpuModels: readonly string[]
  /** The names of all types of devices. */
  readonly devices: ReadonlySet<string>
  /** The features of CPUs that QEMU gives on this host. */
  readonly cpuFeatures: ReadonlySet<string>
}

/** A QEMU that can be asked. Answers are kept until its file has other content. */
export interface AskedQemu {
  capabilities(): Promise<Capabilities>
  /** The names of the properties of types of devices that this QEMU has, in the order of `types`. */
  propertiesOf(types: readonly string[]): Promise<readonly ReadonlySet<string>[]>
  /**
   * All that a named CPU model is: its features, family, model, stepping, vendor and levels, as properties of QEMU's model `base`.
   * Throws FAILED_PRECONDITION for a model or a feature that QEMU does not know.
   */
  expandCpu(
    model: string,
    features: Readonly<Record<string, boolean>>,
  ): Promise<Readonly<Record<string, Scalar>>>
}

interface Kept {
  readonly identity: string
  /** SHA-256 of the program; undefined where it could not be read. */
  readonly hash: Promise<Buffer | undefined>
  readonly answers: Map<string, Promise<unknown>>
  /** By the names of types. */
  readonly properties: Map<string, ReadonlySet<string>>
}

const MOST_WAITING = 16
const MOST_ANSWERS = 64

export function askedQemu(program: string, acceleration: Acceleration): AskedQemu {
  /** Never rejects. */
  let kept: Promise<Kept | undefined> = Promise.resolve(undefined)
  const queue = new SerialQueue()
  let waiting = 0
  /** One QEMU at a time: each tenant may have any number of documents expanded. */
  const inTurn = async <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
    if (waiting >= MOST_WAITING)
      throw new AgentError('RESOURCE_EXHAUSTED', `${MOST_WAITING} CPU models wait for QEMU already`)
    waiting += 1
    try {
      return await queue.run(ask, neverAborted)
    } finally {
      waiting -= 1
    }
  }
  const present = async (): Promise<Kept> => {
    const before = kept
    const next = keptOf(program, before)
    // The next call looks again.
    kept = next.catch(() => before)
    return await next
  }
  const once = async <Answer>(name: string, ask: () => Promise<Answer>): Promise<Answer> => {
    const { answers } = await present()
    // The name decides the type.
    const known = answers.get(name) as Promise<Answer> | undefined
    if (known !== undefined) return await known
    const asked = inTurn(ask)
    const [oldest] = answers.keys()
    if (answers.size >= MOST_ANSWERS && oldest !== undefined) answers.delete(oldest)
    answers.set(name, asked)
    asked.catch(() => answers.delete(name))
    return await asked
  }
  return {
    capabilities: () => once('capabilities', () => askCapabilities(program, acceleration)),
    propertiesOf: async (types) => {
      const { properties } = await present()
      const missing = types.filter((type) => !properties.has(type))
      if (missing.length > 0) {
        const found = await inTurn(() => askProperties(program, acceleration, missing))
        for (const [index, type] of missing.entries()) properties.set(type, found[index] ?? new Set())
      }
      return types.map((type) => properties.get(type) ?? new Set())
    },
    expandCpu: (model, features) =>
      once(JSON.stringify([model, features]), () =>
        askCpu(program, acceleration, { name: model, props: features }),
      ),
  }
}

/** Throws FAILED_PRECONDITION naming the first part of a machine that this QEMU lacks, or does not give on this host. */
export async function checkHardware(machine: Machine, qemu: AskedQemu): Promise<void> {
  const capabilities = await qemu.capabilities()
  checkCapabilities(machine, capabilities)
  const made = Object.entries(machine.devices).filter(([, device]) => isMade(device))
  const types = made.map(([, device]) => typeOf(machine, device))
  const known = await qemu.propertiesOf([...new Set(types)])
  const named = new Map([...new Set(types)].map((type, index) => [type, known[index]]))
  for (const [index, [key]] of made.entries()) {
    const type = types[index] ?? ''
    const { parts } = machineDeviceParts(machine, key, { provide: () => ({ parts: [], properties: {} }) })
    const wished = Object.keys(parts.at(-1)?.properties ?? {})
    const missing = wished.find((name) => !OPTIONS.includes(name) && !named.get(type)?.has(name))
    if (missing === undefined) continue
    const text = `not a property of ${type} in this QEMU, ${capabilities.version}`
    throw new AgentError('FAILED_PRECONDITION', `${pathOf('devices', key, 'properties', missing)}: ${text}`)
  }
}

/** Options of QEMU that are properties of no device. */
const OPTIONS = ['id', 'bus']

function checkCapabilities(machine: Machine, capabilities: Capabilities): void {
  const { cpuFeatures, devices, machines, version } = capabilities
  const lacks = (at: string, name: string) =>
    new AgentError('FAILED_PRECONDITION', `${at}: ${shown(name)}: not in this QEMU, ${version}`)
  if (!machines.has(machine.board.machine)) throw lacks('board.machine', machine.board.machine)
  const missing = Object.entries(machine.cpu.expansion ?? {}).find(
    ([name, value]) => value === true && !cpuFeatures.has(name),
  )
  if (missing !== undefined)
    throw new AgentError(
      'FAILED_PRECONDITION',
      `${pathOf('cpu', 'features', missing[0])}: of model ${machine.cpu.model}: not given here`,
    )
  for (const [key, device] of Object.entries(machine.devices)) {
    const type = typeOf(machine, device)
    if (isMade(device) && !devices.has(type)) throw lacks(pathOf('devices', key, 'model'), type)
  }
}

function isMade({ builtIn, kind }: MachineDevice): boolean {
  // Which vsock it is depends on what stands behind it.
  return builtIn !== true && !['display', 'firmware-item', 'vsock'].includes(kind)
}

/** Properties whose values are not those of the guest's hardware. */
const IS_KEPT = (value: unknown): value is Scalar => value !== false && value !== ''

/** KVM's and TCG's own; a machine whose memory needs more is refused by QEMU. */
const PHYSICAL_BITS = 40

interface CpuExpansion {
  readonly model: { readonly props: Readonly<Record<string, Scalar>> }
}

async function askCpu(
  program: string,
  acceleration: Acceleration,
  model: { readonly name: string; readonly props: Readonly<Record<string, boolean>> },
) {
  const [answer] = await ask(program, acceleration, [
    { execute: 'query-cpu-model-expansion', arguments: { type: 'static', model } },
  ])
  const { props } = (answer as CpuExpansion).model
  const own = Object.entries(props)
    .filter(([, value]) => IS_KEPT(value))
    .sort(([a], [b]) => (a < b ? -1 : 1))
  return { ...Object.fromEntries(own), 'phys-bits': PHYSICAL_BITS }
}

async function askCapabilities(program: string, acceleration: Acceleration): Promise<Capabilities> {
  const [version, machines, models, types, most] = await ask(program, acceleration, [
    { execute: 'query-version' },
    { execute: 'query-machines' },
    { execute: 'query-cpu-definitions' },
    { execute: 'qom-list-types', arguments: { implements: 'device', abstract: false } },
    { execute: 'query-cpu-model-expansion', arguments: { type: 'full', model: { name: 'max' } } },
  ])
  // The forms of QEMU's answers (qapi/ of its source).
  const { package: text, qemu } = version as {
    readonly package: string
    readonly qemu: Readonly<Record<'major' | 'minor' | 'micro', number>>
  }
  const { props } = (most as CpuExpansion).model
  const names = (list: unknown) => (list as readonly { readonly name: string }[]).map(({ name }) => name)
  return {
    version: [`${qemu.major}.${qemu.minor}.${qemu.micro}`, ...(text === '' ? [] : [text])].join(' '),
    ...{ machines: new Set(names(machines)), cpuModels: names(models), devices: new Set(names(types)) },
    wholeCpuModels: names((models as readonly CpuModel[]).filter((each) => !isLacking(each))),
    cpuFeatures: new Set(Object.keys(props).filter((name) => props[name] === true)),
  }
}

interface CpuModel {
  readonly 'unavailable-features'?: readonly string[]
}

/** QEMU says nothing of a model that it cannot look at. */
function isLacking({ 'unavailable-features': missing }: CpuModel): boolean {
  return missing === undefined || missing.length > 0
}

/** Throws FAILED_PRECONDITION for a type that is none of a device. */
async function askProperties(
  program: string,
  acceleration: Acceleration,
  types: readonly string[],
): Promise<readonly ReadonlySet<string>[]> {
  const questions = types.map((typename) => ({
    execute: 'device-list-properties',
    arguments: { typename },
  }))
  const answers = await ask(program, acceleration, questions)
  return answers.map(
    (list) => new Set((list as readonly { readonly name: string }[]).map(({ name }) => name)),
  )
}

/** What is known of the program. Only one of another time or size is read again. */
async function keptOf(program: string, before: Promise<Kept | undefined>): Promise<Kept> {
  const known = await before
  const { identity, path } = await identityOf(program)
  if (known?.identity === identity) return known
  // Nothing waits for the first one.
  const hash = hashOf(path).catch(() => undefined)
  const isSame = known !== undefined && (await hash)?.equals((await known.hash) ?? Buffer.of())
  return isSame ? { ...known, identity } : { identity, hash, answers: new Map(), properties: new Map() }
}

async function hashOf(path: string): Promise<Buffer> {
  return Buffer.from(await webcrypto.subtle.digest('SHA-256', await readFile(path)))
}

/** Changes when the program may be another one. */
async function identityOf(program: string): Promise<{ readonly identity: string; readonly path: string }> {
  for (const path of placesOf(program)) {
    const status = await stat(path).catch(() => undefined)
    if (status?.isFile()) return { identity: [path, status.ino, status.size, status.mtimeMs].join(' '), path }
  }
  throw noSuchProgram(program)
}

interface Question {
  readonly execute: string
  readonly arguments?: Readonly<Record<string, unknown>>
}

const ASK_MS = 20_000

/** Asks a QEMU without a machine, which ends then. Throws FAILED_PRECONDITION with its own words. */
async function ask(
  program: string,
  acceleration: Acceleration,
  questions: readonly Question[],
): Promise<readonly unknown[]> {
  const words = ['-machine', 'none', '-accel', acceleration, '-nodefaults', '-no-user-config']
  const child = spawn(program, [...words, '-display', 'none', '-S', '-qmp', 'stdio'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    timeout: ASK_MS,
  })
  const failed = new Promise<never>((_, reject) => child.once('error', reject))
  // Without free descriptors Node gives a child without streams.
  failed.catch(() => {})
  if (child.stdin === undefined || child.stdout === undefined) return await failed
  const all = [{ execute: 'qmp_capabilities' }, ...questions, { execute: 'quit' }]
  child.stdin.on('error', () => {}).end(all.map((each) => `${JSON.stringify(each)}\n`).join(''))
  const read = async () => {
    const answers: unknown[] = []
    for await (const line of createInterface({ input: child.stdout })) {
      const message: { readonly return?: unknown; readonly error?: { readonly desc: string } } =
        JSON.parse(line)
      if (message.error !== undefined)
        throw new AgentError('FAILED_PRECONDITION', `QEMU: ${message.error.desc}`)
      if (message.return !== undefined) answers.push(message.return)
    }
    return answers.slice(1, 1 + questions.length)
  }
  try {
    const answers = await Promise.race([read(), failed])
    if (answers.length === questions.length) return answers
    throw new AgentError('FAILED_PRECONDITION', 'QEMU ended before it answered')
  } finally {
    child.kill('SIGKILL')
  }
}
