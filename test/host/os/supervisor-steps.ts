import type { Streams } from '../../../src/os/streams/streams.ts'
import type { DescriptorStore, Exits, Supervisor } from '../../../src/os/supervisor/supervisor.ts'

/** A process that exits with `code` once it is released. */
export interface Orphan {
  readonly pid: number
  release(): Promise<unknown>
}

export async function exitSteps(
  exits: Exits,
  startOrphan: (code: number) => Promise<Orphan>,
  kill: (pid: number, signal: 'SIGTERM') => void,
): Promise<readonly string[]> {
  const watch = exits.watch()
  const first = await startOrphan(9)
  const firstExit = watch.exitOf(first.pid)
  const before = watch.hasEnded(first.pid)
  await first.release()
  const lines = [`code ${(await firstExit).exitCode}, ended before ${before}`]

  const killed = await startOrphan(1)
  kill(killed.pid, 'SIGTERM')
  const { signal, exitCode } = await watch.exitOf(killed.pid)
  lines.push(`signal ${signal}, code ${exitCode}`)

  const [quick, last] = [await startOrphan(3), await startOrphan(4)]
  await quick.release()
  await last.release()
  // vminit has most likely reported the first exit before the call.
  await watch.exitOf(last.pid)
  lines.push(
    `ended ${watch.hasEnded(quick.pid)}, asked for late: ${(await watch.exitOf(quick.pid)).exitCode}`,
  )

  const other = await startOrphan(5)
  const pending = watch.exitOf(other.pid)
  watch.close()
  await other.release()
  lines.push(`after the end of the watch: ${(await pending).exitCode}`)
  lines.push(`refused: ${(await failure(watch.exitOf(other.pid))).replace(String(other.pid), 'PID')}`)
  return lines
}

export async function storeSteps(descriptors: DescriptorStore, streams: Streams): Promise<readonly string[]> {
  const { parentEnd, childEnd } = streams.pipe('child-writes')
  await descriptors.storeAll({ 'p1-reading': parentEnd, 'p1-writing': childEnd })
  await descriptors.store('gone', childEnd)
  await Promise.all([descriptors.remove('gone'), descriptors.remove('never-stored')])
  const lines = [`not taken: ${descriptors.names().length}`, `taken: ${descriptors.take('p1-reading')}`]
  descriptors.handOver('p1-reading', parentEnd)
  const taken = [descriptors.take('p1-reading') === parentEnd, descriptors.take('p1-reading')]
  return [...lines, `handed over: ${taken}`]
}

export function foundSteps(descriptors: DescriptorStore, streams: Streams): readonly string[] {
  const lines = [`found: ${descriptors.names().toSorted()}`]
  const [reading, writing] = [descriptors.take('p1-reading'), descriptors.take('p1-writing')]
  if (reading === undefined || writing === undefined) return lines
  streams.tryWrite(writing, Buffer.from('kept'))
  return [...lines, `read: ${streams.tryRead(reading, 10)}`, `left: ${descriptors.names().length}`]
}

/** What an agent tells vminit before it ends. */
export const COMMANDS = {
  nothing: async () => {},
  powerOff: (supervisor) => supervisor.powerOff(),
  endWithAgent: (supervisor) => supervisor.endWithAgent(),
  gateOpened: async (supervisor) => supervisor.gateOpened(),
} satisfies Record<string, (supervisor: Supervisor) => Promise<void>>

export type Command = keyof typeof COMMANDS

export async function goneSteps(supervisor: Supervisor, killVminit: () => void): Promise<readonly string[]> {
  killVminit()
  const lines = [`asked to stop: ${await supervisor.shutdownRequested}`]
  supervisor.gateOpened()
  supervisor.checkBroker()
  return [...lines, `refused: ${await failure(supervisor.endWithAgent())}`]
}

async function failure(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'nothing',
    (error: unknown) => String(error),
  )
}
