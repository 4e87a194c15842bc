import type { Os } from '../../../os/os.ts'

/** Total stall times in microseconds, from the kernel's pressure files (PSI). */
export interface PressureSample {
  readonly atMs: number
  /** undefined when the file cannot be read. */
  readonly memoryUs: number | undefined
  readonly ioUs: number | undefined
}

export const GUEST_PRESSURE = { memory: '/proc/pressure/memory', io: '/proc/pressure/io' }

/** Reads the pressure files of the guest or of a cgroup. Never throws. */
export async function samplePressure(
  { files, clock }: Pick<Os, 'files' | 'clock'>,
  paths: { readonly memory: string; readonly io: string },
): Promise<PressureSample> {
  const read = async (path: string) => stalledUs(await files.readText(path).catch(() => ''))
  const [memoryUs, ioUs] = await Promise.all([read(paths.memory), read(paths.io)])
  return { atMs: clock.monotonicMs(), memoryUs, ioUs }
}

/** The total time in which at least one task was stalled (`some`). */
export function stalledUs(text: string): number | undefined {
  const total = /^some .*\btotal=(\d+)$/m.exec(text)?.[1]
  return total === undefined ? undefined : Number(total)
}

/** The share of stalled time, for memory or I/O, whichever is larger. 100 when it is unknown, so that nothing is done. */
export function pressurePercent(before: PressureSample, after: PressureSample): number {
  const elapsedUs = (after.atMs - before.atMs) * 1000
  const percentOf = (from: number | undefined, to: number | undefined) =>
    from === undefined || to === undefined || to < from ? 100 : percent(to - from, elapsedUs)
  return Math.max(percentOf(before.memoryUs, after.memoryUs), percentOf(before.ioUs, after.ioUs))
}

function percent(stalled: number, elapsed: number): number {
  if (stalled === 0) return 0
  return elapsed <= 0 ? 100 : Math.min((stalled / elapsed) * 100, 100)
}
