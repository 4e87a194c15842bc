import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { processState } from '../../support/processes.ts'
import { run, type Supervised } from '../../support/vminit/supervised.ts'

export interface Orphans {
  readonly statuses: ReadonlyMap<number, number>
  releaseAndAwaitReaping(): Promise<void>
}

/** Makes `count` orphans below the agent. They block on a fifo in `folder` until its only writer closes it. */
export async function makeOrphans(supervised: Supervised, folder: string, count: number): Promise<Orphans> {
  const fifo = join(folder, 'release')
  const list = join(folder, 'orphans')
  await run(['mkfifo', fifo])
  const writer = openSync(fifo, 'r+') // read and write: a fifo opened so does not wait for its other side
  await supervised.shell(
    `exec 3<${fifo}; i=0; while [ $i -lt ${count} ]; do (read line <&3; exit $((i % 256))) & echo $! $((i % 256)); i=$((i+1)); done >${list}`,
  )
  const statuses = new Map(readFileSync(list, 'utf8').trimEnd().split('\n').map(pidAndStatus))
  return {
    statuses,
    releaseAndAwaitReaping: async () => {
      closeSync(writer)
      const left = () => [...statuses.keys()].filter((pid) => processState(pid) !== undefined)
      await expect.poll(left).toEqual([])
    },
  }
}

function pidAndStatus(line: string): [number, number] {
  const [pid, status] = line.split(' ')
  return [Number(pid), Number(status)]
}
