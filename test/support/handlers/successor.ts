import { ContainerNames } from '../../../src/handlers/container/container-names.ts'
import {
  type Answers,
  type ContainerRecord,
  type Records,
  readContainerRecords,
} from '../../../src/handlers/container/container-record.ts'
import { SandboxRecord } from '../../../src/handlers/sandbox/sandbox-record.ts'
import type { StateFiles } from '../../../src/os/files/state-files.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakeRequests } from './fake-requests.ts'
import { type Machine, machine } from './machine.ts'

const NO_ANSWERS: Answers = { keep: () => {} }

/** What the records of containers need, of an agent that has not read the names. */
export function recordsIn(files: StateFiles): Records {
  const state = new StateStore(files)
  return { state, answers: NO_ANSWERS, names: new ContainerNames(state) }
}

/** The number of a repeated request. */
export const OPEN = 5n

/** `settled` are answers of the dead agent `before`; `answered` is the end of the repeated request. */
export async function successorOf(
  before: Machine,
  settled: ReadonlyMap<bigint, 'written' | 'dropped'> = new Map(),
  answered: Promise<'written'> = new Promise(() => {}),
): Promise<Machine> {
  const { os, runtime, state } = before
  os.descriptors.restart()
  const source = new FakeRequests([[OPEN, 'open'], ...settled])
  void answered.then((outcome) => source.settle(OPEN, outcome))
  const made = await machine({
    os,
    runtime,
    state,
    requestSource: source,
    config: { ...before.context.config, restarted: true },
  })
  await made.handlers.restore()
  return made
}

export function recordContainer({ state }: Machine, changes: Partial<ContainerRecord['fields']>): void {
  const [found] = readContainerRecords(recordsIn(state))
  if (found === undefined) throw new Error('no container is recorded')
  found.save(changes)
}

/** Removes the pids of execs from the dead agent's records. */
export function forgetPids({ state }: Machine): void {
  const [found] = readContainerRecords(recordsIn(state))
  for (const exec of found?.execs ?? []) found?.saveProcess({ ...exec, pid: 0 })
}

export function recordSandbox({ state }: Machine, fields: Partial<SandboxRecord['fields']>): void {
  new SandboxRecord(new StateStore(state), { id: 'pod' }).save(fields)
}

export function isAnswered({ context }: Machine): boolean {
  return context.requests.of(OPEN)?.response !== undefined
}
