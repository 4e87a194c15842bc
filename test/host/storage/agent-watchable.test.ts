import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Storage } from '../../../src/gen/agent.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import type { Files } from '../../../src/os/files/files.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import {
  type AgentPod,
  leftoversOf,
  mountPointsOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { realOs } from '../../support/os/real-os.ts'
import { guestProgram } from '../../support/programs/guest/guest-program.ts'
import {
  expectWholeVersions,
  publishFirst,
  READ_VERSIONS,
} from '../../support/programs/guest/volume-reader.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const WATCHED = '/run/kata-containers/shared/containers/watchable'

describe('a watched folder of the host', () => {
  let pod: AgentPod
  let files: Files
  let folder: string

  beforeAll(async () => {
    pod = await startPod()
    files = (await realOs()).files
    folder = temporaryFolder()
    writeFileSync(join(pod.root, 'bin/volume-reader'), await guestProgram('volume-reader'), { mode: 0o755 })
  })

  afterAll(() => pod.stop())

  it('shows a container whole versions only, and each with an inotify event', async () => {
    const source = join(folder, 'config')
    await publishFirst(files, source)
    await expectWholeVersions(await run('reader', source, READ_VERSIONS), files, source)
    await pod.remove('reader')
    expectNothingLeft('reader')
  })

  it('is copied with its files, folders and links, and nothing else', async () => {
    const source = join(folder, 'odd')
    mkdirSync(join(source, 'folder'), { recursive: true })
    writeFileSync(join(source, 'folder/script'), 'echo run')
    chmodSync(join(source, 'folder/script'), 0o751)
    symlinkSync('/etc/passwd', join(source, 'out'))
    execFileSync('mkfifo', [join(source, 'fifo')])
    execFileSync('mknod', [join(source, 'device'), 'c', '1', '3'])
    const script = 'cd /volume; ls; readlink out; stat -c %a folder/script; sh folder/script'
    const lister = await run('lister', source, script)
    expect((await lister.readAll()).toString()).toBe('folder\nout\n/etc/passwd\n751\nrun\n')
    await pod.remove('lister')
    expectNothingLeft('lister')
  })

  it('is not written through a link that a container has made', async () => {
    const source = join(folder, 'trap')
    mkdirSync(join(source, 'folder'), { recursive: true })
    const victim = '/run/kata-containers/victim'
    mkdirSync(pod.started.inside(victim))
    const script = `rm -rf /volume/folder; ln -s ${victim} /volume/folder; echo set; sleep 1000`
    const trap = await run('trap', source, script, { options: ['rbind', 'rw'] })
    await trap.readUntil('set\n')
    writeFileSync(join(source, 'folder/file'), 'x')
    await pod.started.logged({ msg: 'watched storage not up to date', mountPoint: `${WATCHED}/trap` })
    expect(readdirSync(pod.started.inside(victim))).toEqual([])
    await pod.remove('trap')
    expectNothingLeft('trap')
  })

  it('may be a single file, whose changes a container sees', async () => {
    const source = join(folder, 'file')
    writeFileSync(source, 'the old content')
    const script = 'cat /file; until grep -q new /file; do usleep 100000; done; cat /file'
    const reader = await run('single', source, script, { destination: '/file' })
    await reader.readUntil('old content')
    writeFileSync(source, 'new')
    expect((await reader.readAll()).toString()).toBe('new')
    await pod.remove('single')
    expectNothingLeft('single')
  })

  it('is mounted instead of copied when it is large', async () => {
    const source = join(folder, 'large')
    mkdirSync(source)
    for (let each = 0; each < 17; each += 1) writeFileSync(join(source, `file-${each}`), 'x')
    const counter = await run('counter', source, 'ls /volume | wc -l; read line; ls /volume | wc -l')
    expect(await counter.readUntil('\n')).toBe('17\n')
    writeFileSync(join(source, 'file-17'), 'x')
    await counter.write('\n')
    expect(await counter.readUntil('\n')).toBe('18\n')
    await pod.remove('counter')
    expectNothingLeft('counter')
  })

  it('is mounted over its copy when it has grown large', async () => {
    const source = join(folder, 'growing')
    mkdirSync(source)
    writeFileSync(join(source, 'small'), 'x')
    await run('waiter', source, 'sleep 1000')
    writeFileSync(join(source, 'big'), Buffer.alloc(1024 * 1024))
    await pod.started.logged({
      msg: 'watched storage mounted instead of copied',
      mountPoint: `${WATCHED}/waiter`,
    })
    const next = await run('next', source, 'ls /volume', { mountPoint: `${WATCHED}/waiter` })
    expect((await next.readAll()).toString()).toBe('big\nsmall\n')
    await pod.remove('waiter')
    await pod.remove('next')
    expectNothingLeft('waiter', 'next')
  })

  /** Runs a script in a container with a copy of a folder, by default at /volume. */
  async function run(
    id: string,
    source: string,
    script: string,
    { destination = '/volume', mountPoint = `${WATCHED}/${id}`, options = ['rbind', 'rprivate', 'ro'] } = {},
  ): Promise<RemoteProcess> {
    const volume = { destination, type: 'bind', source: mountPoint, options }
    const storage: DeepPartial<Storage> = {
      driver: 'watchable-bind',
      source,
      fstype: 'bind',
      options,
      mountPoint,
    }
    return pod.run(id, ['sh', '-c', script], { mounts: [volume], storages: [storage] })
  }

  function expectNothingLeft(...ids: readonly string[]): void {
    expect(leftoversOf(pod.started, ...ids)).toEqual(NOTHING_LEFT)
    expect(mountPointsOf(pod.started).filter((path) => path.startsWith(WATCHED))).toEqual([])
  }
})
