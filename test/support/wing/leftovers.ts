import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { tableOf } from '../../../src/host/instance/filters/tap-rules.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { processesIn } from '../processes.ts'

/** What instances of a state folder have left on this host: processes, mounts, folders, cgroups, and locks of virtiofsd. */
export function leftovers(folder: string): readonly string[] {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  return [
    ...processesIn(folder).map(({ pid, words }) => `${pid} ${words}`),
    ...mounts.filter((line) => line.includes(folder)),
    ...list(join(folder, 'instances')),
    ...cgroupsOf(folder),
    ...filtersOf(folder),
    ...list('/run/virtiofsd').filter((name) => name.includes(folder.replaceAll('/', '.'))),
  ]
}

/** The network with filters of the instance `web`. */
export const FILTERED = 'filtered-net'

function filtersOf(folder: string): readonly string[] {
  const table = tableOf(join(folder, 'instances', instanceFolderName(specKey('web'))), FILTERED)
  const { stdout } = spawnSync('nft', ['list', 'tables'], { encoding: 'utf8' })
  return stdout.includes(table) ? [table] : []
}

/** The kinds of the devices' daemons that run, by their holders. */
export function daemonsIn(stateFolder: string): readonly string[] {
  const exits = list(join(stateFolder, 'instances')).map((name) =>
    readIfPresent(join(stateFolder, 'instances', name, 'exits')),
  )
  return exits.flatMap((text) =>
    [...text.matchAll(/^(virtiofsd|passt|vsock)\S* \d+ running$/gm)].map(([, kind = '']) => kind).sort(),
  )
}

/** The cgroups of a daemon's instances end in this. */
export function cgroupsOf(folder: string): readonly string[] {
  const suffix = createHash('sha256').update(folder).digest('hex').slice(0, 8)
  return ['memory', 'cpu', 'pids', '.'].flatMap((hierarchy) => {
    const parent = join('/sys/fs/cgroup', hierarchy, 'microvm')
    return list(parent).flatMap((name) => (name.endsWith(`-${suffix}`) ? [join(parent, name)] : []))
  })
}

function list(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function readIfPresent(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    // The process has ended meanwhile.
    return ''
  }
}
