import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import type { CgroupEvents } from '../../../src/os/process/cgroup-events.ts'
import { linuxCgroupEvents } from '../../../src/os/process/cgroup-events.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { realNative } from '../../support/os/real-native.ts'

const V1 = '/sys/fs/cgroup/memory/cgroup-events-test'
const V2_ROOT = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].find((path) =>
  existsSync(`${path}/cgroup.controllers`),
)

describe('linuxCgroupEvents', () => {
  let events: CgroupEvents
  beforeAll(async () => {
    const native = await realNative()
    events = linuxCgroupEvents(native, linuxStreams(native))
  })

  describe.skipIf(V2_ROOT === undefined)('on v2', () => {
    const folder = `${V2_ROOT}/cgroup-events-test`
    it('reports that the kernel changes a file', async () => {
      mkdirSync(folder)
      const file = `${folder}/cgroup.events`
      const populated = Promise.withResolvers<void>()
      const empty = Promise.withResolvers<void>()
      const listening = events.onModified(file, () => {
        const isPopulated = readFileSync(file, 'utf8').includes('populated 1')
        if (isPopulated) populated.resolve()
        else empty.resolve()
      })
      const child = spawn('cat', { stdio: ['pipe', 'ignore', 'inherit'] })
      writeFileSync(`${folder}/cgroup.procs`, String(child.pid))
      await populated.promise
      child.stdin.end()
      await empty.promise
      expect(readFileSync(file, 'utf8')).toContain('populated 0')
      listening.close()
      rmdirSync(folder)
    })

    it('names the file that cannot be watched', () => {
      expect(() => events.onModified(`${folder}/nothing`, () => {})).toThrow(
        `watch ${folder}/nothing: ENOENT`,
      )
    })
  })

  describe.skipIf(!existsSync('/sys/fs/cgroup/memory/cgroup.event_control'))('on v1', () => {
    it('reports an out-of-memory kill, and the removal of the cgroup', async () => {
      mkdirSync(V1)
      let happened = Promise.withResolvers<void>()
      try {
        writeFileSync(`${V1}/memory.limit_in_bytes`, String(4 << 20))
        const listening = events.onNotified(V1, 'memory.oom_control', () => happened.resolve())
        const hog = 'echo $$ > "$0/cgroup.procs"; exec dd if=/dev/zero of=/dev/null bs=32M count=1'
        const child = spawn('sh', ['-c', hog, V1], { stdio: 'ignore' })
        const ended = new Promise((resolve) => child.once('exit', (_code, signal) => resolve(signal)))
        await happened.promise
        expect(await ended).toBe('SIGKILL')
        happened = Promise.withResolvers<void>()
        rmdirSync(V1)
        await happened.promise
        listening.close()
      } finally {
        if (existsSync(V1)) rmdirSync(V1)
      }
    })

    it('names the cgroup that cannot be watched', () => {
      expect(() => events.onNotified('/sys/fs/cgroup/memory', 'memory.nothing', () => {})).toThrow(
        'open /sys/fs/cgroup/memory/memory.nothing: ENOENT',
      )
    })
  })
})
