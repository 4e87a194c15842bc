import { figuresTable, readFigures } from './figures.ts'

/** The variable that names the file to which the hostile group's tests append their figures, one JSON line each. */
export const ATTACK_FIGURES_VARIABLE = 'MICROVM_ATTACK_FIGURES'

/** What a caller of the agent saw during one attack, and after it. */
export interface AttackFigures {
  readonly attack: string
  /** Where the agent ran: a process of this machine, or an emulated guest. */
  readonly where: 'host' | 'guest'
  /** How often Health.Check was called. */
  readonly checks: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly maxMs: number
  /** The agent's largest resident memory. */
  readonly peakMib: number
  /** What the attack left behind: processes, mounts, cgroups, files. */
  readonly left: number
}

/** The table of attacks for the end of a run, line by line; empty when no test wrote to the file. */
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
