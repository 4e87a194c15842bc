import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type CgroupEvents, linuxCgroupEvents } from '../../../src/os/process/cgroup-events.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { FakeFiles } from '../../support/fakes/files/fake-files.ts'
import { FakeMounts } from '../../support/fakes/files/fake-mounts.ts'
import { FakeCgroupEvents } from '../../support/fakes/process/fake-cgroup-events.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

interface Implementation {
  readonly events: CgroupEvents
  modify(path: string): void
}

async function onLinux(path: string): Promise<Implementation> {
  const native = await realNative()
  writeFileSync(path, '')
  const modify = () => writeFileSync(path, 'populated 1\n')
  return { events: linuxCgroupEvents(native, linuxStreams(native)), modify }
}

async function fake(path: string): Promise<Implementation> {
  const files = new FakeFiles(new FakeMounts())
  await files.put(path, '')
  const events = new FakeCgroupEvents(files)
  return { events, modify: (modified) => events.happen(modified) }
}

describe.each([
  ['linuxCgroupEvents', onLinux],
  ['FakeCgroupEvents', fake],
])('%s', (_name, build) => {
  it('reports a change to each listener until it is closed', async () => {
    const path = join(temporaryFolder(), 'cgroup.events')
    const { events, modify } = await build(path)
    const called = new Set<string>()
    const listening = ['one', 'other'].map((name) => events.onModified(path, () => called.add(name)))
    modify(path)
    await expect.poll(() => [...called].toSorted()).toEqual(['one', 'other'])
    listening[0]?.close()
    called.clear()
    modify(path)
    await expect.poll(() => [...called]).toEqual(['other'])
    listening[1]?.close()
  })

  it('names what it cannot watch', async () => {
    const folder = temporaryFolder()
    const { events } = await build(join(folder, 'cgroup.events'))
    const missing = {
      code: 'INTERNAL',
      errno: 'ENOENT',
      message: expect.stringContaining(`${folder}/none: ENOENT`),
    }
    expect(() => events.onModified(`${folder}/none`, () => {})).toThrow(expect.objectContaining(missing))
    expect(() => events.onNotified(folder, 'none', () => {})).toThrow(expect.objectContaining(missing))
  })
})
