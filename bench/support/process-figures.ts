import { readdirSync, readFileSync } from 'node:fs'

export function cpuMsOf(pid: number): number {
  const folder = `/proc/${pid}/task`
  return readdirSync(folder)
    .map((thread) => Number(readFileSync(`${folder}/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1e6)
    .reduce((sum, ms) => sum + ms, 0)
}

/** Proportional set size: shared pages count in part. */
export function pssMibOf(pid: number): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  return Number(/^Pss:\s+(\d+) kB/m.exec(rollup)?.[1]) / 1024
}

/** Each wake-up of a thread counts as one of its voluntary context switches. */
export function wakeUpsOf(pid: number): number {
  const folder = `/proc/${pid}/task`
  return readdirSync(folder)
    .map((thread) =>
      Number(
        /^voluntary_ctxt_switches:\s+(\d+)/m.exec(readFileSync(`${folder}/${thread}/status`, 'utf8'))?.[1],
      ),
    )
    .reduce((sum, count) => sum + count, 0)
}
