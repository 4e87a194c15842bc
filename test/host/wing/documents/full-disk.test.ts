import { execFile } from 'node:child_process'
import { chmodSync, readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import type { Attempt } from '../../../support/wing/full-disk.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'

const SCRIPT = new URL('../../../support/wing/full-disk.ts', import.meta.url).pathname

const REGISTRY = 'registry.sqlite'
/** The files for which each call may have no room, besides the registry. */
const WANTED: Readonly<Record<Attempt['call'], readonly string[]>> = {
  ensure: [
    ...['run', 'metadata0-backend.pb', 'uefi-variables.fd', 'exits'],
    ...['holder.sock', 'console.ring or qemu.log', 'qmp.sock'],
  ],
  run: [],
  plug: [],
  snapshot: ['*.qcow2'],
  revert: ['*.qcow2'],
  merge: [],
  // What else is lacking is told with the step and the folder.
  suspend: ['*.qcow2', 'console.ring', 's', 'uefi-variables.fd'],
  resume: [
    ...['*.qcow2', 'console.ring', 'console.ring or qemu.log', 'exits', 'holder.sock', 'qmp.sock', 'run'],
    ...['metadata0-backend.pb', 'resumed.json', 'uefi-variables.fd'],
  ],
  clone: [
    ...['*.qcow2', 'console.ring', 'console.ring or qemu.log', 'exits', 'holder.sock', 'qmp.sock', 'run'],
    ...['metadata0-backend.pb', 'uefi-variables.fd'],
  ],
}

/** The record is written while the holder makes its files, so that any of these may find the last room. */
const BESIDE: Partial<typeof WANTED> = {
  ensure: ['specification.binpb'],
  run: ['specification.binpb', 'holder.sock', 'qmp.sock'],
  resume: ['specification.binpb'],
  clone: ['specification.binpb'],
}

/** `npm run instances` saves machines, and this group does what is done more often. */
const ALL = process.env[INSTANCES.lives] !== undefined
const LIFE = ['ensure', 'run', 'plug', 'snapshot', 'revert', 'merge'] as const
const SAVED = ['suspend', 'resume', 'clone'] as const

it.each([['a life', LIFE], ...(ALL ? ([['a machine as a file', SAVED]] as const) : [])] as const)(
  'a full disk refuses each step of %s by its file, leaves nothing of it, and takes it once there is room',
  async (_, calls) => {
    const folder = temporaryFolder()
    chmodSync(folder, 0o755)
    const words = ['--mount', '--propagation', 'private', process.execPath, SCRIPT, folder, ...calls]
    const { stdout } = await promisify(execFile)('unshare', words, { maxBuffer: 2 ** 24 })
    const attempts = stdout
      .trimEnd()
      .split('\n')
      .map((line): Attempt => JSON.parse(line))
    const failed = attempts.filter(({ message }) => message !== undefined)
    expect(failed.filter(({ left }) => left.length > 0)).toEqual([])
    expect(failed.filter(({ code }) => code !== 'RESOURCE_EXHAUSTED')).toEqual([])
    const named = failed.map(({ call, message = '' }) => ({ call, file: fileOf(message, folder) }))
    expect(named.filter(({ file }) => file === REGISTRY)).not.toEqual([])
    for (const call of calls) {
      const files = WANTED[call]
      const own = new Set(named.flatMap((each) => (each.call === call ? [each.file] : [])))
      own.delete(REGISTRY)
      for (const file of BESIDE[call] ?? []) own.delete(file)
      expect([call, [...own].sort()]).toEqual([call, files.toSorted()])
    }
    // All of them have succeeded in the end.
    expect(attempts).toHaveLength(failed.length + 2 * calls.length)
    expect(leftovers(folder)).toEqual([])
    expect(readFileSync('/proc/self/mounts', 'utf8')).not.toContain(folder)
  },
  600_000,
)

/** `/folder/full/s/instances/n-1/exits: ENOSPC` is of `exits`, and so is `holder of /folder/full/s/instances/n-1: exits: ENOSPC`. */
function fileOf(message: string, folder: string): string {
  const [, path = '', file] =
    /^(?:clone \w+: |[a-z]+: )?(?:holder of )?(\/.*?)(?:: ([\w.]+))?: (?:ENOSPC|database or disk is full)(?:; no clone was made)?$/.exec(
      message,
    ) ?? []
  if (!path.startsWith(`${folder}/`)) return message
  const name = file ?? path.slice(path.lastIndexOf('/') + 1)
  return name.replace(/^\d+/, '*')
}
