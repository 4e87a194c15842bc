import {
  type Answers,
  type ContainerRecord,
  readContainerRecords,
} from '../../../src/handlers/container/container-record.ts'
import { SandboxRecord } from '../../../src/handlers/sandbox/sandbox-record.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakeRequests } from './fake-requests.ts'
import { type Machine, machine } from './machine.ts'

/** For records that no agent's calls are answered from. */
export const NO_ANSWERS: Answers = { keep: () => {} }

/** The number of a request that is sent again. */
export const OPEN = 5n

/**
 * The agent after `before`, which has died. `settled` are answers of that one, and `answered` is the end of the request
 * that is sent again.
 */
export async function successorOf(
  before: Machine,
  settled: ReadonlyMap<bigint, 'written' | 'dropped'> = new Map(),
  answered: Promise<'written'> = new Promise(() => {}),
): Promise<Machine> {
  const { os, runtime, state } = before
  os.descriptors.restart()
  const source = new FakeRequests([[OPEN, 'open'], ...settled])
  void answered.then((outcome) => source.settle(OPEN, outcome))
  const made = await machine({ os, runtime, state, requestSource: source, config: { restarted: true } })
  await made.handlers.restore()
  return made
}

/** Changes what the agent that died has recorded of container `c1`. */
export function recordContainer({ state }: Machine, changes: Partial<ContainerRecord['fields']>): void {
  const [found] = readContainerRecords(new StateStore(state), NO_ANSWERS)
  if (found === undefined) throw new Error('no container is recorded')
  found.save(changes)
}

/** Has the agent that died not recorded the pids of added processes. */
export function forgetPids({ state }: Machine): void {
  const [found] = readContainerRecords(new StateStore(state), NO_ANSWERS)
  for (const exec of found?.execs ?? []) found?.saveProcess({ ...exec, pid: 0 })
}

/** Replaces what the agent that died has recorded of the sandbox. */
export function recordSandbox({ state }: Machine, fields: Partial<SandboxRecord['fields']>): void {
  new SandboxRecord(new StateStore(state), { id: 'pod' }).save(fields)
}

/** Whether the request that is sent again is answered from its outcome. */
export function isAnswered({ context }: Machine): boolean {
  return context.requests.of(OPEN)?.response !== undefined
}
