import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { buildParts } from '../../support/vminit/compiled.ts'
import { run } from '../../support/vminit/supervised.ts'

let parts: string

beforeAll(async () => {
  parts = await buildParts()
})

/**
 * `$0` is the program. In a mount namespace of its own: ext4 on `inner`, whose image is a file on the xfs `outer`, and a
 * process in the cgroup of `$STATE`.
 */
const SETUP = `mount -t tmpfs freeze "$1"
cd "$1"
mkdir inner outer
truncate -s 320M disk
mkfs.xfs -q disk
mount -o loop disk outer
truncate -s 16M outer/disk
mkfs.ext4 -q outer/disk
mount -o loop outer/disk inner
cgroup=/sys/fs/cgroup/freezer/vminit-freeze-$$
mkdir $cgroup
export STATE=$cgroup/freezer.state
sleep 1000 &
sleeper=$!
trap 'echo THAWED > $STATE; kill -9 $sleeper; wait; until rmdir $cgroup 2> /dev/null; do sleep 0.05; done' EXIT
echo $sleeper > $cgroup/cgroup.procs
`

/** The last hold is the first thaw, so the outer one is thawed first. */
const HELD = 'fs:inner=inner fs:outer=outer cgroup:$STATE'
const FROZEN = `${HELD} arm:60000 freeze:cgroup take:200 freeze:inner take:200 freeze:outer take:200`

async function drive(words: string): Promise<{ readonly lines: readonly string[]; readonly stderr: string }> {
  const folder = join(temporaryFolder(), 'mount')
  mkdirSync(folder)
  const script = `${SETUP}"$0" freeze ${words.replaceAll(/\s*\n\s*/g, ' ').replaceAll("'", '"')}`
  const { status, stdout, stderr } = await run(['unshare', '--mount', 'sh', '-ec', script, parts, folder])
  expect({ status, stderr: stderr.replaceAll(/^vminit: .*\n/gm, '') }).toEqual({ status: 0, stderr: '' })
  return { lines: stdout.trimEnd().split('\n'), stderr }
}

const SHOW = `'sh:touch inner/after outer/after; cat $STATE'`

describe.concurrent('the dead man', () => {
  it('thaws file systems in the reverse order, then cgroups, when the bound passes', async () => {
    const asked = `${HELD} arm:2000 freeze:cgroup take:200 freeze:inner take:200 freeze:outer take:200`
    const { lines } = await drive(`${asked} 'sh:cat $STATE' take:5000 freeze:cgroup ${SHOW}`)
    expect(lines.slice(4)).toEqual([
      ...['freeze:cgroup ok', 'answer cgroup ok'],
      ...['freeze:inner ok', 'answer inner ok', 'freeze:outer ok', 'answer outer ok', 'FROZEN'],
      ...['thawed outer ok', 'thawed inner ok', 'thawed  ok', 'freeze:cgroup ENOENT', 'THAWED'],
    ])
  })

  it('counts the bound anew when it is armed again', async () => {
    const { lines } = await drive(`${HELD} arm:600 freeze:cgroup sleep:400 arm:600 sleep:400
      'sh:cat $STATE' take:5000 ${SHOW}`)
    expect(lines.slice(-4)).toEqual(['FROZEN', 'answer cgroup ok', 'thawed  ok', 'THAWED'])
  })

  it('thaws the file systems alone on command, and the cgroups at the bound', async () => {
    const { lines } = await drive(`${FROZEN} thaw-fs take:300 ${SHOW} freeze:inner freeze:cgroup arm:300
      take:5000 ${SHOW}`)
    expect(lines.slice(-8)).toEqual(
      [
        ...[
          'thawed inner ok',
          'FROZEN',
          'freeze:inner ECANCELED',
          'freeze:cgroup ECANCELED',
          'arm:300 ok',
          'thawed  ok',
          'THAWED',
        ].slice(-7),
      ].toSpliced(0, 0, 'thawed outer ok'),
    )
  })

  it('thaws at once where vminit starts another agent or powers off, and can begin again', async () => {
    const { lines } = await drive(`${FROZEN} now ${SHOW} ${HELD} now fs:inner=inner`)
    expect(lines.slice(-5)).toEqual([
      'THAWED',
      ...['fs:inner=inner ok', 'fs:outer=outer ok', expect.stringMatching(/^cgroup:.* ok$/)],
      'fs:inner=inner ok',
    ])
  })

  it('waits for no file system that hangs, names it, and thaws it when it can', async () => {
    const words = `${HELD} arm:60000 freeze:cgroup take:200 stuck:inner/file freeze:inner take:300
      freeze:outer now now 'sh:touch outer/after; cat $STATE' fs:again=outer unstick take:5000 ${SHOW} fs:again=outer`
    const { lines, stderr } = await drive(words)
    // The end of the agent and the power-off wait for it once.
    expect(stderr.replaceAll(/\d+:\d+/g, 'N')).toBe('vminit: file system N: not thawed within 3000 ms\n')
    // The answer about `inner`, whose freeze ends when it is no longer wanted, may come before or after.
    const others = lines.filter((line) => line !== 'answer inner ok')
    const end = others.slice(others.indexOf('THAWED')).filter((line) => !line.endsWith(' outer ok'))
    expect(end).toEqual([
      ...['THAWED', 'fs:again=outer EBUSY', 'thawed inner ok', 'thawed  ok'],
      ...['THAWED', 'fs:again=outer ok'],
    ])
  })

  it('leaves what another program has frozen', async () => {
    const { lines } = await drive(`'sh:fsfreeze -f inner' ${HELD} arm:60000 freeze:inner take:300 now
      'sh:fsfreeze -u inner' ${SHOW}`)
    expect(lines.slice(-3)).toEqual(['freeze:inner ok', 'answer inner EBUSY', 'THAWED'])
  })

  it('refuses the device of /, other files, bad names and times, and more than it has room for', async () => {
    const many = Array.from({ length: 32 }, (_, index) => `fs:n${index}=outer`).join(' ')
    const { lines } =
      await drive(`arm:1 take:5000 fs:root=/ fs:file=disk cgroup:disk fs:A=outer fs:n0=outer fs:n0=outer arm:0
      arm:60001 freeze:n0 thaw take:100 ${many} fs:n32=outer`)
    expect(lines.filter((line) => !/^fs:n\d+=outer ok$/.test(line))).toEqual([
      ...[
        'arm:1 ok',
        'thawed  ok',
        'fs:root=/ EPERM',
        'fs:file=disk EINVAL',
        'cgroup:disk EINVAL',
        'fs:A=outer EINVAL',
        'fs:n0=outer EEXIST',
      ],
      ...['arm:0 EINVAL', 'arm:60001 EINVAL', 'freeze:n0 ECANCELED', 'thawed  ok', 'fs:n32=outer ENOSPC'],
    ])
  })
})
