import type { ChildProcess } from 'node:child_process'

import { MOVE_SETTINGS } from '../../../../../src/host/migration/move/move-host.ts'
import type { Random } from '../../../kills/random.ts'
import { endChild, signalThose } from '../../../processes.ts'
import type { Fleet, HostId } from '../fleet.ts'
import type { Disturbance, Place } from '../test-network.ts'
import type { HeldStep } from './step-gate.ts'

/** As the source tells them. The machine runs at the target after `end`. */
export const STEPS = [
  ...([
    'target',
    'negotiate',
    'handover',
    'disks',
    'memory',
    'state',
    'continue',
    'switchover',
    'end',
  ] as const),
] as const
export type MoveStep = (typeof STEPS)[number]

/** `member` is one of etcd, and `quorum` two. The machine ends with its holder. */
const PROCESSES = [
  ...(['source', 'target', 'controller', 'controllers', 'member', 'quorum'] as const),
  ...(['source holder', 'target holder'] as const),
] as const
type Processes = (typeof PROCESSES)[number]

/** What is between two places, or between one and all others. */
const WIRES = ['source-target', 'source-controllers', 'target-controllers', 'source', 'target'] as const
/** `etcd` is what is between its members, and between them and the controllers. */
type Wire = (typeof WIRES)[number] | 'etcd'

export type FaultKind =
  | { readonly kind: 'none' }
  | { readonly kind: 'kill' | 'stop'; readonly who: Processes }
  | { readonly kind: Disturbance; readonly wire: Wire }
  /** The clock of a daemon, which dates what it does and gives runs their ids, is another one. */
  | { readonly kind: 'clock'; readonly who: 'source' | 'target'; readonly jumpMs: number }

/** A fault of a move: `delayMs` after a step has begun, and healed after `lastMs`. */
export type Fault = FaultKind & { readonly step: MoveStep; readonly delayMs: number; readonly lastMs: number }

/** A fault before a step begins. It is healed when the move has ended, and after `lastMs` at the latest. */
export type StepFault = FaultKind & { readonly before: HeldStep; readonly lastMs: number }

/** All of a move, in their order on each side, of a guest that has no device to unplug, and no agent. */
export const HELD_STEPS: readonly HeldStep[] = [
  ...[
    ...['target', 'negotiate', 'handover', 'disks', 'memory', 'state', 'handed', 'continue', 'switchover'],
    'end',
  ].map((step) => `move ${step}` as const),
  ...[
    ...['start', 'listen', 'memory', 'state', 'switchover', 'lease', 'streams', 'cont', 'commit', 'repair'],
  ].map((step) => `arrival ${step}` as const),
]

/** Those that only a guest with both has, or that ask its agent, or whose undoing does. */
export const POD_STEPS: readonly HeldStep[] = [
  ...['quiesce', 'detach', 'unplug', 'memory', 'switchover'].map((step) => `move ${step}` as const),
  ...['plug', 'cont', 'repair'].map((step) => `arrival ${step}` as const),
]

/** What may happen before each of them. */
export const STEP_FAULTS: readonly FaultKind[] = [
  ...(['kill', 'stop'] as const).flatMap((kind) =>
    (['source holder', 'target holder', 'controllers', 'quorum', 'source', 'target'] as const).map((who) => ({
      kind,
      who,
    })),
  ),
  ...(['source-target', 'source-controllers', 'target-controllers', 'etcd'] as const).map((wire) => ({
    ...({ kind: 'drop' } as const),
    wire,
  })),
]

export function hitsDaemon(fault: FaultKind): boolean {
  return 'who' in fault && (fault.who === 'source' || fault.who === 'target')
}

/** In which a move fails by itself while the other side, or a holder, does nothing. */
const BOUND_MS = MOVE_SETTINGS.readyMs + MOVE_SETTINGS.runsMs + 10_000

/** Throws for a move that goes on for too long with a fault, or that has failed without telling the step. */
export function checkEnd(
  fault: StepFault,
  end: { readonly isInTime: boolean; readonly failure: string | undefined },
): void {
  const isOfSource = nameOf(fault).endsWith(' source')
  const isOfControllers = /controllers|quorum|etcd/.test(nameOf(fault))
  if (isOfSource) return
  // A source that has handed its machine over asks until a controller answers.
  if (!end.isInTime && !isOfControllers && fault.lastMs >= BOUND_MS)
    throw new Error(`the move has not ended by itself in ${fault.lastMs} ms`)
  if (end.failure !== undefined && !TELLS_STEP.test(end.failure))
    throw new Error(`the failure does not tell its step: ${end.failure}`)
}

/** The second is after the end of the handover. */
const TELLS_STEP =
  /^(target|negotiate|handover|disks|quiesce|detach|unplug|memory|state): |^the machine was not moved: /

export function nameOf(fault: FaultKind): string {
  if (fault.kind === 'none') return 'none'
  if (fault.kind === 'clock') return `clock ${fault.jumpMs < 0 ? 'back' : 'forward'} ${fault.who}`
  return `${fault.kind} ${'who' in fault ? fault.who : fault.wire}`
}

export function textOf(fault: Fault | StepFault): string {
  if (fault.kind === 'none') return 'none'
  if ('before' in fault) return `${nameOf(fault)} before ${fault.before}, for ${fault.lastMs} ms`
  const by = fault.kind === 'clock' ? ` by ${fault.jumpMs} ms` : ''
  return `${nameOf(fault)}${by} ${fault.delayMs} ms after ${fault.step}, for ${fault.lastMs} ms`
}

/** The farthest jump of a clock. */
const DAY_MS = 24 * 60 * 60_000

/** One move in eight has no fault. */
export function chooseFault(random: Random): Fault {
  const one = <Each>(all: readonly [Each, ...Each[]]): Each =>
    all[Math.floor(random() * all.length)] ?? all[0]
  const kinds: readonly [FaultKind, ...FaultKind[]] = [
    { kind: 'none' },
    ...(['kill', 'kill', 'stop', 'stop'] as const).map((kind) => ({ kind, who: one(PROCESSES) })),
    ...(['drop', one(['drop', 'reset', 'slow'] as const)] as const).map((kind) => ({
      kind,
      wire: one(WIRES),
    })),
    { kind: 'clock', who: one(['source', 'target']), jumpMs: Math.round((random() * 2 - 1) ** 3 * DAY_MS) },
  ]
  const kind = one(kinds)
  // Most are short, and some longer than each bound of a move.
  const [delayMs, lastMs] = [Math.round(random() ** 3 * 2000), Math.round(random() ** 3 * 30_000)]
  return { ...kind, step: one(STEPS), delayMs, lastMs }
}

/** The hosts of a move. */
export interface Way {
  readonly source: HostId
  readonly target: HostId
}

/** A fault that has happened. */
export interface Happened {
  /** How many processes or wires it has met. */
  readonly met: number
  /** How many of them were holders that were killed: the machine may have ended. */
  readonly holdersKilled: number
  heal(): Promise<void>
}

/** Lets a fault happen. */
export async function happen(fleet: Fleet, fault: FaultKind, way: Way): Promise<Happened> {
  switch (fault.kind) {
    case 'none':
      return { met: 0, holdersKilled: 0, heal: async () => {} }
    case 'kill': {
      const parts = partsOf(fleet, fault.who, way)
      await Promise.all(parts.map((part) => part.signal('SIGKILL')))
      const heal = async () => void (await Promise.all(parts.map((part) => part.start())))
      const met = countOf(parts)
      return { met, holdersKilled: fault.who.endsWith('holder') ? met : 0, heal }
    }
    case 'stop': {
      const parts = partsOf(fleet, fault.who, way)
      for (const part of parts) await part.signal('SIGSTOP')
      const heal = async () => {
        for (const part of parts) await part.signal('SIGCONT')
      }
      return { met: countOf(parts), holdersKilled: 0, heal }
    }
    case 'clock': {
      const { jumpMs, who } = fault
      fleet.moveClock(way[who], jumpMs)
      return { met: 1, holdersKilled: 0, heal: async () => fleet.moveClock(way[who], -jumpMs) }
    }
    case 'drop':
    case 'reset':
    case 'slow': {
      const [place, peers] = endsOf(fault.wire, way)
      fleet.network.disturb(place, peers, fault.kind)
      return { met: 1, holdersKilled: 0, heal: async () => fleet.network.calm(place) }
    }
    default:
      return fault satisfies never
  }
}

interface Part {
  /** How many processes it has; undefined for one. */
  readonly count?: number
  signal(name: NodeJS.Signals): Promise<void>
  start(): Promise<void>
}

function countOf(parts: readonly Part[]): number {
  return parts.reduce((sum, { count = 1 }) => sum + count, 0)
}

function partsOf(fleet: Fleet, who: Processes, way: Way): readonly Part[] {
  const controllers = fleet.controllers.map((index) =>
    part(fleet.controller(index), () => fleet.startController(index)),
  )
  switch (who) {
    case 'source':
    case 'target':
      return [part(fleet.daemon(way[who]), () => fleet.startDaemon(way[who]))]
    case 'controller':
      return controllers.slice(0, 1)
    case 'controllers':
      return controllers
    case 'member':
      return fleet.etcd.members.slice(0, 1)
    case 'quorum':
      return fleet.etcd.members.slice(0, 2)
    case 'source holder':
      return [holderPart(fleet, way.source)]
    case 'target holder':
      return [holderPart(fleet, way.target)]
    default:
      return who satisfies never
  }
}

function part(child: ChildProcess, start: () => Promise<void>): Part {
  return {
    start,
    signal: async (name) => {
      if (name === 'SIGKILL') await endChild(child, name)
      else child.kill(name)
    },
  }
}

/** There may be none yet, or no more. */
function holderPart(fleet: Fleet, host: HostId): Part {
  const pids = fleet.pidsOf('holder', host)
  return { count: pids.length, start: async () => {}, signal: async (name) => signalThose(pids, name) }
}

function endsOf(wire: Wire, { source, target }: Way): readonly [Place, readonly Place[]] {
  switch (wire) {
    case 'source-target':
      return [source, [target]]
    case 'source-controllers':
      return [source, ['c']]
    case 'target-controllers':
      return [target, ['c']]
    case 'source':
      return [source, [target, 'c']]
    case 'target':
      return [target, [source, 'c']]
    case 'etcd':
      return ['c', ['c']]
    default:
      return wire satisfies never
  }
}
