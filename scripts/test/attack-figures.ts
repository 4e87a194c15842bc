import { figuresTable, readFigures } from './figures.ts'

/** The variable with the file to which the hostile tests append their figures, one JSON line each. */
export const ATTACK_FIGURES_VARIABLE = 'MICROVM_ATTACK_FIGURES'

export interface AttackFigures {
  readonly attack: string
  readonly where: 'host' | 'guest'
  readonly checks: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly maxMs: number
  readonly peakMib: number
  /** Processes, mounts, cgroups and files that the attack left behind. */
  readonly left: number
}

export function attackTable(file: string): readonly string[] {
  const rows = readFigures<AttackFigures>(file)
  if (rows.length === 0) return []
  return figuresTable('Health.Check during attacks, in ms:', [
    ['attack', 'where', 'checks', 'p50', 'p99', 'max', 'RSS MiB', 'left'],
    ...rows.map(({ attack, where, checks, p50Ms, p99Ms, maxMs, peakMib, left }) => {
      const times = [p50Ms, p99Ms, maxMs].map((ms) => ms.toFixed(1))
      return [attack, where, checks, ...times, peakMib.toFixed(0), left] as const
    }),
  ])
}
