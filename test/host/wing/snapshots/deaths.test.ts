import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { projectRoot } from '../../../../src/build/project.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { luksImage } from '../secrets/luks-image.ts'

const DAEMON = join(projectRoot, 'test/support/wing/deaths/mortal-snapshots.ts')
/** `npm run instances` takes all moments, and this group one of a few calls. */
const ALL = process.env[INSTANCES.lives] !== undefined
const TIMEOUT_MS = 900_000
const AT_A_TIME = 2

/** The calls in which the daemon dies, with the least numbers of moments that each has. */
const CALLS = [
  ['snapshot', { commit: 2, qmp: 7 }],
  ['mergeMiddle', { commit: 4, qmp: 8 }],
  ['mergeTop', { commit: 5, qmp: 10 }],
  ['stopped', { commit: 2, qmp: 0 }],
  ['revert', { commit: 3, qmp: 0 }],
  ['mergeStopped', { commit: 8, qmp: 20 }],
] as const

/** Of an encrypted disk, whose layers QEMU opens by its secret. */
const ENCRYPTED = CALLS.filter(([call]) => (ALL ? call.startsWith('merge') : call === 'mergeStopped'))

describe.each(ENCRYPTED)("the death of a daemon in an encrypted disk's call %s", (call, least) => {
  const folder = temporaryFolder()
  const luks = luksImage(join(folder, 'luks'), 16, 'a secret')
  writeFileSync(join(folder, 'key'), 'a secret')

  it(
    'is followed by the same call that ends well, and no byte is lost',
    () => dieAtEach(call, least, 'qmp', luks),
    TIMEOUT_MS,
  )
})

describe.each(ALL ? CALLS : CALLS.filter(([call]) => call === 'snapshot' || call === 'mergeTop'))(
  'the death of a daemon in the call %s',
  (call, least) => {
    it.each(['commit', 'qmp'] as const)(
      'at each %s is followed by the same call that ends well, and no byte is lost',
      (kind) => dieAtEach(call, least, kind),
      TIMEOUT_MS,
    )
  },
)

async function dieAtEach(
  call: string,
  least: Readonly<Record<'commit' | 'qmp', number>>,
  kind: 'commit' | 'qmp',
  luks?: string,
): Promise<void> {
  if (!ALL) return expect(await dieAndGoOn([call, kind, '2', 'after'], luks)).toBe(true)
  let [moment, number] = [0, 0]
  let isOver = false
  const live = async () => {
    while (!isOver) {
      const [at, when] = [Math.floor(moment / 2) + 1, moment % 2 === 0 ? 'before' : 'after']
      moment += 1
      if (!(await dieAndGoOn([call, kind, `${at}`, when], luks))) isOver = true
      else number = Math.max(number, at)
    }
  }
  await Promise.all(Array.from({ length: AT_A_TIME }, live))
  expect(number).toBeGreaterThanOrEqual(least[kind])
}

/** Whether the call has such a moment. */
async function dieAndGoOn(death: readonly string[], luks: string | undefined): Promise<boolean> {
  const folder = temporaryFolder()
  const at = death.join(' ')
  const { last, signal, errors } = await run(folder, 'ensure', luks, death)
  if (last === 'end') {
    expect([signal, errors, leftovers(folder)], at).toEqual([null, '', []])
    return false
  }
  expect([signal, errors], at).toEqual(['SIGKILL', ''])
  expect(await run(folder, last, luks), `${at}, in ${last}`).toMatchObject({ last: 'end', errors: '' })
  expect(leftovers(folder), at).toEqual([])
  return true
}

async function run(folder: string, first: string, luks?: string, death: readonly string[] = []) {
  const child = spawn(process.execPath, [DAEMON, folder, first, ...death], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...(luks !== undefined && { MORTAL_LUKS: luks }) },
  })
  const [output, errors] = [child.stdout, child.stderr].map((stream) => {
    const text = { all: '' }
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      text.all += chunk
    })
    return text
  })
  const signal = await new Promise<string | null>((resolve) => child.once('close', (_, by) => resolve(by)))
  return { last: output?.all.trim().split('\n').at(-1) ?? '', signal, errors: errors?.all ?? '' }
}
