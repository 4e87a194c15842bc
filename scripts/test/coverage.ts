import { existsSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

/**
 * The minimum percentage of a folder's lines that the unit tests must run, a little below the measured value. A low
 * floor means that the code mostly runs in programs of the host and VM tests, which are not counted.
 */
export const COVERAGE_FLOORS: Readonly<Record<string, number>> = {
  'src/agent': 79,
  'src/base': 96,
  // Cached parts are not built again, so the coverage depends on the cache.
  'src/build': 50,
  'src/client': 40,
  'src/ctl': 48,
  'src/debian': 18,
  'src/handlers/cgroup': 96,
  'src/handlers/container': 96,
  'src/handlers/device': 96,
  'src/handlers/guest': 97,
  'src/handlers/network': 97,
  'src/handlers/oci-runtime': 97,
  'src/handlers/process': 96,
  'src/handlers/quiesce': 97,
  'src/handlers/sandbox': 97,
  'src/handlers/stdio': 95,
  'src/handlers/storage': 97,
  'src/hotplug': 97,
  'src/host': 50,
  'src/image': 18,
  'src/microvm': 52,
  'src/oci': 97,
  'src/os': 65,
  'src/rpc': 96,
  'src/settings': 94,
  'src/state': 96,
}

export interface FolderCoverage {
  readonly folder: string
  readonly lines: number
  readonly covered: number
}

/** Line counts by absolute path, as istanbul's reporter `json-summary` writes them. */
type Summary = Readonly<
  Record<string, { readonly lines: { readonly total: number; readonly covered: number } }>
>

export function readCoverage(root: string, reports: string): readonly FolderCoverage[] {
  const file = join(reports, 'coverage-summary.json')
  if (!existsSync(file)) return []
  const { total: _, ...files }: Summary = JSON.parse(readFileSync(file, 'utf8'))
  const byFolder = new Map<string, { lines: number; covered: number }>()
  for (const [path, { lines }] of Object.entries(files)) {
    const folder = folderOf(relative(root, path))
    const sum = byFolder.get(folder) ?? { lines: 0, covered: 0 }
    byFolder.set(folder, { lines: sum.lines + lines.total, covered: sum.covered + lines.covered })
  }
  return [...byFolder]
    .map(([folder, sum]) => ({ folder, ...sum }))
    .toSorted((a, b) => (a.folder < b.folder ? -1 : 1))
}

/** One line for each folder. A folder without a floor fails, and so does a floor without a folder. */
export function judgeCoverage(
  folders: readonly FolderCoverage[],
  floors: Readonly<Record<string, number>>,
): { readonly ok: boolean; readonly lines: readonly string[] } {
  const judged = folders.map(({ folder, lines, covered }) => {
    const floor = floors[folder]
    const percent = lines === 0 ? 100 : (covered * 100) / lines
    const text = `${folder.padEnd(24)} ${percent.toFixed(1).padStart(5)} % of ${lines} lines`
    if (floor === undefined) return { ok: false, text: `${text}, no floor in COVERAGE_FLOORS` }
    return { ok: percent >= floor, text: `${text}, floor ${floor}` }
  })
  const gone = Object.keys(floors)
    .filter((name) => !folders.some(({ folder }) => folder === name))
    .map((name) => ({ ok: false, text: `${name}: has a floor in COVERAGE_FLOORS, but no code` }))
  const all = [...judged, ...gone]
  return {
    ok: all.every(({ ok }) => ok),
    lines: all.map(({ ok, text }) => `${ok ? 'ok  ' : 'FAIL'} coverage: ${text}`),
  }
}

/** `src/NAME`, or `src/handlers/NAME` below src/handlers. */
function folderOf(path: string): string {
  const parts = path.split('/')
  return parts.slice(0, parts[1] === 'handlers' ? 3 : 2).join('/')
}
