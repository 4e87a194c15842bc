import { existsSync, readdirSync, watch, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { STATE_FOLDER } from '../../../src/agent/boot/state-folder.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import {
  cgroupsOf,
  inNamespaceOf,
  leftoversOf,
  mountPointsOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** The log message for connections that are still open at the stop's time limit. */
const CONNECTIONS_CUT = 'connections cut at the stop'

describe('concurrent calls', () => {
  const folder = temporaryFolder()

  it('DestroySandbox during creations and additions: nothing is left, the agent ends', async () => {
    const pod = await startPod()
    try {
      await pod.run('standing', ['sleep', '1000'])
      const ids = ['new-1', 'new-2', 'new-3']
      const creations = ids.map((id) => pod.create(id, ['sleep', '1000']))
      const additions = ['e1', 'e2'].map((id) => pod.add('standing', id, ['sleep', '1000']))
      const others = Promise.allSettled([...creations, ...additions])
      await pod.agent.destroySandbox({})
      await others
      expect(await pod.started.exited).toBe(0)
      expect(['standing', ...ids].flatMap((id) => cgroupsOf(id, pod.started))).toEqual([])
    } finally {
      await pod.stop()
    }
  })

  it('SIGTERM during creations and additions: nothing is left, the agent ends', async () => {
    const pod = await startPod()
    try {
      await pod.run('standing', ['sleep', '1000'])
      const ids = ['new-1', 'new-2', 'new-3']
      const creations = ids.map((id) => pod.run(id, ['sleep', '1000']))
      const additions = ['e1', 'e2'].map((id) => pod.add('standing', id, ['sleep', '1000']))
      const others = Promise.allSettled([...creations, ...additions])
      await pod.started.health.check({})
      process.kill(pod.started.vminitPid, 'SIGTERM')
      await others
      expect(await pod.started.exited).toBe(0)
      expect(['standing', ...ids].flatMap((id) => cgroupsOf(id, pod.started))).toEqual([])
    } finally {
      await pod.stop()
    }
  })

  it('RemoveContainer during additions: each ends, and the container is gone', async () => {
    const pod = await startPod()
    try {
      for (let round = 0; round < 5; round++) {
        await pod.run('busy', ['sleep', '1000'])
        const additions = Array.from({ length: 4 }, (_, number) =>
          pod.add('busy', `e${number}`, ['sleep', '1000']),
        )
        const ends = additions.map(async (adding) => (await adding).wait())
        const settled = Promise.allSettled(ends)
        await pod.started.health.check({})
        await pod.remove('busy')
        for (const end of await settled) {
          if (end.status === 'fulfilled') expect(end.value).toBe(128 + SIGKILL)
          else expect(['INTERNAL', 'NOT_FOUND', 'INVALID_ARGUMENT']).toContain(end.reason.code)
        }
        expect(leftoversOf(pod.started, 'busy')).toEqual(NOTHING_LEFT)
      }
    } finally {
      await pod.stop()
    }
  })

  it('StartContainer, RemoveContainer and a kill at once: the container is removed in any order', async () => {
    const pod = await startPod()
    try {
      for (let round = 0; round < 10; round++) {
        const init = await pod.create('torn', ['sleep', '1000'])
        const waiting = init.wait().catch((error: unknown) => error)
        const all = [
          pod.agent.startContainer({ containerId: 'torn' }),
          pod.agent.signalProcess({ containerId: 'torn', signal: SIGKILL }),
          pod.agent.removeContainer({ containerId: 'torn' }),
        ]
        const [, , removal] = await Promise.allSettled(all)
        expect(removal?.status).toBe('fulfilled')
        expect(await waiting).toBe(128 + SIGKILL)
        expect(leftoversOf(pod.started, 'torn')).toEqual(NOTHING_LEFT)
      }
    } finally {
      await pod.stop()
    }
  })

  it('a hang-up in the middle of CreateSandbox: it is undone, its helper program killed', async () => {
    const started = await startAgent()
    try {
      // The agent mounts its own folder while it boots.
      const others = () => mountPointsOf(started).filter((path) => path !== STATE_FOLDER)
      const before = others()
      const modprobe = join(folder, 'modprobe')
      writeFileSync(modprobe, `#!/bin/sh\necho > ${folder}/began; exec sleep 1000\n`, { mode: 0o755 })
      inNamespaceOf(started, 'mount', '--bind', modprobe, '/sbin/modprobe')
      const other = await started.connect()
      const began = Promise.withResolvers<void>()
      const watcher = watch(folder, (_event, name) => name === 'began' && began.resolve())
      const wanted = { sandboxId: 'half', hostname: 'half', kernelModules: [{ name: 'any' }] }
      const lost = other.agent.createSandbox(wanted).catch((error: unknown) => error)
      await began.promise
      watcher.close()
      await expect(started.agent.createSandbox({ sandboxId: 'second' })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: 'sandbox: already exists (creating)',
      })
      other.close()
      expect(await lost).toMatchObject({ code: 'UNAVAILABLE' })
      await started.logged({ msg: 'rpc' }, 2)
      inNamespaceOf(started, 'umount', '/sbin/modprobe')
      // The agent asks the runtime for its version in the background, after its boot.
      await expect.poll(() => leftoversOf(started).processes).toEqual([])
      expect(others()).toEqual(before)
      expect(readdirSync(started.inside('/run/kata-containers'))).toEqual([])
      await started.agent.createSandbox({ sandboxId: 'whole', hostname: 'whole' })
    } finally {
      await started.stop()
    }
  })

  it('a stop while callers wait and read: each gets its answer, and no connection is cut', async () => {
    const pod = await startPod()
    try {
      const init = await pod.run('waited', ['sleep', '1000'])
      const other = await pod.started.connect()
      // The stop must also close a connection that never sends anything.
      const silent = await pod.started.connect()
      const pending = Promise.allSettled([
        init.wait(),
        init.read(),
        other.agent.waitProcess({ containerId: 'waited' }),
      ])
      await Promise.all([pod.started.health.check({}), other.health.check({})])
      process.kill(pod.started.vminitPid, 'SIGTERM')
      expect((await pending).map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'fulfilled'])
      expect(await pod.started.exited).toBe(0)
      expect(pod.started.log.filter(({ msg }) => msg === CONNECTIONS_CUT)).toEqual([])
      await Promise.all([other.closed, silent.closed])
    } finally {
      await pod.stop()
    }
  })

  it('many creations that fail beside many that succeed: neither affects the other', async () => {
    const pod = await startPod()
    try {
      const good = Array.from({ length: 8 }, (_, number) => `good-${number}`)
      const bad = Array.from({ length: 8 }, (_, number) => `bad-${number}`)
      const failures = Promise.allSettled(bad.map((id) => pod.create(id, ['nosuch'])))
      const successes = good.map(async (id) => {
        const init = await pod.run(id, ['echo', id])
        const output = (await init.readAll()).toString()
        await pod.remove(id)
        return output
      })
      expect(await Promise.all(successes)).toEqual(good.map((id) => `${id}\n`))
      expect((await failures).map(({ status }) => status)).toEqual(bad.map(() => 'rejected'))
      expect(leftoversOf(pod.started, ...good, ...bad)).toEqual(NOTHING_LEFT)
    } finally {
      await pod.stop()
    }
  })

  it('a deadline that passes during a start: the caller gets its error, and the start continues', async () => {
    const pod = await startPod()
    try {
      await pod.create('slow', ['sh', '-c', 'echo went on; sleep 1000'])
      // Running the runtime takes several milliseconds, so the deadline passes first.
      const start = pod.agent.startContainer({ containerId: 'slow' }, { timeoutMs: 1 })
      await expect(start).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
      // This call waits for the start that is under way.
      await pod.add('slow', 'e', ['true'])
      expect(await new RemoteProcess(pod.agent, 'slow').readUntil('\n')).toBe('went on\n')
      await pod.remove('slow')
      expect(existsSync(pod.started.inside('/run/kata-containers/slow'))).toBe(false)
    } finally {
      await pod.stop()
    }
  })
})
