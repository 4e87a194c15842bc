import type { Os } from '../../../os/os.ts'

/** For how long tasks had been stalled at a moment: totals of the kernel's pressure files (PSI), in microseconds. */
export interface PressureSample {
  readonly atMs: number
  /** undefined when the kernel does not tell. */
  readonly memoryUs: number | undefined
  readonly ioUs: number | undefined
}

/** The pressure of the whole guest. */
export const GUEST_PRESSURE = { memory: '/proc/pressure/memory', io: '/proc/pressure/io' }

/** Reads two pressure files; those of a cgroup are in its folder. Never throws. */
export async function samplePressure(
  { files, clock }: Pick<Os, 'files' | 'clock'>,
  paths: { readonly memory: string; readonly io: string },
): Promise<PressureSample> {
  const read = async (path: string) => stalledUs(await files.readText(path).catch(() => ''))
  const [memoryUs, ioUs] = await Promise.all([read(paths.memory), read(paths.io)])
  return { atMs: clock.monotonicMs(), memoryUs, ioUs }
}

/** The time in which at least one task was stalled (`some`); undefined when the text has none. */
export function stalledUs(text: string): number | undefined {
  const total = /^some .*\btotal=(\d+)$/m.exec(text)?.[1]
  return total === undefined ? undefined : Number(total)
}

/**
 * The part of the time between two samples in which a task was stalled, for memory or for I/O, whichever is more, in
 * percent. 100 when it is not known, so that nothing is done then.
 */
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
